use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn seen(name: AlarmName, subject: &str, is_raising: bool) -> Observation {
    let (subject, detail) = (subject.to_owned(), "why".to_owned());
    Observation { name, subject, level: LogLevel::Warning, detail, is_raising }
}

fn at(seconds: u32) -> (Duration, Timestamp) {
    let elapsed = SECOND * seconds;
    (elapsed, Timestamp::new(Duration::from_secs(1_790_000_000) + elapsed))
}

fn words(changes: &[AlarmChange]) -> Vec<String> {
    let word = |change: &AlarmChange| {
        let state = if change.is_raised { "raised" } else { "cleared" };
        format!("{} {:?} {state} {}", change.name, change.subject, change.level)
    };
    changes.iter().map(word).collect()
}

/// However often the cause is observed, and although it comes and goes within the time that it must
/// have gone.
#[test]
fn an_alarm_is_raised_once_and_cleared_once() {
    let mut alarms = Alarms::default();
    let short = || vec![seen(AlarmName::DiskShort, "", true)];
    assert_eq!(words(&alarms.observe(at(0), short())), ["disk-short \"\" raised warning"]);
    assert!(alarms.observe(at(1), short()).is_empty());
    for second in 2..50 {
        let observed = if second % 7 == 0 { short() } else { Vec::new() };
        assert!(alarms.observe(at(second), observed).is_empty(), "{second}");
    }
    // Last observed at 49 s.
    assert!(alarms.observe(at(50), Vec::new()).is_empty());
    assert!(alarms.observe(at(109), Vec::new()).is_empty());
    let cleared = alarms.observe(at(110), Vec::new());
    assert_eq!(words(&cleared), ["disk-short \"\" cleared info"]);
    assert_eq!(cleared[0].since, at(0).1);
    assert!(alarms.observe(at(111), Vec::new()).is_empty());
}

/// Between both thresholds a raised alarm stays, and none begins.
#[test]
fn what_is_between_the_thresholds_changes_nothing() {
    let mut alarms = Alarms::default();
    let filling = |is_raising| vec![seen(AlarmName::OutboxFilling, "", is_raising)];
    assert!(alarms.observe(at(0), filling(false)).is_empty());
    assert_eq!(alarms.observe(at(1), filling(true)).len(), 1);
    for minute in 1..60 {
        assert!(alarms.observe(at(minute * 60), filling(false)).is_empty());
    }
    assert_eq!(alarms.subjects(AlarmName::OutboxFilling).count(), 1);
}

#[test]
fn a_more_severe_cause_is_another_change_with_the_same_beginning() {
    let mut alarms = Alarms::default();
    let ending =
        |level| vec![Observation { level, ..seen(AlarmName::CertificateEnding, "a.pem", true) }];
    alarms.observe(at(0), ending(LogLevel::Warning));
    let worse = alarms.observe(at(9), ending(LogLevel::Error));
    assert_eq!(words(&worse), ["certificate-ending \"a.pem\" raised error"]);
    assert_eq!(worse[0].since, at(0).1);
    assert!(alarms.observe(at(10), ending(LogLevel::Warning)).is_empty());
    assert_eq!(alarms.observe(at(11), Vec::new()).len(), 1);
}

#[test]
fn subjects_are_bounded_and_the_rest_is_counted() {
    let mut alarms = Alarms::default();
    let all: Vec<_> = (0..SUBJECTS_MAX + 3)
        .map(|number| seen(AlarmName::DeviceSilent, &format!("{number:016x}"), true))
        .collect();
    assert_eq!(alarms.observe(at(0), all.clone()).len(), SUBJECTS_MAX);
    assert_eq!(alarms.left_out(), 3);
    // One comes back, and there is room for another.
    let changes = alarms.observe(at(1), all[1..].to_vec());
    assert_eq!(changes.iter().filter(|change| !change.is_raised).count(), 1);
    assert_eq!(alarms.observe(at(2), all[1..].to_vec()).len(), 1);
}

#[test]
fn a_restart_continues_with_what_was_raised() {
    let mut before = Alarms::default();
    let both = || {
        vec![
            seen(AlarmName::DeviceSilent, "0022090000000001", true),
            Observation { level: LogLevel::Error, ..seen(AlarmName::RowsUnreadable, "", true) },
        ]
    };
    before.observe(at(0), both());
    let mut after = Alarms::default();
    after.restore(&before.to_json());
    assert!(after.raised().all(|(_, _, raised)| raised.detail.is_empty()));
    assert!(after.observe(at(100), both()).is_empty());
    let details: Vec<_> = after.raised().map(|(_, _, raised)| raised.detail.clone()).collect();
    assert_eq!(details, both().into_iter().map(|it| it.detail).collect::<Vec<_>>());
    let cleared = after.observe(at(101), Vec::new());
    assert_eq!(cleared.len(), 2);
    assert_eq!(cleared[0].since, at(0).1);
    // Of another version, or damaged.
    after.restore(&json!([{ "name": "flood", "since": "x" }, 7, { "name": "disk-short" }]));
    assert_eq!(after.raised().count(), 0);
}
