use crate::TestbedError;
use std::process::Command;

/// Seconds by which the clock is ahead there.
const AHEAD: &str = "100000";

/// A program that runs in a time namespace whose monotonic clock is ahead.
fn command() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--time", "--fork", "--kill-child", "--monotonic", AHEAD, "--"]);
    command
}

/// Whether programs can be run there.
pub(crate) fn is_possible() -> bool {
    command().arg("true").output().is_ok_and(|output| output.status.success())
}

/// Runs the test `name` of this program in a time namespace whose monotonic clock is ahead
/// (`time_namespaces(7)`). [`Needs::time_namespaces`](crate::Needs::time_namespaces) says whether that
/// works here.
///
/// # Errors
///
/// [`TestbedError::Start`], or [`TestbedError::Failed`] with what the test has said.
pub fn in_time_namespace(name: &str) -> Result<(), TestbedError> {
    let started = |source| TestbedError::Start { program: "unshare".to_owned(), source };
    let program = std::env::current_exe().map_err(started)?;
    let output = command().arg(program).args([name, "--exact"]).output().map_err(started)?;
    let [out, error] =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    // One that is unknown or skipped does not fail.
    if output.status.success() && out.contains("1 passed") {
        return Ok(());
    }
    let command = format!("{name} in a time namespace");
    Err(TestbedError::Failed { command, message: out + &error })
}
