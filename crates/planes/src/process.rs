//! Start of a gateway with a data-plane process, or adoption of a running one.

use crate::{
    planes::PlanesError,
    setup::{ProcessSetup, Setup},
    start::{Begun, seeds},
};
use gatewright_data::{
    DataError, DataPlane, DataProcess, DataSetup, FoundPlane, Port, PortAnswer, PortRequest,
    ProcessCommand, ProcessEvent, ProcessStarted, Reopen,
};
use gatewright_link::LinkInfo;
use gatewright_packet::LinkIndex;
use gatewright_part::{EventSink, LogEvent, LogLevel};
use gatewright_stack::{AttachmentId, Host};
use std::time::Duration;

/// Maximum time to open a link on another device.
const REOPENED_WITHIN: Duration = Duration::from_mins(1);

/// Starts the data plane's process, or adopts the one that runs under its name.
pub(crate) fn begin(
    setup: &Setup,
    process: &ProcessSetup,
    log: &EventSink,
) -> Result<Begun, PlanesError> {
    if let Some(shared) = setup.links.iter().find(|link| link.is_shared()) {
        return Err(PlanesError::SharedLink { name: shared.name.clone() });
    }
    let command = ProcessCommand {
        program: process.program.clone(),
        arguments: process.arguments.clone(),
        name: process.name.clone(),
        routes_max: setup.routes_max,
        clock: None,
    };
    let data = setup.data();
    let found = if process.name.is_empty() { None } else { FoundPlane::find(&process.name)? };
    if let Some(found) = found {
        return adopt(found, command, &data, log);
    }
    let mut host = Host::shared(setup.routes_max, seeds(setup.seed))?;
    let started = DataProcess::start(command, &data, &mut host, watch(log.clone()))?;
    Ok(begun(started, host, None))
}

fn begun(started: ProcessStarted, host: Host, adopted: Option<AttachmentId>) -> Begun {
    let ProcessStarted { process, plan, sockets, links, events } = started;
    Begun { plane: DataPlane::Process(process), host, plan, sockets, links, events, adopted }
}

/// Adopts a data plane that runs; links whose device differs are opened anew.
fn adopt(
    found: FoundPlane,
    command: ProcessCommand,
    data: &DataSetup,
    log: &EventSink,
) -> Result<Begun, PlanesError> {
    let (running, process) = (found.setup().clone(), found.process());
    if let Some(what) = unlike(&running, data, found.routes_max(), command.routes_max) {
        return Err(PlanesError::OtherDataPlane { process, what });
    }
    let next = found.next_id();
    let in_words = |error: &dyn std::error::Error| DataError::Refused {
        reason: format!("the data plane (process {process}) cannot be adopted: {error}"),
        exit_code: UNAVAILABLE,
    };
    let mut host =
        Host::adopt(found.tables(), command.routes_max).map_err(|error| in_words(&error))?;
    let mut started = DataProcess::adopt(found, command, &mut host, watch(log.clone()))?;
    let text = format!("the data plane went on without this process: it is adopted as {process}");
    log.log(event(LogLevel::Info, "data-plane-adopted", text).with("process", process));
    for (before, device) in running.links.iter().zip(&data.links) {
        if before != device {
            let order = Reopen { device: device.clone(), before: before.clone() };
            reopen(&started, &order).map(|info| replace(&mut started.links, &order, info))?;
        }
    }
    Ok(begun(started, host, Some(next)))
}

/// `EX_UNAVAILABLE` of `sysexits.h`.
const UNAVAILABLE: u8 = 69;

/// Differences that prevent the adoption of a running data plane.
fn unlike(
    running: &DataSetup,
    wanted: &DataSetup,
    running_routes: u32,
    routes: u32,
) -> Option<&'static str> {
    let framings = |setup: &DataSetup| -> Vec<_> {
        setup.links.iter().map(|link| link.device.in_suite()).collect()
    };
    match () {
        () if running.workers != wanted.workers => Some("another number of data cores"),
        () if running_routes != routes => Some("another [gateway] routes_max"),
        () if running.neighbours != wanted.neighbours => Some("another [gateway] neighbours_max"),
        () if framings(running) != framings(wanted) => Some("other link layers"),
        () => None,
    }
}

fn reopen(started: &ProcessStarted, order: &Reopen) -> Result<LinkInfo, PlanesError> {
    let port = started.process.port();
    let number = port.submit(PortRequest::Reopen(Box::new(order.clone())))?;
    match port.answer(number, REOPENED_WITHIN)? {
        PortAnswer::Reopened(info) => Ok(*info),
        _ => Err(DataError::Ended.into()),
    }
}

fn replace(links: &mut Vec<(LinkIndex, LinkInfo)>, order: &Reopen, info: LinkInfo) {
    let index = order.device.device.index();
    links.retain(|(link, _)| *link != index);
    links.push((index, info));
}

/// Logs what happens to the process.
fn watch(log: EventSink) -> impl Fn(ProcessEvent) + Send + 'static {
    move |happened| {
        log.log(match happened {
            ProcessEvent::Died => {
                let text = "the data plane's process has died; it is started again";
                event(LogLevel::Error, "data-plane-died", text)
            }
            ProcessEvent::Restarted(after) => {
                let after = after.as_millis();
                let text = format!("the data plane runs again, {after} ms after it died");
                event(LogLevel::Warning, "data-plane-restarted", text).with("ms", after)
            }
            ProcessEvent::GivenUp(why) => {
                let text = format!("the data plane is not started again: {why}");
                event(LogLevel::Error, "data-plane-given-up", text)
            }
        });
    }
}

fn event(level: LogLevel, kind: &'static str, text: impl Into<String>) -> LogEvent {
    LogEvent::new(level, "links", kind, text)
}
