//! Frames of every protocol, written by the builders of this crate, as Wireshark's dissectors read
//! them: each field here is compared with the field there, and nothing may be called malformed.
//!
//! Skipped by name where tshark is not installed (last run with 4.0.17).
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod frames;

use frames::{Frame, checked_frames, ethernet_frames, wpan_frames};
use libtest_mimic::{Arguments, Failed, Trial};
use std::{collections::BTreeMap, env, fs, path::PathBuf, process::Command, sync::OnceLock};

/// Link types of capture files (tcpdump.org): Ethernet, 802.15.4 with and without check sequence.
const ETHERNET: u32 = 1;
const WPAN: u32 = 195;
const WPAN_NO_FCS: u32 = 230;

/// What tshark says about one frame: each asked field with its values, comma-separated.
type Told = BTreeMap<&'static str, String>;

fn main() {
    let ignored = !is_installed("tshark");
    let mut trials = Vec::new();
    for (link, frames) in
        [(ETHERNET, ethernet_frames()), (WPAN, checked_frames()), (WPAN_NO_FCS, wpan_frames())]
    {
        let dissection = Dissection::shared(link, frames);
        for (index, frame) in dissection.frames.iter().enumerate() {
            let test = move || dissection.compare(index);
            trials.push(Trial::test(frame.name, test).with_ignored_flag(ignored));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn is_installed(tool: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|directory| directory.join(tool).is_file())
}

/// The frames of one link type and what tshark tells about them, asked once.
struct Dissection {
    link: u32,
    frames: Vec<Frame>,
    told: OnceLock<Result<Vec<Told>, String>>,
}

impl Dissection {
    fn shared(link: u32, frames: Vec<Frame>) -> &'static Self {
        Box::leak(Box::new(Self { link, frames, told: OnceLock::new() }))
    }

    fn compare(&self, index: usize) -> Result<(), Failed> {
        let told = self.told.get_or_init(|| self.ask()).as_ref().map_err(String::clone)?;
        let (frame, told) = (&self.frames[index], &told[index]);
        if let Some(malformed) = told.get(MALFORMED).filter(|text| !text.is_empty()) {
            return Err(format!("malformed: {malformed}").into());
        }
        for (field, expected) in &frame.expected {
            if told[field] != *expected {
                let octets: Vec<String> = frame.octets.iter().map(|o| format!("{o:02x}")).collect();
                let found = &told[field];
                return Err(format!(
                    "{field}: wrote {expected}, read {found}\n{}",
                    octets.join(" ")
                )
                .into());
            }
        }
        Ok(())
    }

    fn ask(&self) -> Result<Vec<Told>, String> {
        let file =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("frames{}.pcap", self.link));
        fs::write(&file, pcap(self.link, &self.frames)).map_err(|error| error.to_string())?;
        let mut fields: Vec<&'static str> = self
            .frames
            .iter()
            .flat_map(|frame| frame.expected.iter().map(|&(field, _)| field))
            .collect();
        fields.push(MALFORMED);
        fields.sort_unstable();
        fields.dedup();
        let mut tshark = Command::new("tshark");
        tshark.arg("-n").arg("-r").arg(&file);
        for preference in ["ip", "udp", "tcp"] {
            tshark.args(["-o", &format!("{preference}.check_checksum:TRUE")]);
        }
        tshark.args(["-o", "tcp.relative_sequence_numbers:FALSE", "-T", "fields"]);
        tshark.args(["-E", "separator=|", "-E", "occurrence=a", "-E", "aggregator=,"]);
        for field in &fields {
            tshark.args(["-e", field]);
        }
        let output = tshark.output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let told =
            |line: &str| fields.iter().copied().zip(line.split('|').map(str::to_owned)).collect();
        let told: Vec<Told> = text.lines().map(told).collect();
        if told.len() == self.frames.len() {
            Ok(told)
        } else {
            Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
        }
    }
}

const MALFORMED: &str = "_ws.malformed";

/// A capture file (libpcap format, big endian).
fn pcap(link: u32, frames: &[Frame]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0002_0004, 0, 0, 0xffff, link] {
        file.extend(u32::to_be_bytes(word));
    }
    for (second, frame) in (0..).zip(frames) {
        let length = u32::try_from(frame.octets.len()).unwrap();
        for word in [second, 0, length, length] {
            file.extend(u32::to_be_bytes(word));
        }
        file.extend(&frame.octets);
    }
    file
}
