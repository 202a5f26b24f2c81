//! Two endpoints and a network that loses, repeats and reorders; and single messages by hand.

use super::*;
use gatewright_wire::coap::ContentFormat;
use proptest::prelude::*;

const CLIENT: &str = "192.0.2.1:5683";
const SERVER: &str = "192.0.2.2:5683";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn endpoint(secret: u64) -> Endpoint {
    Endpoint::new(Limits::default(), primitive::option::is_known, [secret, 7])
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// What came out, datagrams apart.
fn drain(endpoint: &mut Endpoint) -> (Vec<Vec<u8>>, Vec<Output>) {
    let (mut sent, mut rest) = (Vec::new(), Vec::new());
    while let Some(output) = endpoint.poll_output() {
        match output {
            Output::Send { octets, .. } => sent.push(octets),
            other => rest.push(other),
        }
    }
    (sent, rest)
}

fn give(endpoint: &mut Endpoint, now: Duration, from: &str, octets: &[u8]) {
    endpoint.handle(now, Input::Datagram { from: address(from), octets });
}

fn request(code: Code, path: &str, payload: Vec<u8>) -> CoapMessage {
    let mut message = CoapMessage { payload, ..CoapMessage::new(code) };
    message.put(OptionNumber::URI_PATH, path);
    message
}

/// RFC 7252, figure 16, and its request again: the second copy is answered as the first, and the
/// application hears of it once.
#[test]
fn a_duplicate_is_answered_and_not_handed_on() {
    let mut server = endpoint(1);
    let octets = b"\x40\x01\x7d\x34\xbbtemperature";
    give(&mut server, seconds(1), CLIENT, octets);
    let (sent, asked) = drain(&mut server);
    assert!(sent.is_empty());
    let [Output::Asked { id, message, .. }] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(message.value(OptionNumber::URI_PATH), Some(b"temperature".as_slice()));
    let answer = CoapMessage { payload: b"22.3 C".to_vec(), ..CoapMessage::new(Code::CONTENT) };
    server.handle(seconds(1), Input::Respond { id: *id, message: answer });
    let (first, _) = drain(&mut server);
    // Figure 16's response has no token.
    assert_eq!(first, [b"\x60\x45\x7d\x34\xff22.3 C".to_vec()]);
    give(&mut server, seconds(3), CLIENT, octets);
    assert_eq!(drain(&mut server), (first, Vec::new()));
    assert_eq!(server.counters().duplicates, 1);
    // From another peer, or after EXCHANGE_LIFETIME, the same identifier is another message.
    give(&mut server, seconds(4), "192.0.2.3:5683", octets);
    assert_eq!(drain(&mut server).1.len(), 1);
    give(&mut server, seconds(1) + EXCHANGE_LIFETIME, CLIENT, octets);
    assert_eq!(drain(&mut server).1.len(), 1);
}

/// RFC 7252, figures 20 and 5: an answer that takes long is announced, and goes as a message of
/// its own that the client acknowledges, each copy of it.
#[test]
fn a_slow_answer_is_separate() {
    let (mut client, mut server) = (endpoint(1), endpoint(2));
    let message = request(Code::GET, "temperature", Vec::new());
    client.handle(seconds(0), Input::Request { id: RequestId(1), to: address(SERVER), message });
    let (sent, _) = drain(&mut client);
    give(&mut server, seconds(0), CLIENT, &sent[0]);
    let (_, asked) = drain(&mut server);
    let Output::Asked { id, .. } = asked[0] else { panic!("{asked:?}") };
    assert_eq!(server.poll_timeout(), Some(ANSWER_WITHIN));
    server.handle(ANSWER_WITHIN, Input::Tick);
    let (acknowledgement, _) = drain(&mut server);
    assert_eq!(acknowledgement, [empty(MessageType::ACKNOWLEDGEMENT, id_of(&sent[0]))]);
    give(&mut client, seconds(1), SERVER, &acknowledgement[0]);
    // Acknowledged: not sent again.
    client.handle(seconds(20), Input::Tick);
    assert_eq!(drain(&mut client), (Vec::new(), Vec::new()));
    server.handle(seconds(20), Input::Respond { id, message: CoapMessage::new(Code::CONTENT) });
    let (separate, _) = drain(&mut server);
    for copy in 0..2 {
        give(&mut client, seconds(21), SERVER, &separate[0]);
        let (sent, answered) = drain(&mut client);
        assert_eq!(sent, [empty(MessageType::ACKNOWLEDGEMENT, id_of(&separate[0]))]);
        assert_eq!(answered.len(), usize::from(copy == 0));
    }
    assert_eq!(client.poll_timeout(), None);
}

fn id_of(octets: &[u8]) -> u16 {
    Datagram::parse(octets).unwrap().message_id()
}

/// RFC 7252 §4.4: however fast a peer answers, no identifier comes again within EXCHANGE_LIFETIME,
/// and what has to wait goes in the end.
#[test]
fn identifiers_do_not_come_again_too_soon() {
    const REQUESTS: u64 = 70_000;
    let mut client = endpoint(1);
    let mut used: Vec<Option<Duration>> = vec![None; 1 << 16];
    let mut now = seconds(1);
    let (mut answered, mut asked) = (0, 0);
    while answered < REQUESTS {
        if asked == answered {
            let (id, to) = (RequestId(asked), address(SERVER));
            let message = request(Code::GET, "x", Vec::new());
            client.handle(now, Input::Request { id, to, message });
            asked += 1;
        }
        let (sent, rest) = drain(&mut client);
        answered += u64::try_from(rest.len()).unwrap();
        for octets in sent {
            let datagram = Datagram::parse(&octets).unwrap();
            let id = datagram.message_id();
            let before = used[usize::from(id)].replace(now);
            assert!(before.is_none_or(|before| before + EXCHANGE_LIFETIME <= now), "{id} {now:?}");
            let head =
                Head { message_type: MessageType::ACKNOWLEDGEMENT, id, token: datagram.token() };
            let answer = CoapMessage::new(Code::CONTENT).write(head, &[], &[]).unwrap();
            give(&mut client, now, SERVER, &answer);
        }
        now = client
            .poll_timeout()
            .filter(|due| *due > now)
            .unwrap_or(now + Duration::from_millis(1));
        client.handle(now, Input::Tick);
    }
    assert!(client.counters().paced > 0);
    assert_eq!(client.counters().unacknowledged, 0);
}

/// RFC 7252 §4.2 and §4.8: five transmissions, each wait twice the last, then the end; at most 93
/// seconds (MAX_TRANSMIT_WAIT) after the first.
#[test]
fn nobody_there_is_noticed() {
    for secret in 0..20 {
        let mut client = endpoint(secret);
        let message = request(Code::GET, "x", Vec::new());
        client
            .handle(seconds(0), Input::Request { id: RequestId(1), to: address(SERVER), message });
        let mut times = vec![Duration::ZERO];
        let failure = loop {
            let (sent, rest) = drain(&mut client);
            if let Some(Output::Answered { answer, .. }) = rest.first() {
                break answer.clone();
            }
            assert_eq!(sent.len(), 1);
            let due = client.poll_timeout().unwrap();
            times.push(due);
            client.handle(due, Input::Tick);
        };
        assert_eq!(failure, Err(Failure::Unacknowledged));
        assert_eq!(times.len(), 6);
        let first = times[1];
        assert!((seconds(2)..=seconds(3)).contains(&first), "{first:?}");
        for (step, pair) in times.windows(2).enumerate() {
            assert_eq!(pair[1], pair[0] + first * (1 << step));
        }
        assert!(times[5] <= seconds(93));
    }
}

/// What it is, the datagram, and what is sent back.
type Wrong = (&'static str, &'static [u8], Option<Vec<u8>>);

/// RFC 7252 §4.2, §4.3, §5.4.1, §5.10.2: what is wrong gets its answer, what is noise gets none.
#[test]
fn wrong_messages() {
    let reset = |id: &[u8]| Some([b"\x70\x00", id].concat());
    let answer = |code: Code, id: &[u8]| Some([&[0x60, code.0], id].concat());
    let cases: [Wrong; 10] = [
        ("ping", b"\x40\x00\x01\x02", reset(b"\x01\x02")),
        ("empty, not confirmable", b"\x50\x00\x01\x02", None),
        ("reserved class", b"\x40\x20\x01\x02", reset(b"\x01\x02")),
        ("malformed option", b"\x40\x01\x01\x02\xf0", reset(b"\x01\x02")),
        ("malformed, not confirmable", b"\x50\x01\x01\x02\xf0", None),
        ("version 2", b"\x80\x01\x01\x02", None),
        (
            "If-Match",
            b"\x40\x01\x01\x02\x10",
            answer(Code::BAD_OPTION, b"\x01\x02\xffoption 1 is critical and not recognised"),
        ),
        (
            "Proxy-Scheme",
            b"\x40\x01\x01\x02\xd1\x1ax",
            answer(Code::PROXYING_NOT_SUPPORTED, b"\x01\x02"),
        ),
        (
            "Accept twice, with Uri-Path twice",
            b"\x40\x01\x01\x02\xb1a\x01b\x61\x32\x01\x3c",
            answer(Code::BAD_OPTION, b"\x01\x02\xffoption 17 is given twice"),
        ),
        ("response to nothing", b"\x41\x45\x01\x02\x09", reset(b"\x01\x02")),
    ];
    for (name, octets, expected) in cases {
        let mut server = endpoint(1);
        give(&mut server, seconds(1), CLIENT, octets);
        let (sent, rest) = drain(&mut server);
        assert_eq!(sent, expected.into_iter().collect::<Vec<_>>(), "{name}");
        assert!(rest.is_empty(), "{name}");
    }
}

/// RFC 7252 §5.4.3: an option of a length that it cannot have is treated as one that is unknown.
#[test]
fn options_that_are_too_long() {
    for number in [OptionNumber::URI_PATH, OptionNumber::URI_QUERY] {
        for (octets, handed_on) in [(255, 1), (256, 0)] {
            let mut server = endpoint(1);
            let mut message = CoapMessage::new(Code::GET);
            message.put(number, vec![b'x'; octets]);
            let head = Head { message_type: MessageType::CONFIRMABLE, id: 1, token: &[] };
            give(&mut server, seconds(1), CLIENT, &message.write(head, &[], &[]).unwrap());
            let (sent, rest) = drain(&mut server);
            assert_eq!(rest.len(), handed_on, "{number:?} of {octets}");
            let told = sent.iter().map(|it| Datagram::parse(it).unwrap());
            let told: Vec<_> = told.filter(|it| it.code() == Code::BAD_OPTION).collect();
            assert_eq!(told.len(), 1 - handed_on, "{number:?} of {octets}");
            let words = format!("option {} has 256 octets of at most 255", number.0);
            assert!(told.iter().all(|it| it.payload() == words.as_bytes()), "{told:?}");
        }
    }
}

/// RFC 7959 §2.9.2: a block without those before it.
#[test]
fn a_missing_block_is_said() {
    let mut server = endpoint(1);
    let mut message = request(Code::PUT, "x", vec![0; 16]);
    message.put_uint(OptionNumber::BLOCK1, Block::new(1, false, 16).unwrap().value().into());
    let head = Head { message_type: MessageType::CONFIRMABLE, id: 1, token: &[] };
    give(&mut server, seconds(1), CLIENT, &message.write(head, &[], &message.payload).unwrap());
    let (sent, rest) = drain(&mut server);
    assert!(rest.is_empty());
    let answer = Datagram::parse(&sent[0]).unwrap();
    assert_eq!(answer.code(), Code::REQUEST_ENTITY_INCOMPLETE);
}

#[test]
fn bodies_beyond_the_limit_are_refused() {
    let limits = Limits { body_octets: 3_000, ..Limits::default() };
    let mut world = World::new(0, 0);
    world.server.limits = limits;
    let message = request(Code::PUT, "x", vec![1; 4_000]);
    let answers = world.run(vec![message], |_| CoapMessage::new(Code::CHANGED));
    assert_eq!(answers[0].as_ref().unwrap().code, Code::REQUEST_ENTITY_TOO_LARGE);
    assert!(world.asked.is_empty());
    world.client.limits.body_octets = 3_000;
    let message = request(Code::GET, "x", Vec::new());
    let answers = world.run(vec![message], |_| CoapMessage {
        payload: vec![1; 4_000],
        ..CoapMessage::new(Code::CONTENT)
    });
    assert_eq!(answers[0], Err(Failure::TooLarge(3_000)));
}

/// RFC 7641: registration, notifications in order, the newest when the peer is slow, the end.
#[test]
fn an_observer_is_told_the_newest() {
    let (mut server, token) = (endpoint(2), [9, 9]);
    let register = |value: u32, id: u16| {
        let mut message = request(Code::GET, "x", Vec::new());
        message.put_uint(OptionNumber::OBSERVE, value.into());
        let head = Head { message_type: MessageType::CONFIRMABLE, id, token: &token };
        message.write(head, &[], &[]).unwrap()
    };
    give(&mut server, seconds(0), CLIENT, &register(0, 1));
    let (_, asked) = drain(&mut server);
    let Output::Asked { id, observes: true, .. } = asked[0] else { panic!("{asked:?}") };
    let state = |text: &str| {
        let mut message = CoapMessage { payload: text.into(), ..CoapMessage::new(Code::CONTENT) };
        message.put(OptionNumber::OBSERVE, []);
        message
    };
    server.handle(seconds(0), Input::Respond { id, message: state("0") });
    let mut told = Vec::new();
    let mut read = |server: &mut Endpoint| {
        let (sent, rest) = drain(server);
        assert!(rest.iter().all(|it| *it == Output::Acknowledged(id)), "{rest:?}");
        let mut ids = Vec::new();
        for octets in sent {
            let message = Datagram::parse(&octets).unwrap();
            assert_eq!(message.token(), token);
            let text = String::from_utf8(message.payload().to_vec()).unwrap();
            told.push((message.uint(OptionNumber::OBSERVE).unwrap(), text));
            ids.push(message.message_id());
        }
        ids
    };
    read(&mut server);
    for text in ["1", "2", "3"] {
        server.handle(seconds(1), Input::Notify { id, message: state(text) });
    }
    let flying = read(&mut server);
    give(&mut server, seconds(2), CLIENT, &empty(MessageType::ACKNOWLEDGEMENT, flying[0]));
    let flying = read(&mut server);
    give(&mut server, seconds(2), CLIENT, &empty(MessageType::ACKNOWLEDGEMENT, flying[0]));
    assert_eq!(told, [(0, "0".into()), (1_000, "1".into()), (2_000, "3".into())]);
    // Reset: it does not want to hear of it any more.
    server.handle(seconds(3), Input::Notify { id, message: state("4") });
    let (sent, _) = drain(&mut server);
    give(&mut server, seconds(3), CLIENT, &empty(MessageType::RESET, id_of(&sent[0])));
    assert_eq!(drain(&mut server).1, [Output::Unobserved(id)]);
    server.handle(seconds(4), Input::Notify { id, message: state("5") });
    assert_eq!(drain(&mut server), (Vec::new(), Vec::new()));
    // Deregistered by a request.
    give(&mut server, seconds(5), CLIENT, &register(0, 2));
    let (_, asked) = drain(&mut server);
    let Output::Asked { id, .. } = asked[0] else { panic!("{asked:?}") };
    server.handle(seconds(5), Input::Respond { id, message: state("6") });
    drain(&mut server);
    give(&mut server, seconds(6), CLIENT, &register(1, 3));
    assert_eq!(drain(&mut server).1[0], Output::Unobserved(id));
}

/// RFC 7641 §4.4: numbers grow for a client and its token, also when it registers again, and when
/// it comes back after it was gone.
#[test]
fn an_observers_numbers_never_fall_back() {
    let mut server = endpoint(2);
    let state = |text: &str| {
        let mut message = CoapMessage { payload: text.into(), ..CoapMessage::new(Code::CONTENT) };
        message.put(OptionNumber::OBSERVE, []);
        message
    };
    let mut numbers = Vec::new();
    for (turn, register) in [0, 0, 1, 0].into_iter().enumerate() {
        let (id, token) = (u16::try_from(turn).unwrap(), [7]);
        let mut message = request(Code::GET, "x", Vec::new());
        message.put_uint(OptionNumber::OBSERVE, register);
        let head = Head { message_type: MessageType::CONFIRMABLE, id, token: &token };
        let octets = message.write(head, &[], &[]).unwrap();
        let now = Duration::from_millis(10 * u64::from(id));
        give(&mut server, now, CLIENT, &octets);
        let (_, asked) = drain(&mut server);
        let asked = asked.iter().find_map(|output| match output {
            Output::Asked { id, .. } => Some(*id),
            _ => None,
        });
        let id = asked.unwrap();
        server.handle(now, Input::Respond { id, message: state("registered") });
        // More is told than milliseconds pass.
        for _ in 0..8 {
            server.handle(now, Input::Notify { id, message: state("told") });
            let (sent, _) = drain(&mut server);
            for octets in &sent {
                let message = Datagram::parse(octets).unwrap();
                numbers.extend(message.uint(OptionNumber::OBSERVE));
                if message.message_type() == MessageType::CONFIRMABLE {
                    let received = empty(MessageType::ACKNOWLEDGEMENT, message.message_id());
                    give(&mut server, now, CLIENT, &received);
                }
            }
        }
    }
    assert!(numbers.len() >= 3 * 8 && numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

/// Both ends and the network between them, with the losses of a seed.
struct World {
    client: Endpoint,
    server: Endpoint,
    now: Duration,
    seed: u64,
    /// Of 16 datagrams, how many are lost.
    losses: u64,
    /// When it arrives, whether at the server, and what.
    network: Vec<(Duration, bool, Vec<u8>)>,
    asked: Vec<CoapMessage>,
}

impl World {
    fn new(seed: u64, losses: u64) -> Self {
        let (client, server) = (endpoint(seed), endpoint(!seed));
        let (network, asked) = (Vec::new(), Vec::new());
        Self { client, server, now: Duration::ZERO, seed, losses, network, asked }
    }

    fn draw(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.seed >> 33
    }

    /// Puts a datagram into the network: lost, or late, or twice.
    fn carry(&mut self, to_server: bool, octets: &[u8]) {
        let copies = if self.draw().is_multiple_of(8) && self.losses > 0 { 2 } else { 1 };
        for _ in 0..copies {
            let late = Duration::from_millis(self.draw() % 400);
            if self.draw() % 16 >= self.losses {
                self.network.push((self.now + late, to_server, octets.to_vec()));
            }
        }
    }

    /// Has all requests asked at once and says what became of each.
    fn run(
        &mut self,
        requests: Vec<CoapMessage>,
        serve: impl Fn(&CoapMessage) -> CoapMessage,
    ) -> Vec<Result<CoapMessage, Failure>> {
        let mut answers = vec![None; requests.len()];
        for (number, message) in (0..).zip(requests) {
            let to = address(SERVER);
            self.client.handle(self.now, Input::Request { id: RequestId(number), to, message });
        }
        for _ in 0..100_000 {
            while let Some(output) = self.client.poll_output() {
                match output {
                    Output::Send { octets, .. } => self.carry(true, &octets),
                    Output::Answered { id, answer } => {
                        let place = &mut answers[usize::try_from(id.0).unwrap()];
                        assert!(place.replace(answer).is_none(), "answered twice");
                    }
                    other => panic!("{other:?}"),
                }
            }
            while let Some(output) = self.server.poll_output() {
                match output {
                    Output::Send { octets, .. } => self.carry(false, &octets),
                    Output::Asked { id, message, .. } => {
                        let answer = serve(&message);
                        self.asked.push(message);
                        self.server.handle(self.now, Input::Respond { id, message: answer });
                    }
                    other => panic!("{other:?}"),
                }
            }
            if answers.iter().all(Option::is_some) {
                break;
            }
            self.step();
        }
        answers.into_iter().map(|answer| answer.expect("answered or given up")).collect()
    }

    fn step(&mut self) {
        let next = self.network.iter().map(|(at, ..)| *at).min();
        let timers = [next, self.client.poll_timeout(), self.server.poll_timeout()];
        self.now = timers.into_iter().flatten().min().expect("something is due").max(self.now);
        if let Some(at) = self.network.iter().position(|(at, ..)| *at <= self.now) {
            let (_, to_server, octets) = self.network.swap_remove(at);
            let (end, from) =
                if to_server { (&mut self.server, CLIENT) } else { (&mut self.client, SERVER) };
            give(end, self.now, from, &octets);
        } else {
            self.client.handle(self.now, Input::Tick);
            self.server.handle(self.now, Input::Tick);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is lost, repeated or overtaken: a request is handed on at most once, an answer is
    /// that of its request, whole, and no request is left without an end.
    #[test]
    fn requests_are_served_at_most_once_and_answers_are_their_own(
        seed in any::<u64>(),
        losses in 0_u64..8,
        sizes in proptest::collection::vec((0_usize..5_000, 0_usize..5_000), 1..6),
    ) {
        let mut world = World::new(seed, losses);
        let body = |name: usize, length: usize| -> Vec<u8> {
            (0..length).map(|at| u8::try_from((at * 31 + name) % 251).unwrap()).collect()
        };
        let requests: Vec<CoapMessage> = sizes
            .iter()
            .enumerate()
            .map(|(name, (up, _))| request(Code::POST, &name.to_string(), body(name, *up)))
            .collect();
        let answers = world.run(requests.clone(), |asked| {
            let name: usize = asked.text(OptionNumber::URI_PATH).unwrap().parse().unwrap();
            let mut answer = CoapMessage { payload: body(name + 7, sizes[name].1), ..CoapMessage::new(Code::CHANGED) };
            answer.put_uint(OptionNumber::CONTENT_FORMAT, ContentFormat::CBOR.0.into());
            answer
        });
        for (number, request) in requests.iter().enumerate() {
            let times = world.asked.iter().filter(|asked| *asked == request).count();
            prop_assert!(times <= 1, "{number} was asked {times} times");
            if let Ok(answer) = &answers[number] {
                prop_assert_eq!(times, 1);
                prop_assert_eq!(answer.code, Code::CHANGED);
                prop_assert!(answer.payload == body(number + 7, sizes[number].1));
            } else {
                prop_assert!(losses > 0, "{:?}", &answers[number]);
            }
        }
        let known: Vec<&CoapMessage> = requests.iter().collect();
        prop_assert!(world.asked.iter().all(|asked| known.contains(&asked)));
    }

    /// Octets of any kind are survived, and nothing is left over for ever.
    #[test]
    fn noise_is_survived(
        datagrams in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..40),
    ) {
        let mut server = endpoint(3);
        for (number, octets) in (0..).zip(&datagrams) {
            give(&mut server, seconds(number), CLIENT, octets);
            let (_, rest) = drain(&mut server);
            for output in rest {
                if let Output::Asked { id, .. } = output {
                    server.handle(seconds(number), Input::Respond { id, message: CoapMessage::new(Code::CONTENT) });
                }
            }
        }
        for _ in 0..1_000 {
            let Some(due) = server.poll_timeout() else { break };
            server.handle(due, Input::Tick);
            drain(&mut server);
        }
        prop_assert_eq!(server.poll_timeout(), None);
    }
}

/// Registers an observer, with its number as token; returns it if that is granted.
fn observe(server: &mut Endpoint, from: &str, number: u16) -> Option<AskId> {
    let mut message = request(Code::GET, "x", Vec::new());
    message.put_uint(OptionNumber::OBSERVE, 0);
    let token = number.to_be_bytes();
    let head = Head { message_type: MessageType::CONFIRMABLE, id: number, token: &token };
    let now = server.now;
    give(server, now, from, &message.write(head, &[], &[]).unwrap());
    let (_, asked) = drain(server);
    let asked = asked.iter().find_map(|output| match output {
        Output::Asked { id, .. } => Some(*id),
        _ => None,
    });
    let id = asked.unwrap();
    server.handle(now, Input::Respond { id, message: told("registered") });
    let (sent, _) = drain(server);
    let answer = Datagram::parse(&sent[0]).unwrap();
    answer.uint(OptionNumber::OBSERVE).is_some().then_some(id)
}

fn told(text: &str) -> CoapMessage {
    let mut message = CoapMessage { payload: text.into(), ..CoapMessage::new(Code::CONTENT) };
    message.put(OptionNumber::OBSERVE, []);
    message
}

/// Has an observer acknowledge a notification.
fn confirm(server: &mut Endpoint, from: &str, id: AskId) {
    let now = server.now;
    server.handle(now, Input::Notify { id, message: told("new") });
    let (sent, _) = drain(server);
    give(server, now, from, &empty(MessageType::ACKNOWLEDGEMENT, id_of(&sent[0])));
    assert_eq!(drain(server).1, [Output::Acknowledged(id)]);
}

/// An ICMP error ends the observation whose notification it quotes, with the token at the least; one
/// that quotes anything else, to anybody else, or what was acknowledged already ends nothing.
#[test]
fn an_error_about_a_notification_ends_its_observation() {
    let mut server = endpoint(5);
    let id = observe(&mut server, CLIENT, 0x0102).unwrap();
    let now = server.now;
    server.handle(now, Input::Notify { id, message: told("new") });
    let (sent, _) = drain(&mut server);
    let notification = sent[0].clone();
    let undelivered = |server: &mut Endpoint, to: &str, quoted: &[u8]| {
        server.handle(now, Input::Undelivered { to: address(to), quoted });
        drain(server).1
    };
    let header = 4 + Datagram::parse(&notification).unwrap().token().len();
    let mut forged = notification.clone();
    forged[header - 1] ^= 1;
    let mut other = notification.clone();
    other[1] ^= 1;
    for (to, quoted) in [
        (SERVER, &notification[..]),
        (CLIENT, &[]),
        (CLIENT, &notification[..header - 1]),
        (CLIENT, &forged),
        (CLIENT, &other),
    ] {
        assert_eq!(undelivered(&mut server, to, quoted), [], "{to} {quoted:?}");
    }
    assert_eq!(undelivered(&mut server, CLIENT, &notification[..header]), [Output::Unobserved(id)]);
    assert_eq!(undelivered(&mut server, CLIENT, &notification), [], "a second one");
    assert_eq!(server.counters().observers_unreachable, 1);
    server.handle(seconds(200), Input::Tick);
    assert_eq!(drain(&mut server), (Vec::new(), Vec::new()), "nothing is sent again");
    let id = observe(&mut server, CLIENT, 2).unwrap();
    confirm(&mut server, CLIENT, id);
    assert_eq!(undelivered(&mut server, CLIENT, &notification), []);
}

/// Registrations in the name of others cost datagrams only: they take each other's places, and those
/// of nobody who was there.
#[test]
fn forged_observers_take_the_places_of_forged_ones() {
    let mut server = endpoint(5);
    let real = observe(&mut server, CLIENT, 1).unwrap();
    confirm(&mut server, CLIENT, real);
    let forged = |number: u16| format!("198.51.{}.{}:5683", number >> 8, number & 0xff);
    for number in 0..6_000 {
        let id = observe(&mut server, &forged(number), number).unwrap();
        server.handle(seconds(1), Input::Notify { id, message: told("new") });
    }
    drain(&mut server);
    assert_eq!(server.counters().observers_displaced, 6_000 - 256);
    // Nothing is retransmitted to those that have lost their places.
    let sent = server.counters().sent;
    server.handle(seconds(5), Input::Tick);
    let (again, ended) = drain(&mut server);
    assert_eq!((again.len(), ended), (256, Vec::new()));
    assert_eq!(server.counters().sent - sent, 256);
    // Whoever was there is told, and whoever comes has a place.
    confirm(&mut server, CLIENT, real);
    let new = observe(&mut server, SERVER, 1).unwrap();
    confirm(&mut server, SERVER, new);
    confirm(&mut server, CLIENT, real);
}

/// One address has its share, however many ports it sends from; its unanswered ones are the first to
/// go, and those that have acknowledged something stay.
#[test]
fn one_address_has_so_many_observers() {
    let mut server = endpoint(6);
    let at = |number: u16| format!("192.0.2.9:{}", 1_024 + number);
    let first: Vec<AskId> =
        (0..64).map(|number| observe(&mut server, &at(number), number).unwrap()).collect();
    for number in 64..70 {
        observe(&mut server, &at(number), number).unwrap();
        assert_eq!(server.counters().observers_displaced, u64::from(number) - 63);
    }
    // The first six are gone: they are sent nothing.
    server.handle(seconds(1), Input::Notify { id: first[5], message: told("new") });
    assert_eq!(drain(&mut server), (Vec::new(), Vec::new()));
    // Without one that can give way, it is full; for others it is not.
    let ids: Vec<(u16, AskId)> = (6..64).map(|at| (at, first[usize::from(at)])).collect();
    for (number, id) in ids {
        confirm(&mut server, &at(number), id);
    }
    for number in 70..76 {
        let id = observe(&mut server, &at(number), number).unwrap();
        confirm(&mut server, &at(number), id);
    }
    assert_eq!(observe(&mut server, &at(80), 80), None);
    assert_eq!(server.counters().observers_full, 1);
    assert!(observe(&mut server, CLIENT, 1).is_some());
}

/// An observer that was sent its notification again gives way before an older one that was sent
/// nothing yet, unless it has acknowledged an earlier notification.
#[test]
fn silent_observers_give_way_first() {
    let mut server = endpoint(7);
    let at = |number: u16| format!("192.0.2.9:{}", 1_024 + number);
    let ids: Vec<AskId> =
        (0..64).map(|number| observe(&mut server, &at(number), number).unwrap()).collect();
    confirm(&mut server, &at(10), ids[10]);
    for silent in [10, 40, 20] {
        server.handle(seconds(1), Input::Notify { id: ids[silent], message: told("new") });
    }
    drain(&mut server);
    // Each is retransmitted after 3 s at the latest (RFC 7252 §4.2).
    server.handle(seconds(5), Input::Tick);
    assert_eq!(drain(&mut server).0.len(), 3);
    for (number, displaced) in [(64, 20), (65, 40), (66, 0), (67, 1)] {
        let before = server.counters().observers_displaced;
        observe(&mut server, &at(number), number).unwrap();
        assert_eq!(server.counters().observers_displaced, before + 1);
        server.handle(seconds(5), Input::Notify { id: ids[displaced], message: told("newer") });
        assert_eq!(drain(&mut server), (Vec::new(), Vec::new()), "{displaced} has its place");
    }
    // One that answers late is silent no more.
    let late = ids[30];
    server.handle(seconds(6), Input::Notify { id: late, message: told("new") });
    let first = id_of(&drain(&mut server).0[0]);
    server.handle(seconds(10), Input::Tick);
    drain(&mut server);
    let acknowledgement = empty(MessageType::ACKNOWLEDGEMENT, first);
    give(&mut server, seconds(10), &at(30), &acknowledgement);
    drain(&mut server);
    observe(&mut server, &at(68), 68).unwrap();
    confirm(&mut server, &at(30), late);
}

/// The same where all unconfirmed observers together are too many.
#[test]
fn silent_observers_of_all_addresses_give_way_first() {
    let mut server = endpoint(8);
    let at = |number: u16| format!("198.51.{}.{}:5683", number >> 8, number & 0xff);
    let ids: Vec<AskId> =
        (0..256).map(|number| observe(&mut server, &at(number), number).unwrap()).collect();
    server.handle(seconds(1), Input::Notify { id: ids[200], message: told("new") });
    server.handle(seconds(5), Input::Tick);
    drain(&mut server);
    observe(&mut server, CLIENT, 1).unwrap();
    server.handle(seconds(5), Input::Notify { id: ids[200], message: told("new") });
    assert_eq!(drain(&mut server), (Vec::new(), Vec::new()), "its place is taken");
    confirm(&mut server, &at(0), ids[0]);
}
