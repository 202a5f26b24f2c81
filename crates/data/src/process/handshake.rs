//! What two processes say when they meet, and the descriptors that they share.

use super::passing;
use crate::{
    error::DataError,
    plain::{Plain, plain_enum, plain_struct, taken},
    port::HandlerOrder,
    setup::DataSetup,
    waker::Waker,
};
use gatewright_link::{DeviceFacts, Division, ForwardingMaps, LinkInfo};
use gatewright_packet::LinkIndex;
use gatewright_stack::{FoundApplication, Host};
use gatewright_tables::{DataTables, TablesWriter, WakeFlags, Wakers};
use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

/// The version of what the processes say to each other, and of the tables that they share. Messages
/// of another version are not read.
pub fn process_version() -> String {
    // Of any size: the number of routes is compared by itself.
    let tables = Host::capacities(1).signature().unwrap_or_default();
    format!("{PROTOCOL}, tables {tables:016x}")
}

/// Changes with the meaning of any message, and with what both planes know of the plans of reports.
const PROTOCOL: u32 = 13;

/// The order to start a data plane.
pub(super) struct StartOrder {
    /// As [`process_version`].
    pub(super) version: String,
    /// The abstract name where a later control plane finds it; empty if none shall.
    pub(super) name: String,
    /// Maximum routes of each family, by which the region's layout is known.
    pub(super) routes_max: u32,
    /// Whether the region has had no data plane yet.
    pub(super) fresh: bool,
    /// A virtual time to begin with; real time if there is none.
    pub(super) clock: Option<Duration>,
    /// Whether links are shared with the kernel, which is divided by the shared table.
    pub(super) divided: bool,
    pub(super) setup: DataSetup,
    pub(super) restored: Restored,
    /// Why drivers have no maps to forward by, if they have none.
    pub(super) no_maps: String,
    /// Messages with descriptors that follow: the maps, and devices to go on with.
    pub(super) passed: usize,
}

plain_struct!(StartOrder {
    version,
    name,
    routes_max,
    fresh,
    clock,
    divided,
    setup,
    restored,
    no_maps,
    passed,
});

/// A message between two planes that have met, with descriptors.
pub(super) enum PeerMessage {
    /// The data plane ends.
    Stop,
    /// The maps of this shape by which drivers forward, from control.
    Maps(Vec<u32>),
    /// The data plane's answer to them: which drivers do not forward by them, and why; empty if all do.
    MapsTaken(String),
    /// What a later control plane is to be given, from control, in place of what was there.
    Memo(String),
    /// A device that a link has open: from the data plane to be held, from control to be gone on with.
    Device(DeviceFacts),
}

plain_enum!(PeerMessage {
    0 => Stop,
    1 => Maps(shape),
    2 => MapsTaken(refused),
    3 => Device(facts),
    4 => Memo(text),
});

impl PeerMessage {
    /// The message that passes maps.
    pub(super) fn maps(maps: &ForwardingMaps) -> Self {
        Self::Maps(maps.shape().to_vec())
    }
}

/// The maps of a message that passed them.
pub(super) fn received_maps(shape: &[u32], descriptors: Vec<OwnedFd>) -> Option<ForwardingMaps> {
    ForwardingMaps::received(descriptors, shape.try_into().ok()?)
}

/// Sends a message to the other plane.
pub(super) fn tell(
    stream: &UnixStream,
    message: &PeerMessage,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    passing::send(stream, &message.octets(), descriptors)
}

/// Receives a message of the other plane.
pub(super) fn hear_peer(stream: &UnixStream) -> io::Result<(PeerMessage, Vec<OwnedFd>)> {
    let (octets, descriptors) = passing::receive(stream)?;
    Ok((PeerMessage::of(&octets).ok_or_else(other_version)?, descriptors))
}

/// State that a data plane gets from the one before it.
#[derive(Clone, Debug, Default)]
pub(super) struct Restored {
    /// The handlers in order, all of them new.
    pub(super) standing: Vec<HandlerOrder>,
    /// Links that a command has taken down.
    pub(super) down: Vec<LinkIndex>,
    /// Whether [`PortRequest::Begin`](crate::PortRequest::Begin) was given.
    pub(super) begun: bool,
}

plain_struct!(Restored { standing, down, begun });

/// The properties of links that are open.
pub type OpenLinks = Vec<(LinkIndex, LinkInfo)>;

/// A data plane that has started.
pub(super) struct StartedPlane {
    pub(super) links: OpenLinks,
    /// Why it may open all files of its user, if it may.
    pub(super) all_files: Option<String>,
}

plain_struct!(StartedPlane { links, all_files });

/// A data plane's answer to its order.
pub(super) type StartReport = Result<StartedPlane, DataError>;

/// A control plane's first message to a data plane that runs.
pub(super) struct AdoptOrder {
    /// As [`process_version`].
    pub(super) version: String,
}

plain_struct!(AdoptOrder { version });

/// A running data plane's answer to a control plane.
pub(super) struct AdoptReport {
    pub(super) process: u32,
    pub(super) routes_max: u32,
    pub(super) setup: DataSetup,
    pub(super) links: OpenLinks,
    pub(super) standing: Vec<HandlerOrder>,
    /// Links that a command has taken down.
    pub(super) down: Vec<LinkIndex>,
    pub(super) applications: Vec<FoundApplication>,
    /// As in the order.
    pub(super) divided: bool,
    /// As in [`StartedPlane`].
    pub(super) all_files: Option<String>,
    /// What the control plane before wanted this one to have; empty if nothing.
    pub(super) memo: String,
}

plain_struct!(AdoptReport {
    process,
    routes_max,
    setup,
    links,
    standing,
    down,
    applications,
    divided,
    all_files,
    memo,
});

/// The descriptors that both processes have: the region, and the eventfds of all who sleep.
pub(super) struct Shared {
    pub(super) region: OwnedFd,
    /// The table that divides shared links with the kernel; the region again if there is none.
    pub(super) division: OwnedFd,
    event_reader: OwnedFd,
    server: OwnedFd,
    answer_reader: OwnedFd,
    workers: Vec<OwnedFd>,
}

/// All who sleep, with their flags and eventfds.
pub(super) struct Sleepers {
    pub(super) event_reader: Waker,
    pub(super) server: Waker,
    pub(super) answer_reader: Waker,
    pub(super) workers: Vec<Waker>,
}

impl Shared {
    /// The descriptors of `sleepers` and of the region.
    pub(super) fn of(
        region: BorrowedFd<'_>,
        division: Option<&Division>,
        sleepers: &Sleepers,
    ) -> io::Result<Self> {
        let copy = |waker: &Waker| waker.descriptor().try_clone_to_owned();
        Ok(Self {
            region: region.try_clone_to_owned()?,
            division: division.map_or(region, AsFd::as_fd).try_clone_to_owned()?,
            event_reader: copy(&sleepers.event_reader)?,
            server: copy(&sleepers.server)?,
            answer_reader: copy(&sleepers.answer_reader)?,
            workers: sleepers.workers.iter().map(copy).collect::<Result<_, _>>()?,
        })
    }

    /// The table that divides shared links with the kernel, which has room for the prefixes of both
    /// families' routes.
    pub(super) fn divided(&self, divided: bool, routes_max: u32) -> io::Result<Option<Division>> {
        let received = || self.division.try_clone();
        let division = divided.then(received).transpose()?;
        Ok(division.map(|table| Division::received(table, Division::prefixes_max(routes_max))))
    }

    /// Those that came with a message.
    fn received(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut all = descriptors.into_iter();
        let [region, division, event_reader] = [all.next()?, all.next()?, all.next()?];
        let [server, answer_reader] = [all.next()?, all.next()?];
        let workers = all.collect();
        Some(Self { region, division, event_reader, server, answer_reader, workers })
    }

    fn all(&self) -> Vec<BorrowedFd<'_>> {
        let first =
            [&self.region, &self.division, &self.event_reader, &self.server, &self.answer_reader];
        first.into_iter().chain(&self.workers).map(AsFd::as_fd).collect()
    }

    /// All who sleep, by the flags of the data plane's tables.
    pub(super) fn sleepers_of_data(&self, tables: &DataTables) -> io::Result<Sleepers> {
        let flags = [tables.event_reader(), tables.server(), tables.answer_reader()];
        self.sleepers(flags, &tables.wakers)
    }

    /// All who sleep, by the flags of the control plane's tables.
    pub(super) fn sleepers_of_control(&self, tables: &TablesWriter) -> io::Result<Sleepers> {
        let flags = [tables.event_reader(), tables.server(), tables.answer_reader()];
        self.sleepers(flags, &tables.wakers)
    }

    fn sleepers(&self, flags: [WakeFlags; 3], wakers: &Wakers) -> io::Result<Sleepers> {
        let [event_reader, server, answer_reader] = flags;
        let waker = |event: &OwnedFd, flags| Ok(Waker::attach(event.try_clone()?, flags));
        let worker = |(worker, event)| waker(event, wakers.of(worker).unwrap_or_default());
        Ok(Sleepers {
            event_reader: waker(&self.event_reader, event_reader)?,
            server: waker(&self.server, server)?,
            answer_reader: waker(&self.answer_reader, answer_reader)?,
            workers: self.workers.iter().enumerate().map(worker).collect::<io::Result<_>>()?,
        })
    }
}

/// Sends a message, with the shared descriptors if there are any.
pub(super) fn say(
    stream: &UnixStream,
    message: &impl Plain,
    shared: Option<&Shared>,
) -> io::Result<()> {
    passing::send(stream, &message.octets(), &shared.map(Shared::all).unwrap_or_default())
}

/// Receives a message without descriptors.
pub(super) fn hear<T: Plain>(stream: &UnixStream) -> io::Result<T> {
    let (octets, _) = passing::receive(stream)?;
    T::of(&octets).ok_or_else(other_version)
}

/// Receives a message with the shared descriptors.
pub(super) fn hear_shared<T: Plain>(stream: &UnixStream) -> io::Result<(T, Option<Shared>)> {
    let (octets, descriptors) = passing::receive(stream)?;
    Ok((T::of(&octets).ok_or_else(other_version)?, Shared::received(descriptors)))
}

fn other_version() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other process is of another version")
}
