//! Every command and every description of the manual's pages is one that this program takes.
//!
//! The first steps, the tutorials, the story, README and the overview run as they are printed
//! (`manual.rs`, `readme.rs`, `tutorial.rs`). Of all other pages each command is parsed with its
//! arguments, and each description is checked as `gatewright check` checks it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{folder, gatewright};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Pages that run as they are printed.
const RUN: [&str; 8] = [
    "first-steps.md",
    "story.md",
    "overview.md",
    "tutorials/router.md",
    "tutorials/ward.md",
    "tutorials/mesh.md",
    "tutorials/lab.md",
    "language/tutorial.md",
];

/// Links for snippets that need some.
const LINKS: &str = "[link.lan]\ndevice = \"eth0\"\naddresses = [\"192.0.2.1/24\"]\n\
                     [link.wan]\ndevice = \"eth1\"\naddresses = [\"203.0.113.1/24\"]\n";
/// A service entity.
const CSE: &str = "[cse]\nbase = \"gw\"\nid = \"/gw\"\n";
/// A mesh without its trust.
const MESH: &str = "[mesh]\ninterface = \"mesh0\"\nlinks = [\"eth1\"]\n";
/// A listener for devices.
const DEVICES: &str = "[devices]\nlisten = \"127.0.0.1:6024\"\n";
/// A balance of one relay.
const BALANCE: &str = "[balance.coap]\nflows_max = 16\n[[balance.coap.relay]]\n\
                       address = \"192.0.2.11\"\nport = 5683\nfixed_ns = 1500\n";
/// The other files of a certificate.
const CERTIFICATE: &str = "certificate = \"a.pem\"\nauthorities = \"b.pem\"\n";

/// What a page leaves out of a snippet, by page and first line: what stands before and behind it.
const LEFT_OUT: [(&str, &str, &[&str], &str); 14] = [
    ("links.md", "[[route]]", &[LINKS], ""),
    ("links.md", "[[neighbour]]", &[LINKS], ""),
    ("filters.md", "[[attach]]", &[LINKS], ""),
    ("planes.md", "[planes]", &[LINKS], ""),
    ("devices.md", "[devices]", &[LINKS, CSE], ""),
    ("devices.md", "[devices.home_assistant]", &[CSE, DEVICES], ""),
    ("mesh.md", "trust = \"psk\"", &[MESH], ""),
    ("mesh.md", "trust = \"pki\"", &[MESH], ""),
    ("lab.md", "[udp_gateway.coap]", &[LINKS, BALANCE], ""),
    ("lab.md", "[[route]]", &[LINKS], ""),
    ("operation.md", "[cse.tls]", &[CSE], CERTIFICATE),
    ("events.md", "[log]", &[LINKS], ""),
    ("web.md", "[web]", &[CSE], ""),
    ("dashboard.md", "[web]", &[CSE], ""),
];

/// The head of a capture file without packets (draft-ietf-opsawg-pcap §4), which a snippet reads.
const NO_PACKETS: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The pages of the manual that users read, by name, without the generated reference.
fn pages() -> Vec<(String, String)> {
    let summary = fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    let names = summary.lines().filter_map(|line| line.split_once("](")?.1.split_once(')'));
    let names =
        names.map(|(name, _)| name.to_owned()).filter(|name| !name.starts_with("reference"));
    names.map(|name| (name.clone(), fs::read_to_string(docs().join(&name)).unwrap())).collect()
}

/// The fenced blocks of a page: language, text.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let block = lines.by_ref().take_while(|line| !line.trim_start().starts_with("```"));
        let block: Vec<&str> = block.collect();
        blocks.push((language.to_owned(), block.join("\n")));
    }
    blocks
}

/// The arguments of a command of this program in a line of a block, as a shell splits them; `None` if
/// the line is another program's, or what one says.
fn arguments(line: &str) -> Option<Vec<String>> {
    let line = line.trim().strip_prefix("$ ").unwrap_or(line.trim());
    let line = line.strip_prefix("sudo ").unwrap_or(line);
    let rest = line.strip_prefix("gatewright ")?;
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in rest.chars() {
        match (letter, quote) {
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (_, Some(open)) if letter == open => quote = None,
            // A remark, another command, a redirection or the background.
            ('#', None) if word.is_none() => break,
            ('|' | '>' | '<' | '&' | ';', None) => break,
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Some(words)
}

#[test]
fn every_command_of_the_manual_is_one() {
    let mut count = 0;
    for (name, page) in pages() {
        for (_, block) in blocks(&page) {
            let whole = block.replace("\\\n", " ");
            for arguments in whole.lines().filter_map(arguments) {
                // With --help nothing is run, and what stands in front of it is parsed.
                let mut asked: Vec<&str> = arguments.iter().map(String::as_str).collect();
                asked.push("--help");
                let said = gatewright(&asked);
                assert_eq!(
                    said.code,
                    0,
                    "{name}: gatewright {}: {}",
                    arguments.join(" "),
                    said.err
                );
                count += 1;
            }
        }
    }
    assert!(count > 100, "{count} commands");
    // A wrong one is found.
    assert_ne!(gatewright(&["status", "--colour", "--help"]).code, 0);
}

#[test]
fn a_line_is_split_as_a_shell_splits_it() {
    let split = |line| arguments(line).map(|words| words.join("|"));
    for (line, expected) in [
        ("$ gatewright status   # a remark", Some("status")),
        ("gatewright run x.toml &", Some("run|x.toml")),
        (
            "gatewright attach filter --rule 'accept protocol=udp'",
            Some("attach|filter|--rule|accept protocol=udp"),
        ),
        ("gatewright capture --link lan | wireshark -k -i -", Some("capture|--link|lan")),
        ("gatewright header a.txt > tcp.h", Some("header|a.txt")),
        ("gatewright x \"\"", Some("x|")),
        ("curl http://127.0.0.1", None),
        ("gatewrightd", None),
    ] {
        assert_eq!(split(line).as_deref(), expected, "{line}");
    }
}

#[test]
fn every_description_of_the_manual_is_checked() {
    let folder = folder("pages");
    fs::write(folder.join("in.pcapng"), NO_PACKETS).unwrap();
    let file = folder.join("gateway.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        gatewright(&["check", file.to_str().unwrap()])
    };
    let (mut count, mut used) = (0, Vec::new());
    let pages = pages().into_iter().filter(|(name, _)| !RUN.contains(&name.as_str()));
    for (name, page) in pages {
        for (_, block) in blocks(&page).into_iter().filter(|(language, _)| language == "toml") {
            let first = block.lines().next().unwrap_or_default();
            let is_this =
                |(page, line, ..): &&(&str, &str, &[&str], &str)| *page == name && *line == first;
            let (before, behind) =
                LEFT_OUT.iter().find(is_this).map_or((&[][..], ""), |it| (it.2, it.3));
            used.extend(LEFT_OUT.iter().position(|it| is_this(&it)));
            let said = check(&format!("{}{block}\n{behind}", before.concat()));
            // The manual's certificates and keys are on no machine.
            let found: Vec<_> =
                said.err.lines().filter(|line| line.starts_with("error[")).collect();
            let is_right = found.iter().all(|line| line.starts_with("error[GW0194]"));
            assert!(
                is_right && (said.code == 0 || !found.is_empty()),
                "{name}: {first}\n{}{}",
                said.out,
                said.err
            );
            count += 1;
        }
    }
    assert!(count > 15, "{count} descriptions");
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), LEFT_OUT.len(), "no entry is left over");
    assert_ne!(check(&format!("{LINKS}[web]\nlisten = 1\n")).code, 0, "a wrong one is found");
}
