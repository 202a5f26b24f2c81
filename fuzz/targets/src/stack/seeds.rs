//! Seeds of the target [`gateway`](super::gateway): a script of frames for each part of the stack.
//!
//! The frames leave out what the target repairs: checksums, and lengths that cover all there is.

use super::gateway::{AS_IT_IS, UNIT};

/// The script of each seed, by name.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("arp", arp()),
        ("dhcp", dhcp()),
        ("errors", errors()),
        ("extension_headers", extension_headers()),
        ("fragments", fragments()),
        ("fragments6", fragments6()),
        ("groups", groups()),
        ("hosts", hosts()),
        ("invalid", invalid()),
        ("ipv4_options", ipv4_options()),
        ("neighbours", neighbours()),
        ("path_mtu", path_mtu()),
        ("routers", routers()),
        ("sockets", sockets()),
        ("transit", transit()),
        ("vlan", vlan()),
    ]
}

/// The destination station of a frame.
const OWN: u8 = 0;
const ALL: u8 = 1 << 2;
const OF_GROUP: u8 = 2 << 2;
const AS_WRITTEN: u8 = 3 << 2;

/// Links.
const LAN: u8 = 0;
const WAN: u8 = 1;
const HOST: u8 = 2;

/// Octets of both stations: ours is filled in, the other is 02:00:00:00:00:99.
const STATIONS: [u8; 12] = [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0x99];

/// Frames in order.
#[derive(Default)]
struct Script(Vec<u8>);

impl Script {
    /// A frame from its type on.
    fn frame(mut self, how: u8, rest: &[u8]) -> Self {
        let mut frame = [&STATIONS[..], rest].concat();
        frame.resize(frame.len().next_multiple_of(UNIT), 0);
        let units = u8::try_from(frame.len() / UNIT).unwrap_or(u8::MAX);
        self.0.extend([how, 0, units]);
        self.0.extend(frame);
        self
    }

    /// A pause before the next frame, in milliseconds, in steps that the format has: a frame that
    /// nobody takes carries it.
    fn pause(mut self, root_of_ms: u8) -> Self {
        self.0.extend([OWN, root_of_ms, 0]);
        self
    }

    fn end(self) -> Vec<u8> {
        self.0
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter_map(nibble).collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |octet, half| octet << 4 | half))
        .collect()
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// An IPv4 packet with its type in front; its length is that of the octets.
fn v4(head: &str, protocol: &str, [from, to]: [&str; 2], payload: &str) -> Vec<u8> {
    // Version, type of service, length; then what `head` has: identification, fragment, time to live.
    let len = 20 + hex(payload).len();
    hex(&format!("0800 4500 {len:04x} {head} {protocol} 0000 {from} {to} {payload}"))
}

/// No fragment, 64 hops.
const PLAIN: &str = "0001 0000 40";

/// An IPv6 packet with its type in front.
fn v6(next: &str, hops: &str, [from, to]: [&str; 2], payload: &str) -> Vec<u8> {
    let len = hex(payload).len();
    hex(&format!("86dd 60000000 {len:04x} {next} {hops} {from} {to} {payload}"))
}

const A: &str = "0a000109";
const B: &str = "0a000209";
const OWN_A: &str = "0a000101";
const OWN_B: &str = "0a000201";
const A6: &str = "fd000001000000000000000000000009";
const B6: &str = "fd000002000000000000000000000009";
const OWN_A6: &str = "fd000001000000000000000000000001";
const OWN_B6: &str = "fd000002000000000000000000000001";
const HOST6: &str = "fd000003000000000000000000000001";
const LOCAL6: &str = "fe800000000000000000000000000099";
const NONE6: &str = "00000000000000000000000000000000";
const ALL_NODES: &str = "ff020000000000000000000000000001";
const SOLICITED: &str = "ff0200000000000000000001ff000001";

/// A link-layer address of eight octets.
const EXTENDED: &str = "0200000000000099";

/// A UDP datagram to a port, with a checksum that is to be filled in (IPv6), or none.
fn udp(port: &str, payload: &str) -> String {
    let len = 8 + hex(payload).len();
    format!("c000 {port} {len:04x} 0000 {payload}")
}

/// The port of the socket application.
const ECHO: &str = "1000";

/// Who asks for us is known by then.
fn introduced() -> Script {
    let arp = |from: &str, to: &str| {
        hex(&format!("0806 0001 0800 06 04 0001 020000000099 {from} 000000000000 {to}"))
    };
    let solicit = |from: &str, to: &str| {
        let body = format!("87 00 0000 00000000 {to} 01 01 020000000099");
        v6("3a", "ff", [from, to], &body)
    };
    Script::default()
        .frame(LAN | ALL, &arp(A, OWN_A))
        .frame(WAN | ALL, &arp(B, OWN_B))
        .frame(LAN, &solicit(A6, OWN_A6))
        .frame(WAN, &solicit(B6, OWN_B6))
}

fn arp() -> Vec<u8> {
    let message = |operation: &str, station: &str, from: &str, to: &str| {
        hex(&format!("0806 0001 0800 06 04 {operation} {station} {from} 000000000000 {to}"))
    };
    let other = "020000000099";
    let mut short = message("0001", other, A, OWN_A);
    short.truncate(20);
    introduced()
        .frame(LAN | ALL, &message("0001", other, "00000000", OWN_A))
        .frame(LAN | ALL, &message("0001", other, OWN_A, OWN_A))
        .frame(LAN | ALL, &message("0002", "020000000098", A, OWN_A))
        .frame(LAN | ALL, &message("0001", "020000000000", A, OWN_A))
        .frame(LAN, &message("0002", other, "c0000201", OWN_A))
        .frame(LAN, &short)
        .frame(LAN, &message("0001", "030000000099", A, OWN_A))
        .frame(LAN, &message("0002", "000000000000", A, OWN_A))
        .frame(
            LAN | AS_IT_IS,
            &hex(&format!("0806 001b 0800 08 04 0001 {EXTENDED} {A} {EXTENDED} {OWN_A}")),
        )
        .pause(200)
        .frame(LAN, &v4(PLAIN, "11", [A, "0a000277"], &udp("0007", "61626364")))
        .frame(WAN, &message("0002", "020000000077", "0a000277", OWN_B))
        .end()
}

fn hosts() -> Vec<u8> {
    let echo = "08 00 0000 0007 0001 61626364";
    let echo6 = "80 00 0000 0007 0001 61626364";
    introduced()
        .frame(LAN, &v4(PLAIN, "01", [A, OWN_A], echo))
        .frame(LAN, &v4(PLAIN, "01", [A, OWN_B], echo))
        .frame(LAN | ALL, &v4(PLAIN, "01", [A, "0a0001ff"], echo))
        .frame(LAN, &v4(PLAIN, "01", [A, OWN_A], "0d 00 0000 0007 0001 00000000"))
        .frame(LAN, &v4(PLAIN, "06", [A, OWN_A], "c000 0050 00000000 00000000 50020000 0000 0000"))
        .frame(LAN, &v6("3a", "40", [A6, OWN_A6], echo6))
        .frame(LAN | OF_GROUP, &v6("3a", "40", [A6, ALL_NODES], echo6))
        .frame(LAN, &v6("3a", "40", [A6, OWN_A6], "c8 00 0000 00000000"))
        .frame(LAN, &v6("06", "40", [A6, OWN_A6], "c000 0050 00000000 00000000 50020000 0000 0000"))
        .frame(LAN, &v6("3b", "40", [A6, OWN_A6], "00000000"))
        .end()
}

fn sockets() -> Vec<u8> {
    let member = "1001";
    introduced()
        .frame(LAN, &v4(PLAIN, "11", [A, OWN_A], &udp(ECHO, "68656c6c6f21")))
        .frame(LAN, &v6("11", "40", [A6, OWN_A6], &udp(ECHO, "68656c6c6f21")))
        .frame(LAN, &v4(PLAIN, "11", [A, OWN_A], &udp("0009", "68656c6c6f21")))
        .frame(LAN, &v6("11", "40", [A6, OWN_A6], &udp("0009", "68656c6c6f21")))
        .frame(LAN | OF_GROUP, &v4(PLAIN, "11", [A, "ef010203"], &udp(member, "6772")))
        .frame(LAN | OF_GROUP, &v4(PLAIN, "11", [A, "ef010204"], &udp(member, "6772")))
        .frame(LAN | ALL, &v4(PLAIN, "11", [A, "ffffffff"], &udp("0009", "6772")))
        // Nobody has sent what this is about, and somebody has.
        .frame(LAN, &v4(PLAIN, "11", [A, OWN_A], "0007 1000 0004 0000"))
        .frame(LAN, &v4(PLAIN, "01", [B, OWN_A], &format!(
            "03 03 0000 00000000 4500001c 00010000 40110000 {OWN_A} {B} {ECHO} c000 0008 0000"
        )))
        .frame(LAN, &v6("3a", "40", [B6, OWN_A6], &format!(
            "01 04 0000 00000000 60000000 0008 11 40 {OWN_A6} {B6} {ECHO} c000 0008 0000"
        )))
        .end()
}

fn transit() -> Vec<u8> {
    let data = udp("0007", &"61".repeat(60));
    let spent = "0001 0000 01";
    let whole = "0001 4000 40";
    let large = udp("0007", &"61".repeat(1440));
    introduced()
        .frame(LAN, &v4(PLAIN, "11", [A, B], &data))
        .frame(LAN, &v4(spent, "11", [A, B], &data))
        .frame(LAN, &v4(PLAIN, "11", [A, B], &large))
        .frame(LAN, &v4(whole, "11", [A, B], &large))
        .frame(LAN, &v4(PLAIN, "11", [A, "c0000201"], &data))
        .frame(LAN, &v4(PLAIN, "11", [A, "0a0002ff"], &data))
        .frame(LAN | ALL, &v4(PLAIN, "11", [A, B], &data))
        .frame(LAN, &v4(PLAIN, "11", [OWN_A, B], &data))
        .frame(LAN, &v4(PLAIN, "11", ["a9fe0001", B], &data))
        .frame(LAN, &v4(PLAIN, "11", [A, "0a000130"], &data))
        .frame(HOST, &v4(PLAIN, "11", ["0a000309", B], &data))
        .frame(LAN, &v6("11", "40", [A6, B6], &data))
        .frame(LAN, &v6("11", "01", [A6, B6], &data))
        .frame(LAN, &v6("11", "40", [A6, B6], &large))
        .frame(LAN, &v6("11", "40", [A6, "20010db8000000000000000000000001"], &data))
        .frame(LAN, &v6("11", "40", [LOCAL6, B6], &data))
        .frame(LAN, &v6("11", "40", [A6, "fd000001000000000000000000000030"], &data))
        .frame(LAN | ALL, &v6("11", "40", [A6, B6], &data))
        .frame(LAN, &v6("11", "40", [OWN_A6, B6], &data))
        .frame(LAN, &v6("11", "40", [A6, NONE6], &data))
        .frame(LAN, &v6("11", "40", [A6, "fe80000000000000000000000000abcd"], &data))
        .frame(LAN | OF_GROUP, &v6("11", "40", [A6, "ff020000000000000000000000000123"], &data))
        .frame(HOST, &v6("11", "40", ["fd000003000000000000000000000009", B6], &data))
        .end()
}

fn ipv4_options() -> Vec<u8> {
    let packet = |options: &str, [from, to]: [&str; 2], payload: &str| {
        let words = 5 + hex(options).len() / 4;
        hex(&format!("0800 4{words:x}00 0000 0001 0000 40 01 0000 {from} {to} {options} {payload}"))
    };
    let echo = "08 00 0000 0007 0001 61626364";
    let mut script = introduced();
    for options in [
        "07 0b 04 00000000 00000000 00",
        "94 04 0000",
        "44 08 05 00 00000000",
        "83 07 04 0a000209 00",
        "89 07 08 0a000209 00",
        "07 02 04 00",
        "19 04 0000",
    ] {
        let options = options.replace(' ', "");
        script = script
            .frame(LAN, &packet(&options, [A, OWN_A], echo))
            .frame(LAN, &packet(&options, [A, B], echo));
    }
    script.end()
}

fn fragments() -> Vec<u8> {
    let piece = |id: u8, offset: u16, more: bool, octets: &str| {
        let field = u16::from(more) << 13 | offset;
        v4(&format!("{id:04x} {field:04x} 40"), "11", [A, OWN_A], octets)
    };
    let first = format!("c000 {ECHO} 0018 0000 6162636465666768");
    let last = "7172737475767778";
    let whole = |script: Script, id: u8| {
        script.frame(LAN, &piece(id, 0, true, &first)).frame(LAN, &piece(id, 2, false, last))
    };
    let mut script = whole(introduced(), 1);
    // The last one first, one twice.
    script = script.frame(LAN, &piece(2, 2, false, last)).frame(LAN, &piece(2, 2, false, last));
    script = script.frame(LAN, &piece(2, 0, true, &first));
    // Overlapping, beyond the end, of no whole units, beyond all datagrams, and never complete.
    script = script.frame(LAN, &piece(3, 0, true, &first)).frame(LAN, &piece(3, 1, false, last));
    script = script.frame(LAN, &piece(4, 2, false, last)).frame(LAN, &piece(4, 4, true, last));
    script = script.frame(LAN, &piece(5, 0, true, "c000 1000 0018 0000 61"));
    script = script.frame(LAN, &piece(6, 0x1fff, false, &"61".repeat(16)));
    script = script.frame(LAN, &piece(7, 0, true, &first));
    // Congestion on one, no knowledge of it on the other.
    let mut marked = piece(8, 0, true, &first);
    if let Some(service) = marked.get_mut(3) {
        *service = 3;
    }
    script = script.frame(LAN, &marked).frame(LAN, &piece(8, 2, false, last));
    script.pause(250).frame(LAN, &piece(9, 0, true, &first)).pause(250).end()
}

fn fragments6() -> Vec<u8> {
    let piece = |id: u8, offset: u16, more: bool, next: &str, octets: &str| {
        let field = offset << 3 | u16::from(more);
        let body = format!("{next} 00 {field:04x} 000000{id:02x} {octets}");
        v6("2c", "40", [A6, OWN_A6], &body)
    };
    // RFC 4443 §4.1: an echo request, its checksum over both pieces.
    let first = "80 00 222c 0007 0001 6162636465666768";
    let last = "7172737475767778";
    let nested = "2c 00 0000 00000001 3a 00 0000 00000002 80 00 0000 00000000";
    let solicitation = format!("87 00 0000 00000000 {OWN_A6}");
    introduced()
        .frame(LAN, &piece(1, 0, true, "3a", first))
        .frame(LAN, &piece(1, 2, false, "3a", last))
        .frame(LAN, &piece(2, 2, false, "3a", last))
        .frame(LAN, &piece(2, 2, false, "3a", last))
        .frame(LAN, &piece(2, 0, true, "3a", first))
        .frame(LAN, &piece(3, 0, true, "3a", first))
        .frame(LAN, &piece(3, 1, false, "3a", last))
        .frame(LAN, &piece(4, 0, true, "3a", "80 00 0000 00"))
        .frame(LAN, &piece(5, 0, false, "3a", "80 00 0000 0007 0001 6162"))
        .frame(LAN, &v6("2c", "40", [A6, OWN_A6], nested))
        .frame(LAN, &piece(6, 0, false, "3a", &solicitation))
        // The first one lacks the end of its headers (RFC 7112).
        .frame(LAN, &piece(7, 0, true, "3c", "3a 02 0000 0000 0000"))
        .frame(LAN, &piece(8, 0x1fff, false, "3a", &"61".repeat(16)))
        .frame(LAN, &piece(9, 0, true, "3a", first))
        .pause(250)
        .end()
}

fn extension_headers() -> Vec<u8> {
    let echo = "80 00 0000 0007 0001 61626364";
    let chain =
        |first: &str, headers: &str| v6(first, "40", [A6, OWN_A6], &format!("{headers} {echo}"));
    let many = format!("{}3a 00 0104 00000000", "3c 00 0104 00000000 ".repeat(9));
    introduced()
        .frame(LAN, &chain("00", "3a 00 05020000 0100"))
        .frame(LAN, &chain("3c", "3a 00 0104 00000000"))
        .frame(LAN, &chain("3c", "3a 00 0e04 00000000"))
        .frame(LAN, &chain("3c", "3a 00 4e04 00000000"))
        .frame(LAN, &chain("3c", "3a 00 8e04 00000000"))
        .frame(LAN, &chain("3c", "3a 00 ce04 00000000"))
        .frame(LAN, &chain("2b", "3a 00 0000 00000000"))
        .frame(LAN, &chain("2b", "3a 00 0001 00000000"))
        .frame(LAN, &chain("3c", "00 00 0104 00000000"))
        .frame(LAN, &chain("3c", &many))
        .frame(LAN, &v6("3c", "40", [A6, OWN_A6], "3a 09 0104 00000000"))
        .frame(LAN, &v6("00", "40", [A6, B6], &format!("3a 00 05020000 0100 {echo}")))
        .end()
}

fn neighbours() -> Vec<u8> {
    let solicit = |from: &str, to: &str, target: &str, option: &str| {
        v6("3a", "ff", [from, to], &format!("87 00 0000 00000000 {target} {option}"))
    };
    let advertise = |from: &str, to: &str, flags: &str, target: &str, option: &str| {
        v6("3a", "ff", [from, to], &format!("88 00 0000 {flags} {target} {option}"))
    };
    let (source, target) = ("01 01 020000000099", "02 01 020000000099");
    introduced()
        .frame(LAN | OF_GROUP, &solicit(A6, SOLICITED, OWN_A6, source))
        .frame(LAN | OF_GROUP, &solicit(NONE6, SOLICITED, OWN_A6, ""))
        .frame(LAN, &solicit(NONE6, OWN_A6, OWN_A6, ""))
        .frame(LAN, &solicit(A6, OWN_A6, A6, source))
        .frame(LAN, &solicit(A6, OWN_A6, OWN_A6, "01 00"))
        .frame(LAN, &solicit(A6, OWN_A6, OWN_A6, "01 01 333300000001"))
        .frame(LAN, &solicit(A6, OWN_A6, OWN_A6, "01 01 020000000000"))
        .frame(LAN, &solicit(A6, OWN_A6, OWN_A6, &format!("01 02 {EXTENDED} 000000000000")))
        .frame(LAN, &v6("11", "40", [A6, "fd000002000000000000000000000077"], &udp("0007", "61")))
        .frame(
            WAN,
            &advertise(
                "fd000002000000000000000000000077",
                OWN_B6,
                "60000000",
                "fd000002000000000000000000000077",
                target,
            ),
        )
        .frame(LAN | OF_GROUP, &advertise(OWN_A6, ALL_NODES, "20000000", OWN_A6, target))
        .frame(LAN, &advertise(A6, OWN_A6, "e0000000", A6, target))
        .frame(LAN, &v6("3a", "40", [A6, OWN_A6], &format!("88 00 0000 60000000 {A6} {target}")))
        .pause(255)
        .frame(LAN, &v6("11", "40", [A6, B6], &udp("0007", "61")))
        .pause(100)
        .end()
}

fn routers() -> Vec<u8> {
    let options = "01 01 020000000099 03 04 40 c0 00000e10 00000708 00000000 \
                   20010db8000000000000000000000000 05 01 0000 000005c8 \
                   19 03 0000 00000e10 20010db8000000000000000000000053";
    let advertisement =
        |head: &str| v6("3a", "ff", [LOCAL6, ALL_NODES], &format!("86 00 0000 {head} {options}"));
    let redirect = |target: &str, to: &str| {
        v6("3a", "ff", [LOCAL6, HOST6], &format!("89 00 0000 00000000 {target} {to}"))
    };
    let far = "20010db8000000010000000000000001";
    Script::default()
        .frame(HOST | OF_GROUP, &advertisement("40 08 0708 00007530 000003e8"))
        .frame(HOST | OF_GROUP, &advertisement("40 00 0000 00000000 00000000"))
        .frame(LAN | OF_GROUP, &advertisement("40 00 0708 00000000 00000000"))
        .frame(HOST, &redirect("fe800000000000000000000000000098", far))
        .frame(LAN | OF_GROUP, &v6("3a", "ff", [LOCAL6, "ff020000000000000000000000000002"], "85 00 0000 00000000 01 01 020000000099"))
        // RFC 1256: who asks is answered; what a router says is heard by a host.
        .frame(LAN | OF_GROUP, &v4("0001 0000 01", "01", [A, "e0000002"], "0a 00 0000 00000000"))
        .frame(HOST | OF_GROUP, &v4("0001 0000 01", "01", ["0a000309", "e0000001"], "09 00 0000 01 02 0708 0a000309 00000000"))
        .frame(HOST, &v4(PLAIN, "01", ["0a000309", "0a000301"], "05 01 0000 0a000308 4500001c 00010000 40110000 0a000301 c0000201 1000 0007 0008 0000"))
        .pause(255)
        .end()
}

fn groups() -> Vec<u8> {
    let igmp = |from: &str, to: &str, hops: &str, message: &str| {
        v4(&format!("0001 0000 {hops}"), "02", [from, to], message)
    };
    let all = "e0000001";
    let mld = |from: &str, to: &str, message: &str| {
        v6("00", "01", [from, to], &format!("3a 00 05020000 0100 {message}"))
    };
    let none = "00000000000000000000000000000000";
    let group = "ff050000000000000000000000000077";
    Script::default()
        .pause(100)
        .frame(LAN | OF_GROUP, &igmp(A, all, "01", "1164 0000 00000000 02 7d 0000"))
        .frame(LAN | OF_GROUP, &igmp("00000000", all, "01", "1164 0000 00000000 02 7d 0000"))
        .pause(120)
        .frame(LAN | OF_GROUP, &igmp(A, "ef010203", "01", "1164 0000 ef010203"))
        .frame(LAN | OF_GROUP, &igmp(A, "ef010203", "01", "1600 0000 ef010203"))
        .pause(120)
        .frame(LAN | OF_GROUP, &igmp(A, all, "01", "1100 0000 00000000"))
        .frame(LAN | OF_GROUP, &igmp(A, all, "02", "1164 0000 00000000"))
        .frame(LAN | OF_GROUP, &igmp(A, all, "01", "1300 0000 00000000"))
        .frame(LAN | OF_GROUP, &igmp(A, all, "01", "1164"))
        .pause(120)
        .frame(
            LAN | OF_GROUP,
            &mld(LOCAL6, ALL_NODES, &format!("82 00 0000 03e8 0000 {none} 02 7d 0000")),
        )
        .pause(100)
        .frame(LAN | OF_GROUP, &mld(LOCAL6, group, &format!("82 00 0000 03e8 0000 {group}")))
        .frame(LAN | OF_GROUP, &mld(LOCAL6, group, &format!("83 00 0000 0000 0000 {group}")))
        .frame(LAN | OF_GROUP, &mld(A6, ALL_NODES, &format!("82 00 0000 03e8 0000 {none}")))
        .frame(LAN | OF_GROUP, &mld(LOCAL6, ALL_NODES, &format!("84 00 0000 0000 0000 {group}")))
        .frame(LAN | OF_GROUP, &mld(LOCAL6, ALL_NODES, "84 00 0000 0000"))
        .pause(200)
        .end()
}

fn dhcp() -> Vec<u8> {
    let answer = |kind: &str, more: &str| {
        let fixed = format!(
            "02 01 06 00 00000000 0000 8000 00000000 0a000963 0a000935 00000000 \
             020000000002 {} {} 63825363",
            "00".repeat(10),
            "00".repeat(192)
        );
        let options =
            format!("35 01 {kind} 36 04 0a000935 33 04 0000003c 01 04 ffffff00 {more} ff");
        let message = format!("{fixed} {options}");
        let len = 8 + hex(&message).len();
        let datagram = format!("0043 0044 {len:04x} 0000 {message}");
        v4(PLAIN, "11", ["0a000935", "ffffffff"], &datagram)
    };
    let routes = "79 0d 18 c0a801 0a000907 00 0a000909 06 04 09090909";
    Script::default()
        .pause(40)
        .frame(HOST | ALL, &answer("02", "03 04 0a000901"))
        .frame(HOST | ALL, &answer("05", routes))
        .pause(180)
        .frame(HOST | ALL, &answer("05", "3a 04 00000001"))
        .pause(250)
        .frame(HOST | ALL, &answer("06", ""))
        .pause(60)
        .frame(HOST | ALL, &answer("05", ""))
        .frame(HOST | ALL, &answer("02", "33 01 00"))
        .frame(LAN | ALL, &answer("02", ""))
        .frame(
            HOST | ALL,
            &v4(PLAIN, "11", ["0a000935", "ffffffff"], "0043 0044 000c 0000 02010600"),
        )
        .end()
}

fn path_mtu() -> Vec<u8> {
    // The socket application returns 1,400 octets for one that begins with L.
    let large = udp(ECHO, "4c6172676521");
    let too_big = format!(
        "03 04 0000 0000 0258 4500 0594 0001 4000 4011 0000 {OWN_A} {A} {ECHO} c000 0580 0000"
    );
    let too_big6 =
        format!("02 00 0000 00000500 60000000 0580 11 40 {OWN_A6} {A6} {ECHO} c000 0580 0000");
    let small = too_big6.replace("00000500", "00000100");
    introduced()
        .frame(LAN, &v4(PLAIN, "11", [A, OWN_A], &large))
        .frame(LAN, &v4(PLAIN, "01", [B, OWN_A], &too_big))
        .frame(LAN, &v4(PLAIN, "11", [A, OWN_A], &large))
        .frame(LAN, &v6("11", "40", [A6, OWN_A6], &large))
        .frame(LAN, &v6("3a", "40", [B6, OWN_A6], &too_big6))
        .frame(LAN, &v6("11", "40", [A6, OWN_A6], &large))
        .frame(LAN, &v6("3a", "40", [B6, OWN_A6], &small))
        .frame(LAN, &v4(PLAIN, "01", [B, OWN_A], &too_big.replace("c000 0580", "c001 0580")))
        .end()
}

fn errors() -> Vec<u8> {
    let quoted = format!("4500001c 00010000 40110000 {OWN_A} {B} {ECHO} c000 0008 0000");
    let error =
        |kind: &str| v4("0001 0000 01", "01", [A, B], &format!("{kind} 0000 00000000 {quoted}"));
    let spent = |payload: &str| v6("3a", "01", [A6, B6], payload);
    let mut script = introduced()
        .frame(LAN, &error("0b 00"))
        .frame(LAN, &error("03 01"))
        .frame(LAN, &spent("01 00 0000 00000000"))
        .frame(LAN, &spent("89 00 0000 00000000"))
        .frame(LAN, &v4(PLAIN, "01", [A, OWN_A], &format!("0b 00 0000 00000000 {quoted}")))
        .frame(LAN, &v6("3a", "40", [A6, OWN_A6], "03 00 0000 00000000 60000000"))
        .frame(LAN, &v4("0001 0005 01", "11", [A, B], "6162636465666768"));
    // More than a subnet's share.
    for _ in 0..60 {
        script = script
            .frame(LAN, &v4("0001 0000 01", "11", [A, B], "0007 0007 0008 0000"))
            .frame(LAN, &v6("11", "01", [A6, B6], "0007 0007 0008 0000"));
    }
    script.end()
}

fn vlan() -> Vec<u8> {
    let tagged = |tag: &str, frame: &[u8]| [&hex("8100")[..], &hex(tag), frame].concat();
    let request = hex("0806 0001 0800 06 04 0001 020000000099 0a000409 000000000000 0a000401");
    let echo = v4(PLAIN, "01", ["0a000409", "0a000401"], "08 00 0000 0007 0001 61626364");
    Script::default()
        .frame(WAN | ALL, &tagged("000a", &request))
        .frame(WAN, &tagged("600a", &echo))
        .frame(WAN, &tagged("000b", &echo))
        .frame(WAN, &tagged("0000", &echo))
        .frame(LAN, &tagged("000a", &echo))
        .end()
}

/// What is refused where it enters; nothing of this is repaired.
fn invalid() -> Vec<u8> {
    let echo = v4(PLAIN, "01", [A, OWN_A], "08 00 0000 0007 0001 61626364");
    let changed = |at: usize, to: u8| {
        let mut frame = echo.clone();
        if let Some(octet) = frame.get_mut(at) {
            *octet = to;
        }
        frame
    };
    let udp4 = hex("0800 4500 001d 0001 0000 40 11 64c6 0a000109 0a000101 c000 1000 0009 1234 61");
    // The header's checksum right, the rest not: as a foreign sender computed it.
    let header = "0800 4500 0020 0001 0000 40 01 64d3 0a000109 0a000101";
    let right = hex(&format!("{header} 08 00 dead 0007 0001 61626364"));
    let echo6 = |version: &str, from: &str| {
        hex(&format!(
            "86dd {version}0000000 000c 3a 40 {from} {OWN_A6} 80 00 0000 0007 0001 61626364"
        ))
    };
    introduced()
        .frame(LAN | AS_IT_IS, &changed(2, 0x55))
        .frame(LAN | AS_IT_IS, &changed(2, 0x41))
        .frame(LAN | AS_IT_IS, &echo)
        .frame(LAN | AS_IT_IS, &right)
        .frame(LAN | AS_IT_IS, &udp4)
        .frame(LAN | AS_IT_IS, &v6("11", "40", [A6, OWN_A6], "c000 1000 0004 1234 61"))
        .frame(LAN | AS_IT_IS, &echo6("6", A6))
        .frame(LAN | AS_IT_IS, &echo6("5", A6))
        .frame(LAN | AS_IT_IS, &echo6("6", ALL_NODES))
        .frame(LAN | AS_IT_IS, &hex("86dd 60"))
        .frame(LAN | AS_IT_IS, &hex("0800 45"))
        .frame(LAN | AS_IT_IS, &hex("0040 aaaa03"))
        .frame(LAN | AS_IT_IS, &hex("88b5 00"))
        .frame(LAN | AS_WRITTEN, &echo)
        .end()
}
