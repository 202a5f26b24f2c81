//! A transfer by TCP, for tests of what is forwarded.

use gatewright_testbed::{Namespace, Transport};
use std::{error::Error, process::Stdio, time::Duration};

/// Sends 8 MiB from a host to `server`, which listens at `target`, with iperf3.
pub(crate) fn transfer(
    from: &Namespace,
    (server, target): (&Namespace, &str),
    patience: Duration,
) -> Result<(), Box<dyn Error>> {
    const PORT: u16 = 5201;
    let listens = server.command("iperf3").args(["-s", "-1"]).stdout(Stdio::null()).spawn()?;
    if !server.wait_listening(Transport::Tcp, PORT, patience)? {
        return Err("iperf3 does not listen".into());
    }
    let out = from.command("iperf3").args(["-c", target, "-n", "8M"]).output()?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        return Err(format!("{target}: {said}").into());
    }
    listens.wait()?;
    Ok(())
}
