//! The devices: what they say, made by simulated ones, and said again and again.

use super::plane::{Datagrams, SinglePlane, To};
use bench::Numbers;
use gatewright_health::apdu::{Apdu, ReleaseReason};
use gatewright_health::code::{DataRequestId, Handle, InvokeId, SystemId, event};
use gatewright_health::data::{DataApdu, DataMessage, EventReport};
use gatewright_health::report::{FixedObservation, encode_scan};
use gatewright_health::simulate::{Input, Output, SimulatedDevice, SimulationPlan};
use gatewright_health::specialisation::{self, Specialisation};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// SpO2 of an oximeter, 96.5 %, and the handle that it has (ISO/IEEE 11073-10404).
const SPO2: (Handle, [u8; 2]) = (Handle(1), [0xF3, 0xC5]);
/// Who the devices of control messages are, until each is given a number.
const NOBODY: SystemId = SystemId(*b"DEVICE-X");
/// Sockets that control messages come from by turns: a device must not ask to leave before it has
/// joined.
const SOCKETS: usize = 64;
/// Between two looks at the clock, control messages are sent at once.
const TURN: Duration = Duration::from_millis(1);

/// A report of one value in so many octets: behind the value stand octets that the configuration
/// maps to nothing, as devices in the field send them, so that the work is the same at every size.
pub(super) fn report(octets: usize) -> Result<Vec<u8>, String> {
    let (handle, value) = SPO2;
    let make = |padding: usize| -> Result<Vec<u8>, String> {
        let octets = [&value[..], &vec![0; padding]].concat();
        let observation = FixedObservation { handle, octets: &octets };
        let info = encode_scan(DataRequestId::AGENT_INITIATED, 1, &[observation]);
        let info = info.map_err(|it| it.to_string())?;
        let (handle, event) = (Handle::MDS, event::SCAN_FIXED);
        let message = DataMessage::EventReport(EventReport { handle, time: 0, event, info: &info });
        DataApdu { invoke_id: InvokeId(1), message }.encode().map_err(|it| it.to_string())
    };
    let bare = make(0)?.len();
    make(octets.checked_sub(bare).ok_or(format!("a report has at least {bare} octets"))?)
}

/// Lets a device associate from `from`, in memory; what it says until it works.
pub(super) fn associate(
    plane: &mut SinglePlane,
    kind: &'static Specialisation,
    system_id: SystemId,
    from: SocketAddrV4,
    now: Duration,
) -> Result<Vec<Vec<u8>>, String> {
    let mut device = SimulatedDevice::new(SimulationPlan::new(kind, system_id, 1));
    let mut out = Datagrams::default();
    let mut said = Vec::new();
    let before = plane.counters().configurations;
    device.handle(Duration::ZERO, Input::Connected);
    while let Some(output) = device.poll_output() {
        let Output::Send(octets) = output else { continue };
        plane.handle(now, from, &octets, &mut out);
        for (to, octets) in out.iter() {
            if to == To::Device(from) {
                device.handle(Duration::ZERO, Input::Apdu(octets));
            }
        }
        out.clear();
        said.push(octets);
    }
    let configured = plane.counters().configurations - before;
    if configured == 1 { Ok(said) } else { Err(format!("{configured} configurations learned")) }
}

/// The control messages of devices whose configuration nobody knows.
#[derive(Clone, Debug)]
pub(super) struct ControlMessages {
    associate: Vec<u8>,
    id_at: usize,
    configure: Vec<u8>,
    release: Vec<u8>,
}

impl ControlMessages {
    pub(super) fn new() -> Result<Self, String> {
        let nowhere = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        let mut plane = SinglePlane::new();
        let now = Duration::from_secs(1);
        let said = associate(&mut plane, &specialisation::ACTIVITY, NOBODY, nowhere, now)?;
        let [associate, configure, ..] = said.as_slice() else {
            return Err("a device has said too little".to_owned());
        };
        let SystemId(id) = NOBODY;
        let id_at = associate.windows(id.len()).position(|octets| octets == id);
        let release = Apdu::Rlrq(ReleaseReason::NORMAL).encode().map_err(|it| it.to_string())?;
        Ok(Self {
            associate: associate.clone(),
            id_at: id_at.ok_or("an association request without system-id")?,
            configure: configure.clone(),
            release,
        })
    }

    /// The association request of device `number`.
    pub(super) fn associate(&mut self, number: u64) -> &[u8] {
        let id = number.to_be_bytes();
        if let Some(place) = self.associate.get_mut(self.id_at..self.id_at + id.len()) {
            place.copy_from_slice(&id);
        }
        &self.associate
    }

    pub(super) fn configure(&self) -> &[u8] {
        &self.configure
    }

    pub(super) fn release(&self) -> &[u8] {
        &self.release
    }

    /// Sends so many control messages a second to `to` until `stop`; how many went.
    pub(super) fn send(
        mut self,
        per_second: u32,
        to: SocketAddrV4,
        stop: &AtomicBool,
    ) -> std::io::Result<u64> {
        let open = |_| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.connect(to)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let sockets = (0..SOCKETS).map(open).collect::<std::io::Result<Vec<UdpSocket>>>()?;
        let mut numbers = Numbers(u64::from(per_second));
        let (mut sent, start) = (0_u64, Instant::now());
        let mut answer = [0; 1500];
        // Each socket's device: to associate, to configure, to release.
        for (turn, socket) in (0_usize..).zip(sockets.iter().cycle()) {
            let message = match turn / SOCKETS % 3 {
                0 => self.associate(numbers.bits()),
                1 => self.configure(),
                _ => self.release(),
            };
            let _full = socket.send(message);
            while socket.recv(&mut answer).is_ok() {}
            sent += 1;
            let early = || start.elapsed().as_secs_f64() * f64::from(per_second) < as_number(sent);
            while !stop.load(Ordering::Relaxed) && early() {
                std::thread::sleep(TURN);
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(sent)
    }
}

fn as_number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
