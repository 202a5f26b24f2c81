//! Start of a gateway with a data-plane process, or adoption of a running one.

use crate::{
    SETTLED_AFTER,
    error::PlanesError,
    release_start_pages,
    setup::{ProcessSetup, RouteTo, Setup},
    start::{Adopted, Begun, seeds},
};
use gatewright_data::{
    DataError, DataPlane, DataProcess, DataSetup, DeviceSetup, Downtime, FoundPlane, Pace, Port,
    PortAnswer, PortRequest, ProcessCommand, ProcessEvent, ProcessStarted, Reopen, WorkerLink,
};
use gatewright_link::{Division, ForwardingMaps, LinkInfo};
use gatewright_packet::LinkIndex;
use gatewright_part::{EventSink, LogEvent, LogLevel};
use gatewright_stack::{Host, HostError};
use std::{sync::Arc, time::Duration};

/// Maximum time to open a link on another device.
const REOPENED_WITHIN: Duration = Duration::from_mins(1);

/// Runs the data plane in this process, whose standard input is the socket of its control plane.
/// Returns when it is told to stop.
///
/// # Errors
///
/// [`DataError`] if it cannot start; the control plane has been told.
pub fn serve_data_plane() -> Result<(), DataError> {
    gatewright_data::serve(SETTLED_AFTER, || {
        // Without it the process does as well, and is larger.
        let _released = release_start_pages();
    })
}

/// The table that divides links with the kernel, and the maps by which drivers forward or why there
/// are none.
type OfKernel<'a> = (Option<&'a Division>, Result<Arc<ForwardingMaps>, String>);

/// Starts the data plane's process, or adopts the one that was found.
pub(crate) fn begin(
    setup: &Setup,
    process: &ProcessSetup,
    (data, (division, maps), found): (&DataSetup, OfKernel<'_>, Option<FoundPlane>),
    log: &EventSink,
) -> Result<Begun, PlanesError> {
    let command = ProcessCommand {
        program: process.program.clone(),
        arguments: process.arguments.clone(),
        name: process.name.clone(),
        routes_max: setup.routes_max,
        clock: None,
        divided: false,
        maps,
    };
    if let Some(found) = found {
        return adopt(found, command, data, log);
    }
    let mut host = Host::shared(setup.routes_max, seeds(setup.seed))?;
    let watch = watch(log.clone());
    let started = DataProcess::start(command, data, (&mut host, division), watch)?;
    Ok(begun(started, host, None, log))
}

fn begun(started: ProcessStarted, host: Host, adopted: Option<Adopted>, log: &EventSink) -> Begun {
    let ProcessStarted { process, plan, sockets, links, events, all_files } = started;
    if let Some(why) = all_files {
        let text = format!("the data plane's process may open all files of its user: {why}");
        log.log(event(LogLevel::Warning, "data-plane-files", text));
    }
    let plane = DataPlane::Process(process);
    Begun { plane, host, plan, sockets, links, events, adopted }
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
    // A link of another name is another link, and nobody has set it down.
    let name = |links: &[WorkerLink], link: LinkIndex| {
        links.get(link.index()).map(|link| link.name.clone())
    };
    let is_there = |link: &LinkIndex| name(&running.links, *link) == name(&data.links, *link);
    let (down, gone): (Vec<_>, Vec<_>) = found.down().iter().copied().partition(is_there);
    let in_words = |error: &dyn std::error::Error| DataError::Refused {
        reason: format!("the data plane (process {process}) cannot be adopted: {error}"),
        exit_code: UNAVAILABLE,
    };
    let mut host =
        Host::adopt(found.tables(), command.routes_max).map_err(|error| in_words(&error))?;
    let watch = watch(log.clone());
    let mut started = DataProcess::adopt(found, command, &mut host, watch)?;
    if running.spin != data.spin {
        started.process.port().ask(PortRequest::Pace(Pace { spin: data.spin }))?;
    }
    for link in gone {
        started.process.port().ask(PortRequest::SetLink { link, up: true })?;
    }
    for (before, device) in running.links.iter().zip(&data.links) {
        if before != device {
            let order = Reopen { device: device.clone(), before: before.clone() };
            reopen(&started, &order).map(|info| replace(&mut started.links, &order, info))?;
        }
    }
    Ok(begun(started, host, Some(Adopted { next, down }), log))
}

/// `EX_UNAVAILABLE` of `sysexits.h`.
const UNAVAILABLE: u8 = 69;

/// Differences that prevent the adoption of a running data plane.
fn unlike(
    running: &DataSetup,
    wanted: &DataSetup,
    running_routes: u32,
    routes: u32,
) -> Option<String> {
    let shares = |setup: &DataSetup| {
        let is_shared = |link: &WorkerLink| matches!(&link.device, DeviceSetup::Interface(device) if !device.exclusive);
        setup.links.iter().any(is_shared)
    };
    let framings = |setup: &DataSetup| -> Vec<_> {
        setup.links.iter().map(|link| link.device.in_suite()).collect()
    };
    let what = match () {
        () if running.workers != wanted.workers => "another number of data cores",
        () if running.cores != wanted.cores => "other processor cores",
        () if running_routes != routes => "another [gateway] routes_max",
        () if running.neighbours != wanted.neighbours => "another [gateway] neighbours_max",
        () if shares(running) != shares(wanted) => "links shared with the kernel, or none",
        () if framings(running) != framings(wanted) => "other link layers",
        () => return None,
    };
    Some(what.to_owned())
}

fn reopen(started: &ProcessStarted, order: &Reopen) -> Result<LinkInfo, PlanesError> {
    let request = PortRequest::Reopen(Box::new(order.clone()));
    match started.process.port().ask_within(request, REOPENED_WITHIN)? {
        PortAnswer::Reopened(info) => Ok(*info),
        _ => Err(DataError::Ended.into()),
    }
}

fn replace(links: &mut Vec<(LinkIndex, LinkInfo)>, order: &Reopen, info: LinkInfo) {
    let index = order.device.device.index();
    links.retain(|(link, _)| *link != index);
    links.push((index, info));
}

/// Logs that the data plane is adopted, so long after it was taken over.
pub(crate) fn log_adopted(log: &EventSink, process: u32, after: Duration) {
    let us = after.as_micros();
    let text = format!(
        "the data plane went on without this process: it is adopted as {process}, within {us} µs"
    );
    log.log(
        event(LogLevel::Info, "data-plane-adopted", text).with("process", process).with("us", us),
    );
}

/// Logs that a route which was set by command under the control plane before does not go on.
pub(crate) fn log_dropped(log: &EventSink, to: RouteTo, why: HostError) {
    let text = format!("set by command, and gone with the last control plane: route {to}: {why}");
    log.log(event(LogLevel::Warning, "by-command-dropped", text).with("what", to));
}

/// Logs what happens to the process.
fn watch(log: EventSink) -> impl Fn(ProcessEvent) + Send + 'static {
    move |happened| {
        log.log(match happened {
            ProcessEvent::Died => {
                let text = "the data plane's process has died; it is started again";
                event(LogLevel::Error, "data-plane-died", text)
            }
            ProcessEvent::Restarted(Downtime { time, frames }) => {
                let ms = time.as_millis();
                let text = format!(
                    "the data plane runs again, {ms} ms after it died; {frames} frames arrived \
                     meanwhile"
                );
                let event = event(LogLevel::Warning, "data-plane-restarted", text);
                event.with("ms", ms).with("frames", frames)
            }
            ProcessEvent::Exchanged(Downtime { time, frames }) => {
                let ms = time.as_millis();
                let text = format!(
                    "the data plane was exchanged within {ms} ms; {frames} frames arrived meanwhile"
                );
                let event = event(LogLevel::Info, "data-plane-exchanged", text);
                event.with("ms", ms).with("frames", frames)
            }
            ProcessEvent::GivenUp(why) => {
                let text = format!(
                    "the data plane is not started again: {why}; `gatewright reload` tries again \
                     when the cause is gone"
                );
                event(LogLevel::Error, "data-plane-given-up", text)
            }
        });
    }
}

fn event(level: LogLevel, kind: &'static str, text: impl Into<String>) -> LogEvent {
    LogEvent::new(level, "links", kind, text)
}
