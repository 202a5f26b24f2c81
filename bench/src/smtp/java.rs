//! The relay as Java, built and run as users do: `gatewright gw build --target java`, `make`.

use super::world::{Load, MailSink, SINK, text};
use crate::binary;
use crate::programs::example;
use gatewright_testbed::Process;
use std::process::Command;

/// Its port.
pub(super) const JAVA: u16 = 2544;

/// Messages before it is measured: until then the virtual machine interprets and compiles.
const WARM_UP: u32 = 5_000;

/// The one-hop relay in front of the sink, with one loop, warm.
pub(super) fn relay(world: &MailSink, octets: u32) -> Result<Process, String> {
    relay_at(world, octets, JAVA)
}

/// The same at another port.
pub(super) fn relay_at(world: &MailSink, octets: u32, port: u16) -> Result<Process, String> {
    let folder = world.folder.join("java");
    let file = example("smtp_relay.gate");
    succeed(
        Command::new(binary()?)
            .args(["gw", "build", "--target", "java", "--out"])
            .arg(&folder)
            .arg(file),
    )?;
    succeed(Command::new("make").arg("-s").arg("-C").arg(&folder))?;
    let jar = folder.join("smtp_relay.jar");
    let at = [format!("inside=127.0.0.1:{port}"), format!("next=127.0.0.1:{SINK}")];
    let arguments = ["-jar", &jar.to_string_lossy(), &at[0], &at[1]];
    let process = world.start("java", &arguments, port)?;
    for kept in [false, true] {
        let load = Load { sessions: 10, messages: WARM_UP / 2, octets, kept };
        world.send(port, load)?;
    }
    Ok(process)
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(text)?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}
