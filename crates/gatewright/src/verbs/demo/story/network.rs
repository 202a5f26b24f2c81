//! Four machines in namespaces: the ward's node and a relay of the mesh, the gateway, the CSE above; and
//! the gateway that runs on each.

use anyhow::Result;
use gatewright_gateway::{
    HopDelay,
    api::{ControlRequest, ask},
};
use gatewright_testbed::{Command, Namespace, Process, Veth, wait_until};
use serde_json::Value;
use std::{fs, path::PathBuf, process::Stdio, time::Duration};

/// How long anything may take.
pub(super) const WITHIN: Duration = Duration::from_secs(15);
/// Where the gateway accepts the oximeter's datagrams: its address in the mesh.
pub(super) const DEVICES: &str = "10.99.0.3:6024";
/// The CSE above.
pub(super) const ABOVE: &str = "http://10.98.0.2:8090";
/// Who may subscribe there.
pub(super) const MONITOR: &str = "CMonitor";
/// The mail server, and the program's listener for alarms.
pub(super) const MAIL: &str = "10.98.0.2:2525";
pub(super) const ALARMS: &str = "127.0.0.1:8025";

/// The program that turns a POST into a mail, and what it uses.
const PROGRAMS: [(&str, &str); 3] = [
    ("http_to_smtp.gate", include_str!("../../../../../../examples/gateways/http_to_smtp.gate")),
    ("http.gate", include_str!("../../../../../../examples/gateways/http.gate")),
    ("smtp.gate", include_str!("../../../../../../examples/gateways/smtp.gate")),
];

/// The gateway of two planes: mesh, devices, CSE, program and page in one description.
const GATEWAY: &str = "\
[gateway]\nname = \"story\"\n\
[planes]\nmode = \"process\"\n\
[link.wan]\naddresses = [\"10.98.0.1/24\"]\nhost = \"tap0\"\n\
[mesh]\nlinks = [\"cb\", \"ca\"]\n\
[devices]\nlisten = \"127.0.0.1:6024\"\nudp = \"0.0.0.0:6024\"\n\
[cse]\nbase = \"cse-gw\"\nid = \"/gw\"\nhttp = \"127.0.0.1:8080\"\nstore = \"gateway.db\"\n\
[cse.registrar]\nurl = \"http://10.98.0.2:8090\"\nid = \"/id-in\"\nbase = \"cse-in\"\n\
[[program]]\nfile = \"http_to_smtp.gate\"\nat = [\"web=127.0.0.1:8025\", \"next=10.98.0.2:2525\"]\n";

/// Socket of the gateway's page, in the folder.
pub(super) const PAGE: &str = "page";

const CENTRAL: &str = "\
[gateway]\nname = \"central\"\n\
[cse]\ntype = \"infrastructure\"\nbase = \"cse-in\"\nid = \"/id-in\"\nhttp = \"10.98.0.2:8090\"\n\
store = \"central.db\"\nadmin = \"CMonitor\"\nadmit = [\"/gw\"]\nreach_own = true\n";

/// A machine of the story.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Member {
    /// The node beside the oximeter.
    Ward,
    /// A relay of the mesh.
    Relay,
    /// The gateway of two planes.
    Gateway,
    /// The infrastructure CSE, with monitor and mail server beside it.
    Above,
}

impl Member {
    /// In the order of their start: the CSE above first, so that the gateway finds it.
    const ALL: [Self; 4] = [Self::Above, Self::Ward, Self::Relay, Self::Gateway];

    const fn name(self) -> &'static str {
        match self {
            Self::Ward => "ward",
            Self::Relay => "relay",
            Self::Gateway => "gateway",
            Self::Above => "central",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Ward => "[mesh]\nlinks = [\"ab\", \"ac\"]\n",
            Self::Relay => "[mesh]\nlinks = [\"ba\", \"bc\"]\n",
            Self::Gateway => GATEWAY,
            Self::Above => CENTRAL,
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
pub(super) fn text(error: impl ToString) -> String {
    error.to_string()
}

/// The machines, their cables, and what runs on them; all of it goes when this is dropped.
pub(super) struct StoryNetwork {
    running: Vec<(Member, Process)>,
    ward: Namespace,
    relay: Namespace,
    pub(super) gateway: Namespace,
    pub(super) above: Namespace,
    _cables: [Veth; 4],
    pub(super) folder: PathBuf,
}

impl Drop for StoryNetwork {
    fn drop(&mut self) {
        // What is in the namespaces ends with them; what cannot be removed is the system's to clean.
        let _left = fs::remove_dir_all(&self.folder);
    }
}

impl StoryNetwork {
    pub(super) fn build() -> Result<Self> {
        let [ward, relay, gateway, above] =
            [Namespace::new()?, Namespace::new()?, Namespace::new()?, Namespace::new()?];
        let cables = [
            Veth::with_queues(&ward, "ab", &relay, "ba", 1)?,
            Veth::with_queues(&relay, "bc", &gateway, "cb", 1)?,
            Veth::with_queues(&ward, "ac", &gateway, "ca", 1)?,
            Veth::pair(&gateway, "wan", &above, "far0")?,
        ];
        for cable in &cables {
            cable.up()?;
        }
        above.ip(&["address", "add", "10.98.0.2/24", "dev", "far0"])?;
        for place in [&gateway, &above] {
            place.ip(&["link", "set", "lo", "up"])?;
        }
        let folder = std::env::temp_dir().join(format!("gatewright-story-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        for (name, text) in PROGRAMS {
            fs::write(folder.join(name), text)?;
        }
        for member in Member::ALL {
            let mut description = member.description().to_owned();
            if member == Member::Gateway {
                let page = folder.join(PAGE);
                let page = page.to_string_lossy();
                description.extend(["[web]\nlisten = 'unix:", &page, "'\n"]);
            }
            fs::write(folder.join(format!("{}.toml", member.name())), description)?;
        }
        Ok(Self { running: Vec::new(), ward, relay, gateway, above, _cables: cables, folder })
    }

    const fn place(&self, member: Member) -> &Namespace {
        match member {
            Member::Ward => &self.ward,
            Member::Relay => &self.relay,
            Member::Gateway => &self.gateway,
            Member::Above => &self.above,
        }
    }

    fn socket(&self, member: Member) -> PathBuf {
        self.folder.join(format!("{}.sock", member.name()))
    }

    /// A verb of this program, on a machine.
    pub(super) fn command(&self, member: Member, words: &[&str]) -> Result<Command, String> {
        let own = std::env::current_exe().map_err(text)?;
        Ok(self.place(member).command(&own.to_string_lossy()).args(words))
    }

    /// Starts all four, and waits until the mesh is whole and the gateway is registered above.
    pub(super) fn start(&mut self) -> Result<(), String> {
        for member in Member::ALL {
            let said = self.folder.join(format!("{}.log", member.name()));
            let said = fs::File::create(said).map_err(text)?;
            let file = self.folder.join(format!("{}.toml", member.name()));
            let command = self.command(member, &["run"])?.arg(file).arg("--socket");
            let command = command.arg(self.socket(member)).stdout(Stdio::null()).stderr(said);
            self.running.push((member, command.spawn().map_err(text)?));
            if !wait_until(WITHIN, || self.status(member).is_ok()) {
                return Err(format!("{} does not start: {}", member.name(), self.said(member)));
            }
        }
        for (place, address) in [(&self.ward, "10.99.0.1/24"), (&self.gateway, "10.99.0.3/24")] {
            place.ip(&["address", "add", address, "dev", "mesh0"]).map_err(text)?;
        }
        if !wait_until(WITHIN, || self.neighbours().is_ok_and(|heard| heard == 2)) {
            return Err(format!("the mesh is not whole: {}", self.said(Member::Ward)));
        }
        let reaches = || {
            let ping = self.ward.command("ping").args(["-n", "-q", "-c1", "-W1", "10.99.0.3"]);
            ping.output().is_ok_and(|output| output.status.success())
        };
        if !wait_until(WITHIN, reaches) {
            return Err("nothing passes the mesh".to_owned());
        }
        let is_registered = || self.found("16").is_ok_and(|found| !found.is_empty());
        if wait_until(WITHIN, is_registered) {
            Ok(())
        } else {
            Err(format!("not registered at the IN-CSE: {}", self.said(Member::Gateway)))
        }
    }

    /// What a gateway wrote.
    fn said(&self, member: Member) -> String {
        let file = self.folder.join(format!("{}.log", member.name()));
        fs::read_to_string(file).unwrap_or_default()
    }

    pub(super) fn status(&self, member: Member) -> Result<Value, String> {
        ask(&self.socket(member), &ControlRequest::Status).map_err(text)
    }

    /// Has the gateway's status and page show the delays of hops.
    pub(super) fn show_hops(&self, hops: &[HopDelay]) -> Result<(), String> {
        let request = ControlRequest::ShowHops { hops: hops.to_vec() };
        ask(&self.socket(Member::Gateway), &request).map(drop).map_err(text)
    }

    /// The answer of a verb of `mesh` at the ward's node.
    fn mesh(&self, words: &[&str]) -> Result<Value, String> {
        let all = [&["mesh"], words, &["--json", "--socket"]].concat();
        let command = self.command(Member::Ward, &all)?.arg(self.socket(Member::Ward));
        let output = command.stderr(Stdio::null()).output().map_err(text)?;
        serde_json::from_slice(&output.stdout).map_err(text)
    }

    /// Neighbours that the ward's node hears.
    pub(super) fn neighbours(&self) -> Result<usize, String> {
        let state = self.mesh(&["status"])?;
        let all = state.get("neighbours").and_then(Value::as_array);
        let is_up = |one: &&Value| one.get("up") == Some(&Value::Bool(true));
        Ok(all.map_or(0, |all| all.iter().filter(is_up).count()))
    }

    /// The link by which packets leave the ward's node for the gateway.
    pub(super) fn path(&self) -> Result<String, String> {
        let path = self.mesh(&["path", "10.99.0.3"])?;
        let all = path.get("paths").and_then(Value::as_array);
        let carries = |one: &&Value| one.get("carries") == Some(&Value::Bool(true));
        let used = all.and_then(|all| all.iter().find(carries)).and_then(|one| one.get("link"));
        let link = used.and_then(Value::as_str).map(str::to_owned);
        link.ok_or_else(|| format!("no path carries packets: {path}"))
    }

    /// Cuts a link of the ward's node.
    pub(super) fn cut(&self, link: &str) -> Result<(), String> {
        self.mesh(&["cut", link]).map(drop)
    }

    /// The median of some round trips over the mesh, in µs.
    pub(super) fn mesh_ping(&self) -> Result<f64, String> {
        let answer = self.mesh(&["ping", "10.99.0.3", "-c", "20", "--interval", "20"])?;
        let median = answer.get("median_us").and_then(Value::as_f64);
        median.ok_or_else(|| format!("no answer: {answer}"))
    }

    /// Addresses of the resources of a type at the CSE above.
    pub(super) fn found(&self, kind: &str) -> Result<Vec<String>, String> {
        let address = format!("/id-in/cse-in?fu=1&ty={kind}");
        let words = ["cse", "get", &address, "--url", ABOVE, "--as", MONITOR, "--json"];
        let output = self.command(Member::Above, &words)?.stderr(Stdio::null()).output();
        let output = output.map_err(text)?;
        let answer: Value = serde_json::from_slice(&output.stdout).map_err(text)?;
        let list = answer.pointer("/content/m2m:uril").and_then(Value::as_array);
        let list = list.ok_or_else(|| format!("not discovered: {answer}"))?;
        Ok(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// Names of the readings at the CSE above; what a device says of itself is none.
    pub(super) fn stored(&self) -> Result<Vec<String>, String> {
        let names = self.found("4")?.into_iter();
        let names = names.filter_map(|uri| uri.rsplit('/').next().map(str::to_owned));
        Ok(names.filter(|name| !name.ends_with("-about")).collect())
    }

    /// Ends all gateways.
    pub(super) fn end(&mut self) -> Result<(), String> {
        for (member, process) in self.running.drain(..).rev() {
            process.terminate().map_err(text)?;
            let status = process.wait().map_err(text)?;
            if !status.success() {
                return Err(format!("{} ends with {status}", member.name()));
            }
        }
        Ok(())
    }
}
