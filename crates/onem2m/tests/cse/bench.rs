//! A CSE with a store made of a map, and short ways to ask it.

use core::time::Duration;
use gatewright_onem2m::audit::AuditEntry;
use gatewright_onem2m::{
    Call, Cse, CseConfig, CseType, Damage, DeviceCall, Input, NameKey, Now, Operation, Output,
    ReadRow, RecordBlock, Request, ResourceType, Response, RowChange, Status, StoredItem, Token,
    Unreachable, Unreadable,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// 2023-11-14 22:13:20.
pub(crate) const START: Duration = Duration::from_secs(1_700_000_000);

pub(crate) struct Bench {
    pub(crate) cse: Cse,
    pub(crate) rows: BTreeMap<u64, Arc<str>>,
    pub(crate) next_seq: u64,
    pub(crate) now: Duration,
    /// Seconds that the wall clock is ahead of `now`, by which the monotonic clock goes.
    pub(crate) lead: i64,
    pub(crate) asked: u64,
    /// Requests that the CSE wants sent.
    pub(crate) calls: Vec<Call>,
    /// Requests that the CSE wants devices asked.
    pub(crate) device_calls: Vec<DeviceCall>,
    /// What the audit log was told.
    pub(crate) entries: Vec<AuditEntry>,
    /// Rows that were found unreadable after the start.
    pub(crate) unreadable: Vec<Unreadable>,
    /// The clocks as they were noted last, and the memory of requests.
    pub(crate) clock: Option<Arc<str>>,
    pub(crate) remembered: Vec<Arc<str>>,
}

pub(crate) fn config() -> CseConfig {
    let mut config = CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
    config.admin = Some("CAdmin".to_owned());
    config.limits.resident_octets = crate::RESIDENT_OCTETS;
    config
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: CseConfig) -> Self {
        let (cse, unreadable) = Cse::open(config, START, [], 1).unwrap();
        assert_eq!(unreadable, []);
        let mut bench = Self {
            cse,
            rows: BTreeMap::new(),
            next_seq: 1,
            now: START,
            lead: 0,
            asked: 0,
            calls: Vec::new(),
            device_calls: Vec::new(),
            entries: Vec::new(),
            unreadable: Vec::new(),
            clock: None,
            remembered: Vec::new(),
        };
        assert!(bench.run().is_empty());
        bench
    }

    /// A bench with an AE `Ca` below the CSEBase and a container `c` below that.
    pub(crate) fn with_container() -> Self {
        let mut bench = Self::new();
        bench.register("Ca", "a");
        let made =
            bench.create("Ca", "cse-in/a", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#);
        assert_eq!(made.status.number(), 2001);
        bench
    }

    pub(crate) fn register(&mut self, from: &str, name: &str) -> Response {
        let content =
            format!(r#"{{"m2m:ae":{{"rn":"{name}","api":"Nx","rr":false,"srv":["4"]}}}}"#);
        self.create(from, "cse-in", ResourceType::ApplicationEntity, &content)
    }

    /// Stores what is to be stored, says so, and collects the answers, until nothing is left.
    pub(crate) fn run(&mut self) -> Vec<(Token, Response)> {
        let mut answers = Vec::new();
        while let Some(output) = self.cse.poll_output() {
            match output {
                Output::Store(batch) => {
                    self.store(&batch.records);
                    self.next_seq = batch.next_seq;
                    self.entries.extend(batch.entries);
                    self.clock = batch.clock.or(self.clock.take());
                    self.remembered.extend(batch.remembered);
                    self.cse.handle(self.clocks(), Input::Committed(batch.number));
                }
                Output::Respond { token, response } => answers.push((token, response)),
                Output::Call(call) => self.calls.push(*call),
                Output::AskDevice(call) => self.device_calls.push(*call),
                Output::Read { read, rows } => {
                    let rows = Ok(self.read(&rows));
                    self.cse.handle(self.now, Input::Rows { read, rows });
                }
                Output::Unreadable(row) => self.unreadable.push(row),
                Output::Lost { .. } => {}
            }
        }
        answers
    }

    /// Stored rows as the store reads them.
    pub(crate) fn read(&self, rows: &[u64]) -> Vec<ReadRow> {
        let row = |seq: &u64| (*seq, self.rows.get(seq).cloned().ok_or(Damage::Missing));
        rows.iter().map(row).collect()
    }

    pub(crate) fn store(&mut self, records: &[RowChange]) {
        for record in records {
            match record {
                RowChange::Put { seq, body } => {
                    self.rows.insert(*seq, Arc::clone(body));
                }
                RowChange::Delete { seq } => {
                    self.rows.remove(seq);
                }
            }
        }
    }

    /// Both clocks.
    pub(crate) fn clocks(&self) -> Now {
        let lead = Duration::from_secs(self.lead.unsigned_abs());
        let wall = if self.lead < 0 { self.now.saturating_sub(lead) } else { self.now + lead };
        Now { wall, elapsed: self.now }
    }

    /// The machine after a restart that takes no time, with all that was stored.
    pub(crate) fn restart(&mut self) {
        let beside = self.clock.iter().chain(&self.remembered).map(|line| (0, Arc::clone(line)));
        let items: Vec<_> = beside.map(StoredItem::from).chain(self.stored_items()).collect();
        let config = self.cse.config().clone();
        let opened = Cse::open_stored(config, self.clocks(), items, self.next_seq);
        let (cse, unreadable) = opened.unwrap();
        assert_eq!(unreadable, []);
        self.cse = cse;
        self.run();
    }

    /// What a store gives at a start: if instances leave memory, blocks of records in the place of the
    /// rows that they cover.
    fn stored_items(&self) -> Vec<StoredItem> {
        let has_blocks = self.cse.config().limits.resident_octets.is_some();
        let (mut items, mut first) = (Vec::new(), 0);
        while first < self.next_seq {
            let numbers = first..first + RecordBlock::NUMBERS;
            let rows =
                || self.rows.range(numbers.clone()).map(|(&seq, body)| (seq, Arc::clone(body)));
            let block = RecordBlock::of_rows(first, NameKey::new([1, 2]), rows());
            let is_single = |(seq, _): &(u64, _)| !has_blocks || !block.present().has(seq - first);
            items.extend(rows().filter(is_single).map(StoredItem::from));
            if has_blocks {
                items.push(StoredItem::Records(Box::new(block)));
            }
            first += RecordBlock::NUMBERS;
        }
        items
    }

    /// What the audit log was told, as it says it.
    pub(crate) fn told(&self) -> Vec<Value> {
        self.entries.iter().map(|it| serde_json::from_str(&it.to_text()).unwrap()).collect()
    }

    /// Asks, and gives every answer that comes at once.
    pub(crate) fn ask_all(&mut self, request: Request) -> Vec<(Token, Response)> {
        self.asked += 1;
        let token = Token(self.asked);
        self.cse.handle(self.clocks(), Input::Request { token, request });
        self.run()
    }

    pub(crate) fn ask(&mut self, request: Request) -> Response {
        let mut answers = self.ask_all(request);
        assert_eq!(answers.len(), 1, "one answer to one request");
        let (answered, response) = answers.remove(0);
        assert_eq!(answered, Token(self.asked));
        response
    }

    pub(crate) fn request(&mut self, operation: Operation, from: &str, to: &str) -> Request {
        Request::new(operation, to, from, format!("r{}", self.asked + 1))
    }

    pub(crate) fn create(
        &mut self,
        from: &str,
        to: &str,
        resource_type: ResourceType,
        content: &str,
    ) -> Response {
        let request = self.request(Operation::Create, from, to).creating(resource_type, content);
        self.ask(request)
    }

    /// Creates a contentInstance with this text as content, below `cse-in/a/c`.
    pub(crate) fn reading(&mut self, name: &str, content: &str) -> Response {
        let content = format!(r#"{{"m2m:cin":{{"rn":"{name}","con":"{content}"}}}}"#);
        self.create("Ca", "cse-in/a/c", ResourceType::ContentInstance, &content)
    }

    /// Retrieves with parameters given as in a query string.
    pub(crate) fn get(&mut self, from: &str, to: &str) -> Response {
        let (to, query) = to.split_once('?').unwrap_or((to, ""));
        let mut request = self.request(Operation::Retrieve, from, to);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap();
            request.set(name, value).unwrap();
        }
        self.ask(request)
    }

    pub(crate) fn update(&mut self, from: &str, to: &str, content: &str) -> Response {
        let request = self.request(Operation::Update, from, to).with_content(content);
        self.ask(request)
    }

    pub(crate) fn delete(&mut self, from: &str, to: &str) -> Response {
        let request = self.request(Operation::Delete, from, to);
        self.ask(request)
    }

    /// A CSE made from what was stored.
    pub(crate) fn reopened(&self) -> Cse {
        let rows = self.rows.iter().map(|(&seq, body)| (seq, Arc::clone(body)));
        let (cse, unreadable) =
            Cse::open(self.cse.config().clone(), self.now, rows, self.next_seq).unwrap();
        assert_eq!(unreadable, []);
        cse
    }
}

pub(crate) fn json(response: &Response) -> Value {
    serde_json::from_str(response.content.as_deref().unwrap_or("null")).unwrap()
}

/// The addresses of a discovery result.
pub(crate) fn found(response: &Response) -> Vec<String> {
    assert_eq!(response.status.number(), 2000, "{response:?}");
    let list = json(response)["m2m:uril"].clone();
    serde_json::from_value(list).unwrap()
}

impl Bench {
    /// The requests that the CSE wanted sent since this was last asked.
    pub(crate) fn calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// Answers a request that the CSE sent; the answers that this sets free.
    pub(crate) fn reply(&mut self, call: &Call, status: Status) -> Vec<(Token, Response)> {
        let answer = Response::new(status, call.request.id.as_str(), call.request.release);
        self.cse.handle(self.clocks(), Input::Answer { call: call.id, answer: Ok(answer) });
        self.run()
    }

    /// Says that a request could not be delivered.
    pub(crate) fn away(&mut self, call: &Call) -> Vec<(Token, Response)> {
        let answer = Err(Unreachable("nobody listens".to_owned()));
        self.tell(Input::Answer { call: call.id, answer })
    }

    /// Tells the machine something; the answers that this sets free.
    pub(crate) fn tell(&mut self, input: Input) -> Vec<(Token, Response)> {
        self.cse.handle(self.clocks(), input);
        self.run()
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, span: Duration) {
        self.now += span;
        self.cse.handle(self.clocks(), Input::Tick);
        self.run();
    }

    /// Asks what cannot be answered at once.
    pub(crate) fn ask_later(&mut self, request: Request) -> Token {
        self.asked += 1;
        let token = Token(self.asked);
        self.cse.handle(self.clocks(), Input::Request { token, request });
        assert!(self.run().is_empty(), "answered at once");
        token
    }
}
