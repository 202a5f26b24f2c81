//! The CSE that the ward reports to: a process of its own, killed and started again, or another's.

use anyhow::{Context, Result};
use gatewright_bindings::client::Client;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for its first answer after the start.
const UP_WITHIN: Duration = Duration::from_secs(20);
/// Interval between two requests meanwhile.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// Its address and name.
#[derive(Clone, Debug)]
pub(super) struct CentralAddress {
    pub(super) url: String,
    /// Its CSE-ID and the name of its CSEBase.
    pub(super) id: String,
    pub(super) base: String,
    /// The originator that may subscribe there.
    pub(super) originator: String,
}

impl CentralAddress {
    pub(super) fn address(&self) -> String {
        format!("{}/{}", self.id, self.base)
    }

    pub(super) fn client(&self, prefix: &str) -> Client {
        Client::new(self.url.as_str(), self.originator.as_str(), prefix)
    }

    /// Waits until it answers.
    pub(super) async fn answers(&self) -> Result<()> {
        let end = Instant::now() + UP_WITHIN;
        let client = self.client(&format!("up-{}-", std::process::id()));
        loop {
            match client.get(&self.address()).await {
                Ok(answer) if answer.status.is_success() => return Ok(()),
                Ok(answer) => anyhow::bail!("{} refuses: {:?}", self.url, answer.status),
                Err(error) if Instant::now() > end => {
                    return Err(error).context(format!("{} does not answer", self.url));
                }
                Err(_) => tokio::time::sleep(ASK_EVERY).await,
            }
        }
    }
}

/// A process of ours that is the CSE, described like any other gateway.
#[derive(Debug)]
pub(super) struct Central {
    file: PathBuf,
    child: Option<Child>,
}

impl Central {
    /// Describes a CSE in `folder`, its database there too.
    pub(super) fn describe(folder: &Path, admitted: &str) -> Result<(Self, CentralAddress)> {
        let port = free_port()?;
        let place = CentralAddress {
            url: format!("http://127.0.0.1:{port}"),
            id: "/id-in".to_owned(),
            base: "cse-in".to_owned(),
            originator: "CMonitor".to_owned(),
        };
        let store = folder.join("central.db");
        let text = format!(
            "[gateway]\nname = \"central\"\n[cse]\ntype = \"infrastructure\"\n\
             base = \"{}\"\nid = \"{}\"\nhttp = \"127.0.0.1:{port}\"\nadmin = \"{}\"\n\
             admit = [\"{admitted}\"]\nstore = '{}'\n",
            place.base,
            place.id,
            place.originator,
            store.display()
        );
        let file = folder.join("central.toml");
        fs::write(&file, text)?;
        Ok((Self { file, child: None }, place))
    }

    /// Starts it: this same program, with `run`.
    pub(super) fn start(&mut self) -> Result<()> {
        let child = Command::new(std::env::current_exe()?)
            .args(["run", "--socket"])
            .args([&self.file.with_extension("sock"), &self.file])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("the central CSE does not start")?;
        self.child = Some(child);
        Ok(())
    }

    /// Kills it (SIGKILL).
    pub(super) fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Central {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ended = self.kill();
    }
}

/// A free port.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
