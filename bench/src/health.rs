//! `bench health`: from the octets of a scan report to oneM2M request primitives, beside the same
//! content made with a JSON library; and what an association costs in memory.

use bench::{Bench, Contestant, Options, Relation, nanoseconds_each};
use gatewright_health::apdu::Apdu;
use gatewright_health::code::{DataRequestId, Handle, InvokeId, SystemId, UnitCode, event};
use gatewright_health::configuration::{Configuration, Library};
use gatewright_health::convert::{Observation, Value, observe};
use gatewright_health::data::{DataApdu, DataMessage, EventReport};
use gatewright_health::manager::{self, Manager, ManagerSettings};
use gatewright_health::report::{FixedObservation, Report, encode_scan};
use gatewright_health::simulate::{self, SimulatedDevice as Simulated, SimulationPlan};
use gatewright_health::specialisation;
use gatewright_interwork::plan::Confirmation;
use gatewright_interwork::{
    CoapPlan, CoapWriter, Device, Instances, Mapping, ReportArrival, ReportPlan,
};
use gatewright_onem2m::{Serialisation, Timestamp};
use serde_json::json;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

/// Reports in a round.
const REPORTS: usize = 200_000;
/// Associations whose memory is measured together.
const ASSOCIATIONS: usize = 20_000;

/// A report of an oximeter, 36 octets for one value and 42 for two.
fn report(values: usize) -> Result<Vec<u8>, String> {
    let both = [
        FixedObservation { handle: Handle(1), octets: &[0xF3, 0xC5] },
        FixedObservation { handle: Handle(10), octets: &[0, 72] },
    ];
    let some: Vec<_> = both.into_iter().take(values).collect();
    let info = encode_scan(DataRequestId::AGENT_INITIATED, 1, &some);
    let info = info.map_err(|it| it.to_string())?;
    let (handle, event) = (Handle::MDS, event::SCAN_FIXED);
    let report = EventReport { handle, time: 0, event, info: &info };
    let message = DataMessage::ConfirmedEventReport(report);
    DataApdu { invoke_id: InvokeId(1), message }.encode().map_err(|it| it.to_string())
}

/// The conversion from octets to resources, with its settings.
struct Conversion {
    mapping: Mapping,
    configuration: Configuration,
    device: Device,
    instances: RefCell<Instances>,
}

impl Conversion {
    fn new() -> Result<Self, String> {
        let mapping = Mapping::default();
        let configuration =
            specialisation::OXIMETER.configuration().ok_or("the oximeter has no configuration")?;
        let system_id = SystemId(*b"OXIMETER");
        let device = Device::new(&mapping, "/id-in/cse-in", system_id, 7, &configuration);
        Ok(Self { mapping, configuration, device, instances: RefCell::new(Instances::new()) })
    }

    /// Reads a report and hands each observation to `sink`.
    fn observed(&self, octets: &[u8], sink: impl FnMut(&Observation<'_>)) {
        if let Ok(Apdu::Prst(data)) = Apdu::decode(octets)
            && let DataMessage::ConfirmedEventReport(event) = data.message
            && let Ok(Report::Scan(scan)) = event.report()
        {
            observe(&self.configuration, event.handle, &scan, sink);
        }
    }

    /// Octets of the primitives that a report becomes.
    fn converted(&self, octets: &[u8], number: u64) -> usize {
        let mut instances = self.instances.borrow_mut();
        instances.start(arrival(number));
        let mut written = 0;
        self.observed(octets, |observation| {
            let primitive = instances.primitive(&self.mapping, &self.device, observation, "4");
            written += primitive.map_or(0, str::len);
        });
        written
    }

    /// The same by a plan; 0 if the report went the general way.
    fn converted_by_plan(&self, plan: &ReportPlan, octets: &[u8], number: u64) -> usize {
        let mut written = 0;
        plan.convert(&mut self.instances.borrow_mut(), arrival(number), octets, |primitive| {
            written += black_box(primitive).len();
        });
        written
    }

    /// The same report as a CoAP message.
    fn converted_to_coap(
        writer: &RefCell<CoapWriter>,
        plan: &CoapPlan,
        octets: &[u8],
        number: u64,
    ) -> usize {
        let mut written = 0;
        let arrived = (arrival(number), plan.identity(octets));
        writer.borrow_mut().convert(plan, arrived, octets, |message| {
            written += black_box(message).len();
        });
        written
    }

    fn coap_plan(&self, serialisation: Serialisation) -> Result<CoapPlan, String> {
        let plan = CoapPlan::new(&self.plan()?, &self.device, serialisation, |request| request);
        plan.ok_or_else(|| "the oximeter's reports have no plan".to_owned())
    }

    /// The plan of reports of SpO2 alone.
    fn plan(&self) -> Result<ReportPlan, String> {
        let layout = (&[Handle(1)][..], Confirmation::Confirmed);
        ReportPlan::new(&self.mapping, &self.device, &self.configuration, layout, "4")
            .ok_or_else(|| "the oximeter's reports have no plan".to_owned())
    }

    /// The same with a JSON library's values.
    fn converted_by_library(&self, octets: &[u8], number: u64) -> usize {
        let mut written = 0;
        let ReportArrival { report, received } = arrival(number);
        self.observed(octets, |observation| {
            let Some(place) = self.device.place(observation.handle) else { return };
            let Value::Number(value) = observation.value else { return };
            let name = format!("{}-7-{report}-{}", self.device.system_id(), observation.handle);
            let primitive = json!({
                "op": 1, "to": place.address, "fr": self.device.originator(), "rqi": name,
                "rvi": "4", "ty": 4, "pc": {"m2m:cin": {
                    "rn": name, "cnf": "application/json:0", "con": {
                        "value": value.to_string(),
                        "unit": observation.unit.and_then(UnitCode::ucum),
                        "unitCode": observation.unit.map(|unit| unit.0),
                        "type": observation.kind.to_string(),
                        "name": observation.kind.name(),
                        "received": received.to_string(),
                        "report": report,
                    },
                }},
            });
            written += primitive.to_string().len();
        });
        written
    }
}

const fn arrival(number: u64) -> ReportArrival {
    // 2026-11-21T13:00:00Z, a report every 10 microseconds.
    let received = Timestamp::from_micros(1_795_266_000_000_000 + number * 10);
    ReportArrival { report: number, received }
}

fn conversion(bench: &mut Bench) -> Result<(), String> {
    let world = Conversion::new()?;
    let (one, two) = (report(1)?, report(2)?);
    let (ours, library) = (world.converted(&two, 9), world.converted_by_library(&two, 9));
    if ours == 0 || ours != library {
        return Err(format!("{ours} octets written, {library} by the library"));
    }
    let plan = world.plan()?;
    let (general, planned) = (world.converted(&one, 9), world.converted_by_plan(&plan, &one, 9));
    if general != planned {
        return Err(format!("{general} octets written, {planned} by the plan"));
    }
    let coap = [Serialisation::Cbor, Serialisation::Json].map(|it| world.coap_plan(it));
    let [cbor, json] = coap;
    let (cbor, json, writer) = (cbor?, json?, RefCell::default());
    if Conversion::converted_to_coap(&writer, &cbor, &one, 9) == 0 {
        return Err("the report has not become a CoAP message".to_owned());
    }
    let time = |convert: &dyn Fn(u64) -> usize| {
        let numbers = 0..u64::try_from(REPORTS).unwrap_or(0);
        nanoseconds_each(REPORTS, || numbers.map(convert).sum::<usize>())
    };
    let values = |octets: &[u8]| {
        let mut values = 0;
        world.observed(black_box(octets), |observation| {
            values += usize::from(black_box(observation).handle.0);
        });
        values
    };
    bench.interleave(vec![
        Contestant::new("observe_two_ns", "ns", || time(&|_| values(&two))),
        Contestant::new("convert_ns", "ns", || time(&|it| world.converted(black_box(&one), it))),
        Contestant::new("convert_plan_json_ns", "ns", || {
            time(&|it| world.converted_by_plan(&plan, black_box(&one), it))
        }),
        Contestant::new("convert_coap_cbor_ns", "ns", || {
            time(&|it| Conversion::converted_to_coap(&writer, &cbor, black_box(&one), it))
        }),
        Contestant::new("convert_coap_json_ns", "ns", || {
            time(&|it| Conversion::converted_to_coap(&writer, &json, black_box(&one), it))
        }),
        Contestant::new("convert_two_ns", "ns", || {
            time(&|it| world.converted(black_box(&two), it))
        }),
        Contestant::new("library_ns", "ns", || {
            time(&|it| world.converted_by_library(black_box(&one), it))
        }),
    ]);
    Ok(())
}

/// A device and its manager, brought to work.
fn associated(number: u64, library: &mut Library) -> Manager {
    let now = Duration::ZERO;
    let mut manager = Manager::new(ManagerSettings::new(SystemId(*b"GATEWAY1")));
    let plan =
        SimulationPlan::new(&specialisation::OXIMETER, SystemId(number.to_be_bytes()), number);
    let mut device = Simulated::new(plan);
    let mut to_manager = VecDeque::new();
    manager.handle(now, manager::Input::Connected, library);
    device.handle(now, simulate::Input::Connected);
    device.handle(Duration::from_secs(1), simulate::Input::Tick);
    for _ in 0..4 {
        while let Some(output) = device.poll_output() {
            if let simulate::Output::Send(octets) = output {
                to_manager.push_back(octets);
            }
        }
        while let Some(octets) = to_manager.pop_front() {
            manager.handle(now, manager::Input::Apdu(&octets), library);
        }
        while let Some(output) = manager.poll_output() {
            match output {
                manager::Output::Send(octets) => device.handle(now, simulate::Input::Apdu(&octets)),
                manager::Output::Report(record) => {
                    manager.handle(now, manager::Input::Committed(record.id), library);
                }
                _ => {}
            }
        }
        device.handle(Duration::from_secs(2), simulate::Input::Tick);
    }
    manager
}

/// Kibibytes of this process that are in memory.
fn resident_kib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// What a manager's side of an association costs, with one report answered.
fn memory(bench: &mut Bench) -> Result<(), String> {
    let mut library = Library::standard();
    let kib = || resident_kib().ok_or("the system does not tell the resident set");
    let mut managers = Vec::with_capacity(ASSOCIATIONS);
    let before = kib()?;
    for number in 0..ASSOCIATIONS {
        managers.push(associated(u64::try_from(number).unwrap_or(0), &mut library));
    }
    let after = kib()?;
    let working = managers.iter().filter(|manager| manager.counters().reports > 0).count();
    if working != ASSOCIATIONS {
        return Err(format!("{working} of {ASSOCIATIONS} associations have reported"));
    }
    let associations = u32::try_from(ASSOCIATIONS).unwrap_or(u32::MAX);
    bench.sample("association_kib", "KiB", (after - before) / f64::from(associations));
    Ok(())
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("health", options);
    memory(&mut bench)?;
    conversion(&mut bench)?;
    bench.ratio("convert_vs_library", "convert_ns", "library_ns");
    bench.ratio("plan_vs_general", "convert_plan_json_ns", "convert_ns");
    bench.promise("convert_ns", Relation::AtMost, 250.0);
    bench.promise("convert_coap_cbor_ns", Relation::AtMost, 80.0);
    bench.promise("association_kib", Relation::AtMost, 2.0);
    bench.note("a report of one value (two) becomes one request primitive (two) of 367 octets");
    bench.note(
        "convert_coap_*: the same report to a whole CoAP message, as the data plane sends it",
    );
    bench.note("the peer reads with the same code and writes with serde_json's values");
    bench.note("an association is a manager's machine without its transport's buffers");
    Ok(bench)
}
