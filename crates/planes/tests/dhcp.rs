//! A gateway that gets its address from a DHCP server that is not ours.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_link::Backend;
use gatewright_planes::{Gateway, Setup};
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::time::Duration;

/// The one address that the server has to give.
const LEASED: &str = "10.20.0.50";

/// Longer than the client's start and two lost messages take.
const PATIENCE: Duration = Duration::from_secs(20);

fn an_address_is_leased_by_dnsmasq() -> Result<(), Failed> {
    let (middle, host) = (Namespace::new()?, Namespace::new()?);
    let wire = Veth::pair(&middle, "g0", &host, "h0")?;
    wire.b.add_address("10.20.0.1/24")?;
    wire.up()?;
    let range = format!("--dhcp-range={LEASED},{LEASED},255.255.255.0,120");
    let options = ["-k", "--port=0", "--interface=h0", "--bind-interfaces", "--no-ping"];
    let files = ["--conf-file=/dev/null", "--leasefile-ro", "--pid-file=", "--user=root"];
    let server = host.command("dnsmasq").args(options).args(files).arg(range);
    let _server = server.spawn()?;
    let gateway = middle.run(|| {
        let mut setup = Setup::new(7);
        setup.link("wan", "g0").backend(Backend::PacketSocket).dhcp = true;
        Gateway::open(&setup).unwrap()
    })?;
    let ping = || {
        let pinged = host.command("ping").args(["-n", "-q", "-c1", "-W1", LEASED]).output();
        pinged.is_ok_and(|pinged| pinged.status.success())
    };
    if !wait_until(PATIENCE, ping) {
        return Err(format!("{LEASED} does not answer: {:#?}", gateway.status()).into());
    }
    Ok(())
}

fn main() {
    let arguments = Arguments::from_args();
    let missing = Needs::new().namespaces().program("ping").program("dnsmasq").missing();
    let trial = Trial::test("an_address_is_leased_by_dnsmasq", an_address_is_leased_by_dnsmasq);
    libtest_mimic::run(&arguments, vec![trial.with_ignored_flag(missing.is_some())]).exit();
}
