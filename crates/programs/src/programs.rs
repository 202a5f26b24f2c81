//! The programs of a description, as a part of its gateway.

use crate::conversation;
use crate::error::ProgramError;
use crate::settings::ProgramSettings;
use crate::stack_network::{StackNetwork, stack_findings};
use gatewright_config::{self as config, AttachMessages, Config, MessageHandler};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_gateway::{
    ConversationAnswer, GatewayPrograms, Links, MessageCounting, MessageCounts, MessageRecord,
    MessageRecords, MessageTraceRequest, beside, read_file,
};
use gatewright_lang::{
    Import,
    ir::{Program, SessionKey},
};
use gatewright_part::{
    AlarmStatus, Change, ComponentError, EventSink, HandledRequests, LogEvent, LogLevel, Part,
    PartStatus, Sojourn, Staged, Unable,
};
use gatewright_planes::Planes;
use gatewright_runner::{
    Direction, Does, Listening, LostPeer, Matching, PeerChange, PeerSink, PeerState, Piece,
    PieceSink, Post, PostCounters, PostError, Recording, RequestRate, RunReport, Runner,
    RunnerError, RunnerOptions,
};
use gatewright_stack::Side;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, mem, thread};

/// The name of the part.
const PART: &str = "programs";
/// How long requests may continue when the gateway ends or their program is removed.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Running programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// The links on which roles may use the gateway's own stack.
    links: Links,
    running: Arc<Mutex<Vec<RunningProgram>>>,
    /// Their last report, for status requests while they are exchanged.
    told: Arc<Mutex<PartStatus>>,
    seed: u64,
    log: EventSink,
}

/// A program as the description sets it.
#[derive(Clone, Debug)]
struct ConfiguredProgram {
    file: String,
    /// Addresses of its roles, which override the program's own.
    at: Vec<(String, String)>,
    /// Roles that use sockets of the gateway's own stack.
    stack: Vec<String>,
    /// The values of its parameters.
    settings: ProgramSettings,
    /// Its text and those that it uses, each with its file.
    texts: Vec<(String, String)>,
    program: Arc<Program>,
}

#[derive(Debug)]
struct RunningProgram {
    meant: ConfiguredProgram,
    runner: Runner<StackNetwork>,
}

/// The program of a recorded conversation.
#[derive(Debug)]
pub(crate) struct RecordedProgram {
    /// Its text and those that it uses, each with its file; its own is the first.
    pub(crate) texts: Vec<(String, String)>,
    /// The program, with its parameters.
    pub(crate) program: Arc<Program>,
}

/// The state of a program after an exchange.
#[derive(Debug)]
enum Was {
    /// It, or its replacement, runs at this place of the list.
    At(usize, ConfiguredProgram),
    /// It has been removed from the list.
    Out(RemovedProgram),
}

/// A program that was removed from the list. When dropped, it takes no more requests and lets the
/// running ones end.
#[derive(Debug)]
struct RemovedProgram(Option<Box<RunningProgram>>);

impl Programs {
    /// Starts all of them, or none.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] names the file.
    pub(crate) fn start(
        links: &Links,
        config: &Config,
        seed: u64,
        log: EventSink,
    ) -> Result<Self, ProgramError> {
        let links = links.clone();
        let this = Self { links, running: Arc::default(), told: Arc::default(), seed, log };
        for meant in ConfiguredProgram::read_all(config).map_err(ProgramError::Refused)? {
            let file = meant.file.clone();
            let running = this.begin(meant).map_err(|source| ProgramError::Run { file, source })?;
            this.lock().push(running);
        }
        Ok(this)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RunningProgram>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, meant: ConfiguredProgram) -> Result<RunningProgram, RunnerError> {
        let addresses = meant.at.clone();
        // The stack has one socket at an address, so one loop reads it.
        let loops = usize::from(!meant.stack.is_empty());
        let log = self.log.clone();
        let peers = Some(PeerSink::new(move |change| log.log(peer_event(&change))));
        let options =
            RunnerOptions { loops, addresses, seed: self.seed, peers, ..RunnerOptions::default() };
        let network = StackNetwork::new(self.links.planes(), meant.stack.clone());
        let runner = Runner::start_over(network, &meant.program, options)?;
        Ok(RunningProgram { meant, runner })
    }

    /// Their current report; nothing if there are none. During an exchange, which may wait for
    /// their loops, it is their last report.
    fn told(&self) -> PartStatus {
        let last = || self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match self.running.try_lock() {
            Ok(running) => {
                let told = told(&running);
                last().clone_from(&told);
                told
            }
            Err(_) => last().clone(),
        }
    }

    /// The programs of `wanted` that differ from the running ones, in file or text.
    fn differences(&self, wanted: &[config::Program]) -> Vec<Change> {
        let running = self.lock();
        let change = |file: &str, how: &str| Change::new(format!("program {file}"), how);
        let places = places(&running, wanted);
        let place = |at: usize| places.iter().position(|place| *place == Some(at));
        let after = |at| place(at).and_then(|place| wanted.get(place));
        let gone = running.iter().enumerate().filter(|(at, gone)| {
            after(*at).is_none_or(|after| after.file.value != gone.meant.file)
        });
        let gone = gone.map(|(_, gone)| change(&gone.meant.file, "removed"));
        let come = wanted.iter().zip(&places).filter_map(|(wanted, place)| {
            let known = place.and_then(|at| running.get(at));
            let how = match known.filter(|known| known.meant.file == wanted.file.value) {
                None => "added",
                Some(known) if known.meant.is_still(wanted) => return None,
                Some(_) => "changed",
            };
            Some(change(&wanted.file.value, how))
        });
        gone.chain(come).collect()
    }

    /// Makes exactly the programs of `config` run. A program that differs takes over the waiting clients of
    /// addresses that both have; sessions end in the program in which they began. Returns how to
    /// undo it. When that is dropped, programs that it does not name take no more requests.
    ///
    /// # Errors
    ///
    /// The program that cannot run; then everything runs as it did.
    fn exchange(&self, config: &Config) -> Result<StagedPrograms, String> {
        let wanted = &config.programs;
        let meant = ConfiguredProgram::read_all(config)?;
        let mut running = self.lock();
        let places = places(&running, wanted);
        let mut before: Vec<_> = running.drain(..).map(Some).collect();
        let mut was: Vec<_> = before.iter().map(|_| None).collect();
        let (mut refused, mut told) = (None, Vec::new());
        for (meant, place) in meant.into_iter().zip(places) {
            let file = meant.file.clone();
            let taken = place.and_then(|at| Some((before.get_mut(at)?.take()?, was.get_mut(at)?)));
            let became = match taken {
                None => self.begin(meant).map(|begun| running.push(begun)),
                Some((mut one, was)) => {
                    *was = Some(Was::At(running.len(), one.meant.clone()));
                    let became = one.become_as(meant, self.links.planes());
                    running.push(one);
                    became.map(|lost| told.extend(lost))
                }
            };
            if let Err(error) = became {
                refused = Some(format!("program {file}: {error}"));
                break;
            }
        }
        let out = |left: Option<RunningProgram>| {
            left.map(|left| Was::Out(RemovedProgram(Some(Box::new(left)))))
        };
        let was: Vec<_> =
            was.into_iter().zip(before).filter_map(|(was, left)| was.or(out(left))).collect();
        if let Some(why) = refused {
            restore(&mut running, was, self.links.planes());
            return Err(why);
        }
        Ok(StagedPrograms { programs: self.clone(), was, told })
    }
}

impl Programs {
    /// Begins to record the next conversation that reaches a handler of a program. Nothing is locked
    /// while it is waited for.
    pub(crate) fn record(
        &self,
        program: &str,
        handler: &str,
    ) -> Result<(Recording, RecordedProgram), String> {
        let running = self.lock();
        let RunningProgram { meant, runner } = named(&running, program)?;
        let recording = runner.record(handler).map_err(|error| error.to_string())?;
        let (texts, program) = (meant.texts.clone(), Arc::clone(&meant.program));
        Ok((recording, RecordedProgram { texts, program }))
    }
}

impl GatewayPrograms for Programs {
    fn notes(&self) -> Vec<String> {
        let running = self.lock();
        let listening = running.iter().flat_map(|RunningProgram { meant, runner }| {
            let name = &meant.program.name;
            let at = runner.listening().into_iter();
            let at = at.map(move |it| format!("{name}: {}", meant.listens(&it)));
            at.chain(runner.note().map(|note| format!("warning: {name}: {note}")))
        });
        listening.collect()
    }

    fn check(&self, attach: &AttachMessages) -> Result<(), String> {
        let running = self.lock();
        let runner = runner_of(&running, attach)?;
        post(0, attach).check(runner.program()).map_err(|error| error.to_string())
    }

    fn attach(
        &self,
        id: u32,
        attach: &AttachMessages,
        records: Option<MessageRecords>,
    ) -> Result<MessageCounting, String> {
        let running = self.lock();
        let runner = runner_of(&running, attach)?;
        let post = post(id, attach);
        let counted = Arc::clone(&post.counted);
        let sink = records.map(|records| PieceSink::new(move |piece| records.give(record(piece))));
        runner.attach(post, sink.as_ref()).map_err(|error: PostError| error.to_string())?;
        Ok(Box::new(move || counts(&counted)))
    }

    fn detach(&self, id: u32) {
        self.lock().iter().for_each(|one| one.runner.detach(id));
    }

    fn trace(
        &self,
        request: &MessageTraceRequest,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<ConversationAnswer, String> {
        conversation::trace(self, request, is_wanted)
    }
}

impl Part for Programs {
    fn name(&self) -> &'static str {
        PART
    }

    fn differences(&self, _: &Config, new: &Config) -> Vec<Change> {
        Self::differences(self, &new.programs)
    }

    fn stage(&self, _: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        Ok(Box::new(self.exchange(new)?))
    }

    fn tell(&self) -> PartStatus {
        self.told()
    }

    /// Takes no more requests, and lets the running ones end.
    fn stop(&self) {
        let running = mem::take(&mut *self.lock());
        for RunningProgram { runner, .. } in running {
            runner.stop(END_WITHIN);
        }
    }
}

/// Programs as they were before an exchange. When it is dropped, programs no longer in the list
/// take no more requests.
struct StagedPrograms {
    programs: Programs,
    was: Vec<Was>,
    /// What the exchange costs, for the answer.
    told: Vec<Change>,
}

impl Staged for StagedPrograms {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        Ok(self.told)
    }

    fn undo(self: Box<Self>) {
        restore(&mut self.programs.lock(), self.was, self.programs.links.planes());
    }
}

/// The current report of running programs.
fn told(running: &[RunningProgram]) -> PartStatus {
    if running.is_empty() {
        return PartStatus::default();
    }
    let mut sum = RunReport::default();
    let (mut words, mut handlers, mut sojourns) = (Vec::new(), Vec::new(), Vec::new());
    let mut lost_peers = 0;
    for RunningProgram { meant, runner } in running {
        let name = &meant.program.name;
        let roles = runner.listening().into_iter();
        let roles = roles.map(|it| meant.listens(&it));
        let roles = roles.collect::<Vec<_>>().join(", ");
        words.push(("program", format!("{name} {roles}").trim_end().to_owned()));
        for LostPeer { role, address, cause } in runner.lost_peers() {
            words.push(("unreachable", format!("{name}: {role} at {address}: {cause}")));
            lost_peers += 1;
        }
        let report = runner.report();
        handlers.extend(report.handlers.iter().map(|(handler, of)| HandledRequests {
            program: name.clone(),
            handler: handler.clone(),
            started: of.started,
            finished: of.finished,
            failed: of.failed,
        }));
        sojourns.extend(report.handlers.iter().map(|(handler, of)| Sojourn {
            mode: "program",
            relay: Some(name.clone()),
            handler: Some(handler.clone()),
            times: of.times.clone(),
        }));
        sum.add(report);
    }
    let counters: BTreeMap<_, _> = sum.counters;
    PartStatus {
        words,
        gauges: vec![("connections", sum.connections)],
        alarms: vec![AlarmStatus {
            name: "peer-unreachable",
            raised: lost_peers,
            subjects: Vec::new(),
        }],
        counters: counters.into_iter().collect(),
        handlers,
        sojourns,
        ..PartStatus::default()
    }
}

/// The runner of the program to which something is to be attached.
fn runner_of<'run>(
    running: &'run [RunningProgram],
    attach: &AttachMessages,
) -> Result<&'run Runner<StackNetwork>, String> {
    Ok(&named(running, &attach.at.value.program)?.runner)
}

/// The running program of a name.
fn named<'run>(
    running: &'run [RunningProgram],
    name: &str,
) -> Result<&'run RunningProgram, String> {
    if running.is_empty() {
        return Err("no program runs here".to_owned());
    }
    let known = || running.iter().map(|one| one.meant.program.name.as_str());
    let found = running.iter().find(|one| one.meant.program.name == name);
    let missing =
        || format!("there is no program {name}: {}", known().collect::<Vec<_>>().join(", "));
    found.ok_or_else(missing)
}

/// Starts the programs of a description as a component of a gateway.
///
/// # Errors
///
/// [`ProgramError`] names the file.
pub fn component(
    links: &Links,
    config: &Config,
    seed: u64,
    log: EventSink,
) -> Result<Arc<dyn GatewayPrograms>, ComponentError> {
    Ok(Arc::new(Programs::start(links, config, seed, log)?))
}

/// The event of a server that is lost or back.
fn peer_event(change: &PeerChange) -> LogEvent {
    let PeerChange { program, role, address, state } = change;
    let event = match state {
        PeerState::Lost(cause) => {
            let text = format!("{change}; each message for it tries again");
            LogEvent::new(LogLevel::Warning, PART, "peer-lost", text).with("cause", cause)
        }
        PeerState::Back(after) => {
            LogEvent::new(LogLevel::Info, PART, "peer-back", change.to_string())
                .with("seconds", after.as_secs())
        }
    };
    event.with("program", program).with("role", role).with("address", address)
}

/// An attachment in the form that a machine takes.
pub fn post(id: u32, attach: &AttachMessages) -> Post {
    let does = match &attach.handler {
        MessageHandler::Capture { .. } => Does::Capture,
        MessageHandler::Drop { matching } => {
            let source = matching.source.map(|source| (source.address(), source.length()));
            Does::Drop(Matching { source, fields: matching.fields.clone() })
        }
        MessageHandler::RateLimit { rate, burst } => {
            Does::RateLimit(Arc::new(RequestRate::new(*rate, *burst)))
        }
        _ => Does::Count,
    };
    let way = match attach.side {
        Side::Receive => Direction::Receive,
        Side::Transmit => Direction::Transmit,
    };
    let handler = attach.at.value.handler.clone();
    Post { id, handler, way, does, counted: Arc::default() }
}

fn record(piece: Piece) -> MessageRecord {
    let Piece { peer, local, tcp, way, octets, missing, .. } = piece;
    MessageRecord { peer, local, tcp, inbound: way == Direction::Receive, octets, missing }
}

fn counts(counted: &PostCounters) -> MessageCounts {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    MessageCounts {
        messages: of(&counted.messages),
        octets: of(&counted.octets),
        refused: of(&counted.refused),
        missed: of(&counted.missed),
    }
}

/// The running program that becomes each of `wanted`: the same file at the same addresses, then the
/// same file, then any that is left, whose addresses may be the same.
fn places(running: &[RunningProgram], wanted: &[config::Program]) -> Vec<Option<usize>> {
    let same: [fn(&ConfiguredProgram, &config::Program) -> bool; 3] = [
        |known, wanted| {
            known.file == wanted.file.value && known.at == wanted.at && known.loops_as(wanted)
        },
        |known, wanted| known.file == wanted.file.value && known.loops_as(wanted),
        |known, wanted| known.loops_as(wanted),
    ];
    let mut places = vec![None; wanted.len()];
    for same in same {
        for (at, wanted) in wanted.iter().enumerate() {
            let free = |place: &usize| !places.contains(&Some(*place));
            let fits =
                |place: &usize| running.get(*place).is_some_and(|it| same(&it.meant, wanted));
            let found = (0..running.len()).find(|place| free(place) && fits(place));
            if let Some(place @ None) = places.get_mut(at) {
                *place = found;
            }
        }
    }
    places
}

/// Restores the programs from before, and ends those started since.
fn restore(running: &mut Vec<RunningProgram>, was: Vec<Was>, planes: &Planes) {
    let mut now: Vec<_> = running.drain(..).map(Some).collect();
    running.extend(was.into_iter().filter_map(|was| match was {
        Was::Out(mut out) => out.0.take().map(|running| *running),
        Was::At(at, meant) => {
            let mut one = now.get_mut(at)?.take()?;
            // What was its own a moment ago it can have again.
            let _had = one.become_as(meant, planes);
            Some(one)
        }
    }));
}

/// Refuses programs, each with its file and its name, of which two have the same name.
fn check_names<'a>(programs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(), String> {
    let mut files = BTreeMap::new();
    for (file, name) in programs {
        if let Some(first) = files.insert(name, file) {
            return Err(both_named((first, file), name));
        }
    }
    Ok(())
}

/// Why two programs are refused that status, metrics and positions of messages could not tell apart.
pub(crate) fn both_named((first, second): (&str, &str), name: &str) -> String {
    format!("the programs {first} and {second} have the same name, `gateway {name}`")
}

impl ConfiguredProgram {
    /// Compiles the programs of a description.
    fn read_all(config: &Config) -> Result<Vec<Self>, String> {
        let read = |program| Self::read(program, config);
        let all = config.programs.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        check_names(all.iter().map(|it| (it.file.as_str(), it.program.name.as_str())))?;
        Ok(all)
    }

    /// Compiles the file of a program of the description `config`.
    fn read(program: &config::Program, config: &Config) -> Result<Self, String> {
        let file = program.file.value.clone();
        let text =
            read_file(Path::new(&file)).map_err(|error| format!("cannot read {file}: {error}"))?;
        let mut sources = Sources::of(file.clone(), text);
        let compiled =
            gatewright_lang::compile_importing(&mut sources, SourceId::default(), import);
        let at = program.at.clone();
        if let Some((_, strange)) = strangers(compiled.program.as_ref(), &at).next() {
            return Err(format!("{file}: {strange}"));
        }
        let Some(mut compiled_program) = compiled.program else {
            let first = compiled.diagnostics.first();
            let first = first.map_or_else(String::new, |first| format!(": {}", first.message));
            return Err(format!("{file} is refused{first}"));
        };
        if let Some((_, why)) = stack_findings(&compiled_program, program, config).first() {
            return Err(format!("{file}: {why}"));
        }
        let stack = program.stack.iter().map(|role| role.value.clone()).collect();
        let settings = ProgramSettings::of(program);
        settings.apply(&mut compiled_program).map_err(|why| format!("{file}: {why}"))?;
        let program = compiled_program;
        let texts = sources.iter().map(|(_, it)| (it.name().to_owned(), it.text().to_owned()));
        Ok(Self { texts: texts.collect(), file, at, stack, settings, program: Arc::new(program) })
    }

    /// A role and where it listens.
    fn listens(&self, at: &Listening) -> String {
        let over = if self.stack.contains(&at.role) { " (own stack)" } else { "" };
        format!("{} at {}{over}", at.role, at.address)
    }

    /// Whether `wanted` runs by the same number of loops: programs that use the stack by one.
    fn loops_as(&self, wanted: &config::Program) -> bool {
        self.stack.is_empty() == wanted.stack.is_empty()
    }

    /// Whether the parameters equal those of `wanted`, in variables and files, too.
    fn is_set_as(&self, wanted: &config::Program) -> bool {
        let settings = ProgramSettings::of(wanted);
        let mut program = Program::clone(&self.program);
        self.settings == settings
            && settings.apply(&mut program).is_ok()
            && program.parameters == self.program.parameters
    }

    /// Whether `wanted` has the same meaning now, in the texts of its files.
    fn is_still(&self, wanted: &config::Program) -> bool {
        let same_text = |(file, text): &(String, String)| {
            read_file(Path::new(file)).is_ok_and(|found| found == *text)
        };
        self.file == wanted.file.value
            && self.at == wanted.at
            && self.stack.iter().eq(wanted.stack.iter().map(|role| &role.value))
            && self.is_set_as(wanted)
            && self.texts.iter().all(same_text)
    }
}

impl RunningProgram {
    /// Makes a different program take over; the same program stays, with its sessions. Returns the
    /// sessions by a key that the new program does not have.
    fn become_as(
        &mut self,
        meant: ConfiguredProgram,
        planes: &Planes,
    ) -> Result<Option<Change>, RunnerError> {
        let same = |meant: &ConfiguredProgram| {
            let settings = (meant.at.clone(), meant.stack.clone());
            (settings, meant.texts.clone(), meant.program.parameters.clone())
        };
        let mut lost = None;
        if same(&self.meant) != same(&meant) {
            let is_keyed = self
                .meant
                .program
                .session
                .as_ref()
                .is_some_and(|session| !matches!(session.key, SessionKey::Connection));
            let keyed = if is_keyed { self.runner.report().keyed_sessions } else { 0 };
            lost = (keyed > 0).then(|| sessions_lost(&self.meant.file, keyed));
            let network = self.runner.network().renewed(planes, meant.stack.clone());
            self.runner.replace_over(network, &meant.program, meant.at.clone())?;
        }
        self.meant = meant;
        Ok(lost)
    }
}

/// The change of a program whose replacement does not have its sessions.
fn sessions_lost(file: &str, sessions: u64) -> Change {
    let how = format!(
        "{sessions} sessions are not taken over, as the program or its settings have changed: \
         their next requests begin new ones"
    );
    Change::new(format!("program {file}"), how)
}

impl Drop for RemovedProgram {
    fn drop(&mut self) {
        let Some(running) = self.0.take() else { return };
        let RunningProgram { meant, runner } = *running;
        // Whoever exchanges programs does not wait for sessions; without a thread they are cut off.
        let name = format!("end {}", meant.program.name);
        let _cut = thread::Builder::new().name(name).spawn(move || runner.stop(END_WITHIN));
    }
}

/// Findings about addresses for unknown roles, each with the role's name.
pub fn strangers<'a>(
    program: Option<&'a Program>,
    at: &'a [(String, String)],
) -> impl Iterator<Item = (&'a str, String)> {
    let roles = program.map(|program| &program.roles);
    let strange = at.iter().filter(move |(name, _)| {
        roles.is_some_and(|roles| roles.iter().all(|role| role.name != *name))
    });
    let known = program.map_or_else(String::new, |program| {
        let names: Vec<_> = program.roles.iter().map(|role| role.name.as_str()).collect();
        names.join(", ")
    });
    strange.map(move |(name, _)| {
        (name.as_str(), format!("the program has no role `{name}`; its roles are: {known}"))
    })
}

/// The file and text that the program `from` imports by `use "path"`.
///
/// Only files that end in `.gate` are read, also behind symbolic links: findings show excerpts, so
/// that the author of a program would otherwise read any file that its checker may read.
pub fn import(from: &str, path: &str) -> Import {
    let file = beside(from, path);
    match read_program(Path::new(&file)) {
        Ok(text) => Import::Found(file, text),
        Err(error) => {
            let whole = std::path::absolute(&file).unwrap_or_else(|_| file.clone().into());
            let why = format!("looked for {}: {error}", whole.display());
            Import::Missing { why, others: programs_beside(&whole) }
        }
    }
}

fn read_program(file: &Path) -> io::Result<String> {
    if !is_program(file) || !is_program(&file.canonicalize()?) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "its name does not end in `.gate`"));
    }
    read_file(file)
}

fn is_program(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "gate")
}

/// Programs in the folder of `file`, up to a limit.
fn programs_beside(file: &Path) -> Vec<String> {
    let folder = file.parent().and_then(|folder| fs::read_dir(folder).ok());
    let names = folder.into_iter().flatten().take(FOLDER_MAX).filter_map(Result::ok);
    names
        .map(|entry| PathBuf::from(entry.file_name()))
        .filter(|name| is_program(name))
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Maximum entries of a folder that are searched for a misspelt name.
const FOLDER_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    /// What has not been through `check`, as an embedder's description, is refused all the same.
    #[test]
    fn programs_have_names_of_their_own() {
        let check =
            |programs: &[(&'static str, &'static str)]| check_names(programs.iter().copied());
        assert_eq!(check(&[("a.gate", "relay"), ("b.gate", "bridge")]), Ok(()));
        let why = "the programs a.gate and c.gate have the same name, `gateway relay`".to_owned();
        let three = [("a.gate", "relay"), ("b.gate", "bridge"), ("c.gate", "relay")];
        assert_eq!(check(&three), Err(why));
    }
}
