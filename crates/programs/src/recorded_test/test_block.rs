//! Recorded steps as the text of a test block.

use gatewright_runner::PeerEvent;
use std::fmt::Write;
use std::time::Duration;

/// A step of a role's peer.
#[derive(Clone, Debug)]
pub struct RecordedStep {
    /// When, on any clock.
    pub at: Duration,
    /// Index of the role.
    pub role: usize,
    /// The event.
    pub event: PeerEvent,
}

/// A test block: the lines `before` the first step, then the steps. Pauses of at least `pause_min`
/// are repeated; then virtual time is what the recorded time was, to the millisecond.
// Writing to a string cannot fail.
pub fn test_block(
    name: &str,
    before: &[String],
    steps: &[RecordedStep],
    roles: &[&str],
    pause_min: Duration,
) -> String {
    let mut text = format!("test \"{}\" {{\n", escaped(name.as_bytes()));
    for line in before {
        let _ = writeln!(text, "    {line}");
    }
    let first = steps.first().map_or(Duration::ZERO, |step| step.at);
    let (mut last, mut passed) = (first, Duration::ZERO);
    for step in steps {
        if step.at.saturating_sub(last) >= pause_min {
            let behind = step.at.saturating_sub(first).saturating_sub(passed);
            let pause = behind.as_nanos().div_ceil(NANOSECONDS_OF_MS);
            let _ = match pause % 1_000 {
                0 => writeln!(text, "    pass {} seconds", pause / 1_000),
                _ => writeln!(text, "    pass {pause} ms"),
            };
            passed += Duration::from_millis(u64::try_from(pause).unwrap_or(u64::MAX));
        }
        last = step.at;
        let role = roles.get(step.role).copied().unwrap_or_default();
        let does = match &step.event {
            PeerEvent::Sends(octets) => format!("sends {}", quoted(octets)),
            PeerEvent::Sees(octets) => format!("sees {}", quoted(octets)),
            PeerEvent::Closes => "closes".to_owned(),
            PeerEvent::SeesClose => "sees close".to_owned(),
        };
        let _ = writeln!(text, "    {role} {does}");
    }
    text + "}\n"
}

const NANOSECONDS_OF_MS: u128 = 1_000_000;

/// Octets as the language writes them: as text, or in hexadecimal where most are no characters.
pub fn quoted(octets: &[u8]) -> String {
    let characters = octets.iter().filter(|octet| is_character(**octet)).count();
    if characters * 2 >= octets.len() {
        return format!("\"{}\"", escaped(octets));
    }
    let pairs: Vec<String> = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    format!("x\"{}\"", pairs.join(" "))
}

const fn is_character(octet: u8) -> bool {
    matches!(octet, b'\r' | b'\n' | b'\t' | 0x20..=0x7e)
}

/// Octets as the language writes them in quotes.
fn escaped(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len());
    for octet in octets {
        match octet {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\\' | b'"' | b'{' | b'}' => {
                text.push('\\');
                text.push(char::from(*octet));
            }
            0x20..=0x7e => text.push(char::from(*octet)),
            _ => {
                let _ = write!(text, "\\x{octet:02x}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_as_it_was_recorded() {
        let step = |ms: u64, event| RecordedStep { at: Duration::from_millis(ms), role: 0, event };
        let steps = [
            step(500, PeerEvent::Sends(b"a{\"\r\n".to_vec())),
            step(509, PeerEvent::Sees(vec![0, 1, 2])),
            step(2_509, PeerEvent::Sees(vec![b'x', 0])),
            step(2_549, PeerEvent::Closes),
            step(4_500, PeerEvent::SeesClose),
        ];
        let before = ["us fresh 7".to_owned()];
        let text = test_block("it", &before, &steps, &["us"], Duration::from_millis(10));
        let expected = r#"test "it" {
    us fresh 7
    us sends "a\{\"\r\n"
    us sees x"00 01 02"
    pass 2009 ms
    us sees "x\x00"
    pass 40 ms
    us closes
    pass 1951 ms
    us sees close
}
"#;
        assert_eq!(text, expected);
    }
}
