//! What a node promises by its model, and when it promises nothing.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_config::{RelayKind, parse_experiment};
use gatewright_delay::{NodeLoad, NodeModel, SetupTime};
use gatewright_diagnostic::SourceId;
use gatewright_lab::analysis::{LinearFit, ModelChoice, QueueModel};
use gatewright_lab::{
    BalanceKeys, ConditionResult, FlowKind, FlowPromise, LabRun, RelayModel, UnusableModel,
};
use serde_json::json;

/// A run whose relay has a service time of 1 ms, whatever the size, with exponential times.
fn run() -> LabRun {
    let experiment = "title = 't'\nrelays = ['translate-udp']\n[centre]\noctets = 400\nrate = 200\n\
        [vary]\noctets = [100]\nrate = [800]\nload_pct = [50]\n";
    LabRun {
        form: 1,
        unfinished: None,
        experiment: parse_experiment(SourceId::default(), experiment).unwrap(),
        machine: String::new(),
        version: String::new(),
        optimised: true,
        started: 0,
        seconds: 1.0,
        namespaces: true,
        processors: (0, 0),
        covariates: None,
        left_out: Vec::new(),
        warnings: Vec::new(),
        observer: None,
        conditions: [(400, 200, 0), (100, 200, 0), (400, 800, 0), (400, 200, 50)]
            .map(|(octets, rate, load_pct)| condition(octets, rate, load_pct))
            .into(),
        models: vec![model()],
    }
}

fn condition(octets: u16, rate: u32, load_pct: u8) -> ConditionResult {
    let condition = json!({
        "relay": "translate-udp", "octets": octets, "rate": rate, "load_pct": load_pct,
        "sent": 1000, "received": 1000, "repeated": 0, "unstamped": 0, "medians": [1000.0],
        "steady": true, "steal_pct": 0.0, "node_base": [1000.0, 1.0], "spikes": 0, "series": []
    });
    serde_json::from_value(condition).unwrap()
}

fn model() -> RelayModel {
    let service = LinearFit { intercept: 0.001, slope: 0.0, r_squared: 1.0, count: 4 };
    let queue = ModelChoice {
        chosen: QueueModel::FirstInFirstOut,
        service,
        setup: None,
        error_pct: 1.0,
        loser_error_pct: 2.0,
        conditions: 4,
    };
    RelayModel {
        relay: RelayKind::TranslateUdp,
        service: None,
        intervals: None,
        robust: None,
        queue: Some(queue),
        held_out: Vec::new(),
        service_variation: 1.0,
        p99_error_pct: None,
        p95_over_mean: Some(1.0),
    }
}

fn flow(bound_us: f64) -> FlowKind {
    FlowKind { rate: 10.0, octets: 100.0, bound_us, quantile: 0.95 }
}

fn promise(run: &LabRun, flow: &FlowKind) -> Result<FlowPromise, UnusableModel> {
    gatewright_lab::promise(run, run.models.first().unwrap(), flow)
}

/// What becomes of a flow that is promised otherwise, when the model is changed so.
fn refused(change: impl Fn(&mut ModelChoice)) -> UnusableModel {
    let mut run = run();
    change(run.models.first_mut().unwrap().queue.as_mut().unwrap());
    promise(&run, &flow(6000.0)).unwrap_err()
}

#[test]
fn the_promise_of_m_m_1_is_that_of_its_formula() {
    // M/M/1: P(W > t) = ρ exp(−(µ − λ) t). At µ = 1000/s and 10/s a flow, the wait of 5 % at
    // most is ln(ρ / 0.05) / (µ − λ); with the service time of 1 ms the bound of 6 ms leaves
    // 5 ms: ρ = 0.54 gives 5.17 ms, ρ = 0.53 gives 5.02, ρ = 0.52 gives 4.88.
    let promise = promise(&run(), &flow(6000.0)).unwrap();
    assert_eq!((promise.flows, promise.or_more), (52, false), "{promise:?}");
    assert!(promise.delay_us.unwrap() <= 6000.0 && promise.next_us.unwrap() > 6000.0);
    assert!((promise.load - 0.52).abs() < 1e-9);
    // A millisecond, whatever the size, with exponential times.
    let model =
        BalanceKeys { fixed_ns: 1_000_000, octet_ps: 0, variation_pct: 100, spread_pct: 100 };
    assert_eq!(promise.model, model);
    // 520/s of 100 octets: both were measured.
    assert_eq!((promise.beyond_rate, promise.beyond_octets), (None, None));
    assert_eq!((promise.conditions, promise.unsteady), (3, 0));
}

#[test]
fn a_bound_below_the_service_time_carries_no_flow() {
    let promise = promise(&run(), &flow(900.0)).unwrap();
    assert_eq!((promise.flows, promise.delay_us), (0, None));
}

#[test]
fn no_bound_lets_a_node_be_overloaded() {
    let promise = promise(&run(), &flow(1e12)).unwrap();
    assert_eq!((promise.flows, promise.next_us), (99, None), "100 flows are a load of 1");
    assert_eq!(promise.beyond_rate, Some(800), "990/s");
}

#[test]
fn a_model_that_makes_no_sense_promises_nothing() {
    for (fixed, fixed_us) in [(-0.001, -1000.0), (0.0, 0.0)] {
        let found = refused(|queue| queue.service.intercept = fixed);
        assert_eq!(found, UnusableModel::FixedTime { fixed_us });
    }
    for fixed in [f64::NAN, f64::INFINITY] {
        let found = refused(|queue| queue.service.intercept = fixed);
        assert!(matches!(found, UnusableModel::FixedTime { .. }), "{found:?}");
    }
    // 100 octets take 2 ms less than none, which is less than no time.
    let found = refused(|queue| queue.service.slope = -0.000_02);
    assert!(matches!(found, UnusableModel::ServiceTime { octets: 100.0, .. }), "{found:?}");
    for (longest, time_constant) in [(-0.001, 0.008), (0.001, 0.0), (f64::NAN, 0.008)] {
        let setup = SetupTime { longest, time_constant };
        let found = refused(|queue| queue.setup = Some(setup));
        assert!(matches!(found, UnusableModel::SetupTime { .. }), "{found:?}");
    }
    for error_pct in [50.1, 1000.0, f64::NAN, f64::INFINITY] {
        let found = refused(|queue| queue.error_pct = error_pct);
        assert!(matches!(found, UnusableModel::Error { .. }), "{found:?}");
    }
    let mut run = run();
    run.models.first_mut().unwrap().queue = None;
    assert_eq!(promise(&run, &flow(6000.0)), Err(UnusableModel::Unfitted));
}

/// 520/s are promised where nothing is lost.
#[test]
fn losses_at_the_promised_rate_or_below_refuse_it() {
    let lossy = |at: usize, received: usize, quantile: f64| {
        let mut run = run();
        run.conditions.get_mut(at).unwrap().received = received;
        promise(&run, &FlowKind { quantile, ..flow(6000.0) })
    };
    let lost = UnusableModel::Losses { loss_pct: 5.1, rate: 200, allowed_pct: 5.0 };
    assert_eq!(lossy(0, 949, 0.95), Err(lost));
    assert_eq!(lossy(1, 949, 0.5), Err(lost), "more than 5 % are never promised");
    assert!(lossy(0, 950, 0.95).is_ok(), "as many as may be late");
    assert!(matches!(lossy(0, 989, 0.99), Err(UnusableModel::Losses { .. })));
    assert!(matches!(lossy(0, 0, 0.95), Err(UnusableModel::Losses { .. })));
    assert!(lossy(2, 0, 0.95).is_ok(), "800/s are not promised");
    assert!(lossy(3, 0, 0.95).is_ok(), "the model is of another load");
}

#[test]
fn a_promise_tells_what_it_is_not_measured_by() {
    let mut run = run();
    let most = run.conditions.get_mut(2).unwrap();
    (most.steady, most.rate) = (false, 500);
    for (octets, beyond) in
        [(99.0, Some([100, 400])), (100.0, None), (400.0, None), (65_507.0, Some([100, 400]))]
    {
        let promise = promise(&run, &FlowKind { octets, ..flow(6000.0) }).unwrap();
        assert_eq!(promise.beyond_octets, beyond, "{octets}");
        assert_eq!(promise.beyond_rate, Some(500), "520/s");
        assert_eq!((promise.unsteady, promise.conditions), (1, 3));
    }
    // At one packet in a day more flows keep the bound than are tried.
    let promise = promise(&run, &FlowKind { rate: 1e-5, ..flow(6000.0) }).unwrap();
    assert_eq!((promise.flows, promise.or_more), (1 << 20, true));
}

/// A gateway's balance has these keys alone: it must not promise what the model does not.
#[test]
fn the_keys_of_a_model_with_a_set_up_time_are_never_faster_than_it() {
    let mut run = run();
    let setup = Some(SetupTime { longest: 0.003, time_constant: 0.008 });
    run.models.first_mut().unwrap().queue.as_mut().unwrap().setup = setup;
    let model = run.models.first().unwrap().node_model().unwrap();
    let keys = promise(&run, &flow(6000.0)).unwrap().model;
    assert_eq!(keys.fixed_ns, 4_000_000);
    let service = LinearFit { intercept: 0.004, ..model.service };
    let described = NodeModel { service, setup: None, ..model };
    for flows in [0.0, 1.0, 10.0, 20.0] {
        let at = |model: &NodeModel| {
            let load = NodeLoad::default().with(model, &flow(6000.0), flows);
            model.quantile(100.0, &load, 0.95).unwrap()
        };
        assert!(at(&described) >= at(&model), "{flows} flows");
    }
}

#[test]
fn larger_packets_are_never_promised_more_flows() {
    let mut run = run();
    let queue = run.models.first_mut().unwrap().queue.as_mut().unwrap();
    queue.service.slope = -1e-7;
    for octets in [100.0, 9000.0] {
        let promise = promise(&run, &FlowKind { octets, ..flow(6000.0) }).unwrap();
        assert_eq!((promise.flows, promise.model.octet_ps), (52, 0), "{octets}: as of 1 ms");
    }
    let larger = promise(&run, &FlowKind { octets: 10_001.0, ..flow(6000.0) });
    assert!(matches!(larger, Err(UnusableModel::ServiceTime { .. })), "{larger:?}");
}

/// The run with delays of the node at each condition: these are its percentiles.
fn with_delays(delays: [(f64, f64); 3]) -> LabRun {
    let mut run = run();
    for (condition, (p50, p95)) in run.conditions.iter_mut().zip(delays) {
        let of = |share: u32| if share < 90 { p50 } else { p95 };
        let probes: Vec<f64> = (0..100).map(of).collect();
        condition.node = gatewright_lab::analysis::DelaySummary::of(&probes);
    }
    run
}

/// The conditions are 400 octets at 200/s, 100 at 200/s, and 400 at 800/s; the flows have 100 octets.
#[test]
fn a_measurement_goes_before_the_model() {
    let slow_small = with_delays([(1000.0, 1000.0), (1000.0, 9000.0), (1000.0, 1000.0)]);
    let promised = promise(&slow_small, &flow(6000.0)).unwrap();
    let measured = promised.limited_by.unwrap();
    assert_eq!((promised.flows, measured.octets, measured.rate), (19, 100, 200), "{promised:?}");
    assert!((measured.delay_us - 9000.0).abs() < 1e-9 && (measured.quantile - 0.95).abs() < 1e-9);
    let fast = FlowKind { rate: 200.0, ..flow(6000.0) };
    assert_eq!(promise(&slow_small, &fast), Err(UnusableModel::Measured(measured)));
    // Half of them were in time, which is all that these flows ask.
    let half = promise(&slow_small, &FlowKind { quantile: 0.5, ..flow(6000.0) }).unwrap();
    assert!(half.flows > 52 && half.limited_by.is_none(), "{half:?}");
    // Larger packets say nothing of smaller ones.
    let slow_large = with_delays([(9000.0, 9000.0), (1000.0, 1000.0), (9000.0, 9000.0)]);
    assert_eq!(promise(&slow_large, &flow(6000.0)).unwrap().flows, 52);
    // Where the model sees the bound first, the measurement limits nothing.
    let slow_fast = with_delays([(1000.0, 1000.0), (1000.0, 1000.0), (1000.0, 9000.0)]);
    let large = promise(&slow_fast, &FlowKind { octets: 400.0, ..flow(6000.0) }).unwrap();
    assert_eq!((large.flows, large.limited_by), (52, None));
}

#[test]
fn a_quota_promises_nothing_and_links_and_slowness_are_told() {
    let mut run = run();
    run.experiment.node.slowdown = 20;
    let link = "title = 't'\nrelays = ['kernel']\n[centre]\noctets = 100\nrate = 1\n\
        [link]\ncapacity_mbps = 0.25\n";
    run.experiment.link = parse_experiment(SourceId::default(), link).unwrap().link;
    let promised = promise(&run, &flow(6000.0)).unwrap();
    assert_eq!(promised.slowdown, 20);
    // 142 octets with their headers, and 24 around the frame, at 0.25 Mbit/s.
    let carried = promised.beyond_link.unwrap();
    assert!((carried - 188.25).abs() < 0.01, "{carried}");
    assert_eq!(promise(&run, &FlowKind { rate: 0.01, ..flow(1010.0) }).unwrap().beyond_link, None);
    run.experiment.node.quota_pct = 99;
    assert_eq!(promise(&run, &flow(6000.0)), Err(UnusableModel::Quota { quota_pct: 99 }));
}
