//! Routing daemons that are not ours, as peers of the mesh in its failover experiment.

use super::{FailoverError, PEERS_PATH, address, towards};
use gatewright_testbed::{Missing, Namespace, Needs, Process, Veth, wait_until};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Where Debian has FRR's daemons.
const FRR: &str = "/usr/lib/frr";
/// How long the first daemon may take to open its socket.
const PATIENCE: Duration = Duration::from_secs(30);

/// Routing daemons that are not ours, tuned for failover.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerRouting {
    /// FRR's OSPF with BFD packets each 50 ms, of which three may be missed, and no throttling.
    OspfBfd,
    /// babeld with hellos each 0.1 s and updates each second.
    Babel,
}

impl PeerRouting {
    /// What it needs that this machine has not.
    pub fn missing(self) -> Option<Missing> {
        let needs = Needs::new().namespaces().silence();
        let needs = match self {
            Self::OspfBfd => ["zebra", "bfdd", "ospfd"]
                .into_iter()
                .fold(needs, |needs, daemon| needs.program(&format!("{FRR}/{daemon}"))),
            Self::Babel => needs.program("babeld"),
        };
        needs.missing()
    }
}

/// The daemons of all nodes; they end with it.
#[derive(Debug)]
pub(super) struct PeerDaemons {
    running: Vec<Process>,
    folder: PathBuf,
}

impl Drop for PeerDaemons {
    fn drop(&mut self) {
        for daemon in self.running.drain(..) {
            daemon.kill();
        }
        // It lies in the folder for temporary files.
        let _removed = fs::remove_dir_all(&self.folder);
    }
}

/// The interfaces of a node, each with whether it is one of the cheapest path.
type Interfaces = Vec<(String, bool)>;

impl PeerDaemons {
    /// Gives nodes and cables addresses, and starts the daemons.
    pub(super) fn start(
        routing: PeerRouting,
        nodes: &[Namespace],
        cables: &[((usize, usize), Veth)],
    ) -> Result<Self, FailoverError> {
        let name = format!("gatewright-failover-{}-{routing:?}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        let mut this = Self { running: Vec::new(), folder };
        for (number, (_, cable)) in cables.iter().enumerate() {
            cable.a.add_address(&format!("10.98.{number}.1/30"))?;
            cable.b.add_address(&format!("10.98.{number}.2/30"))?;
        }
        for (number, node) in nodes.iter().enumerate() {
            node.ip(&["link", "set", "lo", "up"])?;
            node.ip(&["address", "add", &format!("{}/32", address(number)), "dev", "lo"])?;
            node.sysctl("net.ipv4.ip_forward", "1")?;
            node.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
            let both = cables.iter().flat_map(|&((a, b), _)| [(a, b), (b, a)]);
            let others = both.filter(|(own, _)| *own == number).map(|(_, other)| other);
            let interfaces: Interfaces =
                others.map(|other| (towards(other), is_cheap(number, other))).collect();
            if routing == PeerRouting::Babel {
                // Its packets are those of IPv6.
                for (name, _) in &interfaces {
                    node.sysctl(&format!("net.ipv6.conf.{name}.disable_ipv6"), "0")?;
                }
            }
            match routing {
                PeerRouting::OspfBfd => this.ospf(node, number, &interfaces)?,
                PeerRouting::Babel => this.babel(node, number, &interfaces)?,
            }
        }
        Ok(this)
    }

    fn ospf(
        &mut self,
        node: &Namespace,
        number: usize,
        interfaces: &Interfaces,
    ) -> Result<(), FailoverError> {
        let folder = self.folder.join(number.to_string());
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o755))?;
        // They give up root, and keep their sockets there.
        let owner = fs::read_to_string("/etc/passwd")?
            .lines()
            .find_map(|line| line.strip_prefix("frr:")?.split(':').nth(1)?.parse().ok());
        chown(&folder, owner, None)?;
        let mut text = String::new();
        for (name, is_cheap) in interfaces {
            let cost = if *is_cheap { 10 } else { 20 };
            // A text takes any line.
            let _written = writeln!(
                text,
                "interface {name}\n ip ospf network point-to-point\n ip ospf cost {cost}\n \
                 ip ospf hello-interval 1\n ip ospf dead-interval 4\n ip ospf bfd\n \
                 ip ospf bfd profile fast\n!"
            );
        }
        let ospf = format!(
            "{text}router ospf\n ospf router-id {}\n maximum-paths 1\n timers throttle spf 0 50 1000\n \
             timers throttle lsa all 0\n timers lsa min-arrival 10\n network 10.0.0.0/8 area 0\n",
            address(number)
        );
        let bfd = "bfd\n profile fast\n  detect-multiplier 3\n  receive-interval 50\n  \
                   transmit-interval 50\n";
        for (daemon, text) in [("zebra", "hostname node\n"), ("bfdd", bfd), ("ospfd", &ospf)] {
            let file = folder.join(format!("{daemon}.conf"));
            fs::write(&file, text)?;
            let log = File::create(folder.join(format!("{daemon}.log")))?;
            let command = node.command(&format!("{FRR}/{daemon}")).args(["-u", "frr", "-g", "frr"]);
            let command = command.args(["-A", "127.0.0.1", "-P", "0", "-f"]).arg(&file);
            let command = command.arg("-i").arg(folder.join(format!("{daemon}.pid")));
            let command = command.arg("-z").arg(folder.join("zserv.api"));
            let mut command = command.arg("--vty_socket").arg(&folder).stdin(Stdio::null());
            if daemon == "bfdd" {
                command = command.arg("--bfdctl").arg(folder.join("bfdd.sock"));
            }
            self.running.push(command.stdout(log.try_clone()?).stderr(log).spawn()?);
            if daemon == "zebra" && !wait_until(PATIENCE, || folder.join("zserv.api").exists()) {
                return Err(format!("zebra does not start: {}", said(&folder)).into());
            }
        }
        Ok(())
    }

    fn babel(
        &mut self,
        node: &Namespace,
        number: usize,
        interfaces: &Interfaces,
    ) -> Result<(), FailoverError> {
        let at = |kind: &str| self.folder.join(format!("{number}.{kind}"));
        let mut text = "random-id true\ndefault hello-interval 0.1 update-interval 1\n".to_owned();
        for (name, is_cheap) in interfaces {
            let cost = if *is_cheap { 96 } else { 192 };
            // A text takes any line.
            let _written = writeln!(text, "interface {name} type wired rxcost {cost}");
        }
        text += "redistribute local ip 10.99.0.0/16 allow\nredistribute local deny\n";
        fs::write(at("conf"), text)?;
        let log = File::create(at("log"))?;
        let mut command = node.command("babeld").arg("-I").arg(at("pid"));
        command = command.arg("-S").arg(at("state")).arg("-c").arg(at("conf"));
        command = command.args(interfaces.iter().map(|(name, _)| name)).stdin(Stdio::null());
        self.running.push(command.stdout(log.try_clone()?).stderr(log).spawn()?);
        Ok(())
    }
}

/// Whether a cable is one of the cheapest path.
fn is_cheap(a: usize, b: usize) -> bool {
    PEERS_PATH.windows(2).any(|pair| pair == [a, b] || pair == [b, a])
}

/// What daemons have written.
fn said(folder: &Path) -> String {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let logs = files.filter(|file| file.path().extension().is_some_and(|it| it == "log"));
    logs.filter_map(|file| fs::read_to_string(file.path()).ok()).collect()
}
