//! What may change delays and is no condition: load, frequency, temperature, radios, other machines on
//! the same host.

use crate::processor::ProcessorTime;
use serde::{Deserialize, Serialize};
use std::fs::{read_dir, read_to_string};
use std::path::Path;

/// What may have changed the delays of a run on a machine, at its beginning and at its end.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Covariates {
    /// Processes that run or wait to run: the load average of one minute.
    pub load: [Option<f64>; 2],
    /// Time that the host took from this machine during the run, in percent.
    pub steal_pct: f64,
    /// Time in which processors of this machine were busy, in percent.
    pub busy_pct: f64,
    /// Mean frequency of the processors in MHz, where the system tells it.
    pub frequency_mhz: [Option<f64>; 2],
    /// Temperature of the warmest zone in °C, where the system tells it.
    pub temperature: [Option<f64>; 2],
    /// Radios; none if the system has none.
    pub radios: Vec<RadioCovariates>,
}

/// A radio's reception at the beginning and at the end of a run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RadioCovariates {
    /// The interface.
    pub interface: String,
    /// Strength of the signal (RSSI) in dBm, where the driver tells it.
    pub signal_dbm: [Option<f64>; 2],
    /// Noise in dBm, where the driver tells it.
    pub noise_dbm: [Option<f64>; 2],
}

impl Covariates {
    /// In words, for a report.
    pub fn text(&self) -> String {
        let both = |values: [Option<f64>; 2], unit: &str| match values {
            [Some(before), Some(after)] => {
                format!("{before:.1}{unit} before, {after:.1}{unit} after")
            }
            _ => "not told by this system".to_owned(),
        };
        let radio = |it: &RadioCovariates| {
            let (signal, noise) = (both(it.signal_dbm, " dBm"), both(it.noise_dbm, " dBm"));
            format!("{}: signal {signal}, noise {noise}", it.interface)
        };
        let radios: Vec<String> = self.radios.iter().map(radio).collect();
        format!(
            "Load average: {}. Processors busy {:.1} %, taken by the host {:.1} %. Frequency: {}. \
             Temperature: {}. Radio: {}.",
            both(self.load, ""),
            self.busy_pct,
            self.steal_pct,
            both(self.frequency_mhz, " MHz"),
            both(self.temperature, " °C"),
            if radios.is_empty() { "none".to_owned() } else { radios.join("; ") }
        )
    }
}

/// The readings at the beginning of a run.
#[derive(Clone, Debug)]
pub(crate) struct CovariatesBefore {
    times: ProcessorTime,
    reading: CovariateReading,
}

impl CovariatesBefore {
    pub(crate) fn read() -> Self {
        Self { times: ProcessorTime::read(), reading: CovariateReading::read() }
    }

    /// The covariates of the run that ends now.
    pub(crate) fn end(&self) -> Covariates {
        let (steal_pct, busy_pct) = ProcessorTime::read().since(self.times);
        let (before, after) = (&self.reading, CovariateReading::read());
        let radio = |it: &RadioReading| {
            let later = after.radios.iter().find(|other| other.interface == it.interface);
            RadioCovariates {
                interface: it.interface.clone(),
                signal_dbm: [it.signal_dbm, later.and_then(|it| it.signal_dbm)],
                noise_dbm: [it.noise_dbm, later.and_then(|it| it.noise_dbm)],
            }
        };
        Covariates {
            load: [before.load, after.load],
            steal_pct,
            busy_pct,
            frequency_mhz: [before.frequency_mhz, after.frequency_mhz],
            temperature: [before.temperature, after.temperature],
            radios: before.radios.iter().map(radio).collect(),
        }
    }
}

/// Readings of one moment.
#[derive(Clone, Debug, Default)]
struct CovariateReading {
    load: Option<f64>,
    frequency_mhz: Option<f64>,
    temperature: Option<f64>,
    radios: Vec<RadioReading>,
}

impl CovariateReading {
    fn read() -> Self {
        let load = read_to_string("/proc/loadavg").unwrap_or_default();
        let frequencies =
            numbers("/sys/devices/system/cpu", "cpu", "cpufreq/scaling_cur_freq", 1000.0);
        let zones = numbers("/sys/class/thermal", "thermal_zone", "temp", 1000.0);
        let radios = read_to_string("/proc/thread-self/net/wireless").unwrap_or_default();
        Self {
            load: load.split(' ').next().and_then(|word| word.parse().ok()),
            frequency_mhz: crate::analysis::mean(&frequencies),
            temperature: zones.into_iter().reduce(f64::max),
            radios: radios.lines().filter_map(RadioReading::of).collect(),
        }
    }
}

/// The numbers in the file `inner` of each folder whose name begins with `prefix`, divided.
fn numbers(folder: &str, prefix: &str, inner: &str, divisor: f64) -> Vec<f64> {
    let read = |path: &Path| read_to_string(path.join(inner)).ok()?.trim().parse::<f64>().ok();
    let entries = read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|it| it.file_name().to_string_lossy().starts_with(prefix));
    named.filter_map(|it| read(&it.path())).map(|number| number / divisor).collect()
}

/// A radio's reception at one moment.
#[derive(Clone, Debug, PartialEq)]
struct RadioReading {
    interface: String,
    signal_dbm: Option<f64>,
    noise_dbm: Option<f64>,
}

impl RadioReading {
    /// A line of `/proc/net/wireless`: interface, status, quality, signal, noise; a point behind a
    /// value says that it is new. Signal and noise are dBm where they are negative; -256 is not known.
    fn of(line: &str) -> Option<Self> {
        let (interface, values) = line.split_once(':')?;
        let values: Vec<&str> = values.split_whitespace().collect();
        let [_status, _quality, signal, noise, ..] = values.as_slice() else { return None };
        let dbm = |text: &str| {
            let value: f64 = text.trim_end_matches('.').parse().ok()?;
            (value < 0.0 && value > -256.0).then_some(value)
        };
        let interface = interface.trim().to_owned();
        Some(Self { interface, signal_dbm: dbm(signal), noise_dbm: dbm(noise) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kernels print it (`net/wireless/wext-proc.c`).
    const WIRELESS: &str = "\
Inter-| sta-|   Quality        |   Discarded packets               | Missed | WE
 face | tus | link level noise |  nwid  crypt   frag  retry   misc | beacon | 22
 wlan0: 0000   54.  -56.  -256        0      0      0      0    122        0
wlan12: 0000   70.  -40.  -95.        0      0      0      0      0        0
  old0: 0000   30   178   161         0      0      0      0      0        0
";

    #[test]
    fn signal_and_noise_are_told_where_the_driver_knows_them() {
        let radios: Vec<RadioReading> = WIRELESS.lines().filter_map(RadioReading::of).collect();
        let all: Vec<_> =
            radios.iter().map(|it| (it.interface.as_str(), it.signal_dbm, it.noise_dbm)).collect();
        let wanted = [
            ("wlan0", Some(-56.0), None),
            ("wlan12", Some(-40.0), Some(-95.0)),
            // A scale of its driver's own.
            ("old0", None, None),
        ];
        assert_eq!(all, wanted);
        for line in WIRELESS.lines() {
            for end in (0..line.len()).filter(|&at| line.is_char_boundary(at)) {
                let _any = RadioReading::of(&line[..end]);
            }
        }
    }

    #[test]
    fn a_machine_without_a_radio_says_so() {
        let text = Covariates { load: [Some(0.5), Some(1.0)], ..Covariates::default() }.text();
        assert!(text.contains("Radio: none"), "{text}");
        assert!(text.contains("Load average: 0.5 before, 1.0 after"), "{text}");
        assert!(text.contains("Temperature: not told by this system"), "{text}");
        let radio = RadioCovariates {
            interface: "wlan0".to_owned(),
            signal_dbm: [Some(-56.0), Some(-60.0)],
            noise_dbm: [None, None],
        };
        let text = Covariates { radios: vec![radio], ..Covariates::default() }.text();
        assert!(text.contains("wlan0: signal -56.0 dBm before, -60.0 dBm after, noise not told"));
    }
}
