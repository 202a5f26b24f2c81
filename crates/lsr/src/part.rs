//! The mesh of a description, as a part of its gateway.

use crate::report::{self, PART};
use crate::router::{MeshRouter, MeshSetup};
use crate::tunnel::MeshTunnel;
use crate::{MeshEcho, MeshError, MeshState};
use gatewright_config::{Config, Mesh, MeshProfile, MeshRouting};
use gatewright_mesh::{MeshKeys, MeshMembers, MeshNodeKey, MeshPublicKey, MeshTrust, Profile};
use gatewright_part::{Change, EventSink, LogLevel, Part, PartStatus, Staged, Unable, open_file};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why there is no node to ask.
const NONE: &str = "this gateway has no [mesh]";
const ENDED: &str = "the mesh has ended: `gatewright reload` starts it again";

/// How a node starts.
type StartNode = fn(&MeshSetup, u64, EventSink) -> Result<MeshRouter, MeshError>;

/// Permissions of others than the owner of a file.
const OTHERS: u32 = 0o077;

/// The node of a gateway, if its description has one.
#[derive(Clone, Debug)]
pub struct MeshPart {
    running: Arc<Mutex<Option<RunningNode>>>,
    /// Whether the description has a node that could not start again.
    is_lost: Arc<AtomicBool>,
    seed: u64,
    /// Starts of nodes: each begins with another seed, as an index must not be used twice.
    starts: Arc<AtomicU64>,
    sink: EventSink,
}

/// The node, and its setup with the keys that were in its files when it started.
#[derive(Clone, Debug)]
struct RunningNode {
    router: Arc<MeshRouter>,
    setup: MeshSetup,
}

impl MeshPart {
    /// Starts the node of `config`; `seed` begins its randomness.
    ///
    /// # Errors
    ///
    /// [`MeshError`] names what failed.
    pub fn start(config: &Config, seed: u64, sink: EventSink) -> Result<Self, MeshError> {
        let (running, is_lost, starts) = Default::default();
        let this = Self { running, is_lost, seed, starts, sink };
        if let Some(mesh) = &config.mesh {
            this.exchange(Some(setup(mesh)?))?;
        }
        Ok(this)
    }

    /// Loads the files of keys and members that `mesh` names, as a start does, and connects nothing.
    ///
    /// # Errors
    ///
    /// [`MeshError`] names the key and the file that a start would refuse.
    pub fn check_files(mesh: &Mesh) -> Result<(), MeshError> {
        trust(mesh).map(drop)
    }

    /// The node's state.
    ///
    /// # Errors
    ///
    /// In words, if there is no node here.
    pub fn state(&self) -> Result<MeshState, String> {
        self.router()?.state()
    }

    /// Cuts a link, or heals it.
    ///
    /// # Errors
    ///
    /// In words, if there is no node here or no such link.
    pub fn cut(&self, link: &str, is_cut: bool) -> Result<(), String> {
        self.router()?.cut(link, is_cut)
    }

    /// Asks a node for an answer over the path of a class to it, or the relay at `ttl` links on it.
    ///
    /// # Errors
    ///
    /// In words, if there is no node here, no such node, no path or no answer.
    pub fn echo(&self, node: &str, class: u8, ttl: u8) -> Result<MeshEcho, String> {
        self.router()?.echo(node, class, ttl)
    }

    /// The node; an answer takes seconds at the most, and a reload does not wait for it.
    fn router(&self) -> Result<Arc<MeshRouter>, String> {
        let running = self.lock();
        running.as_ref().map(|node| Arc::clone(&node.router)).ok_or_else(|| self.no_node())
    }

    fn lock(&self) -> MutexGuard<'_, Option<RunningNode>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn no_node(&self) -> String {
        let why = if self.is_lost.load(Ordering::Acquire) { ENDED } else { NONE };
        why.to_owned()
    }

    /// Whether the node of the description has ended, by itself or as it could not start again.
    fn has_ended(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
            || self.lock().as_ref().is_some_and(|node| node.router.has_ended())
    }

    /// Whether the files of keys say something else than when the node started.
    fn has_other_keys(&self, mesh: Option<&Mesh>) -> bool {
        let running = self.lock();
        let (Some(node), Some(mesh)) = (running.as_ref(), mesh) else { return false };
        // A file that cannot be read is told when the node is to start with it.
        trust(mesh).map_or(true, |trust| trust != node.setup.trust)
    }

    /// Ends the node, and starts another one. It takes an interface of the same name over if it has the
    /// same identity. What could refuse it has been checked before; if it is refused all the same, the
    /// node that ran starts again.
    fn exchange(&self, next: Option<MeshSetup>) -> Result<(), MeshError> {
        let mut running = self.lock();
        let had_ended = self.is_lost.swap(false, Ordering::AcqRel);
        let before = running.take();
        let ran = before.as_ref().is_some_and(|node| !node.router.has_ended());
        let before = before.map(|node| node.end(next.as_ref()));
        let Some(next) = next else { return Ok(()) };
        let Err(error) = self.start_node(&mut running, next, MeshRouter::start) else {
            return Ok(());
        };
        match before {
            Some(before) if ran => self.return_to(&mut running, before),
            ended => self.is_lost.store(had_ended || ended.is_some(), Ordering::Release),
        }
        Err(error)
    }

    fn start_node(
        &self,
        running: &mut Option<RunningNode>,
        setup: MeshSetup,
        start: StartNode,
    ) -> Result<(), MeshError> {
        // Each node begins with another seed.
        let seed = self.seed.wrapping_add(self.starts.fetch_add(1, Ordering::Relaxed));
        let router = Arc::new(start(&setup, seed, self.sink.clone())?);
        *running = Some(RunningNode { router, setup });
        Ok(())
    }

    /// Starts the node again that ran a moment ago.
    fn return_to(&self, running: &mut Option<RunningNode>, before: MeshSetup) {
        let interface = before.interface.clone();
        if let Err(error) = self.start_node(running, before, MeshRouter::start_again) {
            self.is_lost.store(true, Ordering::Release);
            MeshRouter::remove_left(&interface);
            let text = format!(
                "the mesh ends, as its node cannot start again: {error}; `gatewright reload` starts it \
                 when the cause is gone"
            );
            self.sink.log(report::about(LogLevel::Error, "mesh-ended", text));
        }
    }
}

impl RunningNode {
    /// Ends the node, which leaves its interface for the `next` one, if that has its identity.
    fn end(self, next: Option<&MeshSetup>) -> MeshSetup {
        let Self { router, setup } = self;
        let is_followed = next.is_some_and(|next| {
            next.interface == setup.interface && own_key(&next.trust) == own_key(&setup.trust)
        });
        if is_followed {
            router.hand_over();
        } else {
            router.stop();
        }
        setup
    }
}

impl Part for MeshPart {
    fn name(&self) -> &'static str {
        PART
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        let differences = gatewright_config::differences(old, new, PART);
        let mut changes: Vec<_> = differences.into_iter().map(Change::from).collect();
        if changes.is_empty() && self.has_ended() {
            changes.push(Change::new("[mesh]", "its node had ended, and is started again"));
        } else if changes.is_empty() && self.has_other_keys(new.mesh.as_ref()) {
            changes.push(Change::new("[mesh]", "its files of keys have changed"));
        }
        changes
    }

    fn stage(&self, old: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        let has_other_keys = self.has_other_keys(new.mesh.as_ref());
        let has_ended = new.mesh.is_some() && self.has_ended();
        if old.mesh == new.mesh && !has_ended && !has_other_keys {
            return Ok(Box::new(gatewright_part::Unchanged));
        }
        let unable = |error: MeshError| Unable::from(error.to_string());
        let next = new.mesh.as_ref().map(setup).transpose().map_err(unable)?;
        let before = self.lock().as_ref().map(|node| node.setup.clone());
        if let Some(next) = &next {
            MeshRouter::check(next, before.as_ref()).map_err(unable)?;
        }
        self.exchange(next).map_err(unable)?;
        Ok(Box::new(StagedMesh { part: self.clone(), before }))
    }

    fn tell(&self) -> PartStatus {
        // A stage in progress holds the lock; nobody waits for it here.
        let Ok(running) = self.running.try_lock() else { return PartStatus::default() };
        let is_lost = self.is_lost.load(Ordering::Acquire);
        let router = match running.as_ref() {
            Some(RunningNode { router, .. }) if !router.has_ended() => router,
            None if !is_lost => return PartStatus::default(),
            _ => {
                let words = vec![(
                    gatewright_part::ENDED,
                    "`gatewright reload` starts it again".to_owned(),
                )];
                return PartStatus { words, ..PartStatus::default() };
            }
        };
        let summary = router.summary();
        PartStatus {
            words: summary.words,
            gauges: summary.gauges,
            counters: summary.counters,
            ..PartStatus::default()
        }
    }

    fn stop(&self) {
        let node = self.lock().take();
        if let Some(node) = node {
            node.router.stop();
        }
    }
}

struct StagedMesh {
    part: MeshPart,
    before: Option<MeshSetup>,
}

impl Staged for StagedMesh {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        Ok(Vec::new())
    }

    fn undo(self: Box<Self>) {
        let mut running = self.part.lock();
        if let Some(node) = running.take() {
            node.end(self.before.as_ref());
        }
        if let Some(before) = self.before {
            self.part.return_to(&mut running, before);
        }
    }
}

/// The node's own key, if its identity follows from it.
fn own_key(trust: &MeshTrust) -> Option<MeshPublicKey> {
    match trust {
        MeshTrust::Open | MeshTrust::Psk(_) => None,
        MeshTrust::Pki(own) => Some(own.0.public()),
    }
}

/// The setup of a node, with the keys that are in its files now.
fn setup(mesh: &Mesh) -> Result<MeshSetup, MeshError> {
    Ok(MeshSetup {
        interface: mesh.interface.clone(),
        links: mesh.links.iter().map(|link| link.value.clone()).collect(),
        ports: mesh.ports.iter().map(|port| port.value.clone()).collect(),
        tunnels: mesh.tunnels.iter().map(tunnel).collect(),
        profile: match mesh.profile {
            MeshProfile::Classic => Profile::Classic,
            MeshProfile::Default => Profile::Default,
        },
        routing: match mesh.routing {
            MeshRouting::OnDemand => gatewright_mesh::MeshRouting::OnDemand,
            MeshRouting::Olsr => gatewright_mesh::MeshRouting::Olsr,
        },
        trust: trust(mesh)?,
    })
}

fn tunnel(tunnel: &gatewright_config::MeshTunnel) -> MeshTunnel {
    let interface = tunnel.interface.value.clone();
    MeshTunnel { interface, local: tunnel.local.value, remote: tunnel.remote.value }
}

/// Who may take part in a mesh: with a file of keys, who has one of them.
fn trust(mesh: &Mesh) -> Result<MeshTrust, MeshError> {
    let Some(file) = &mesh.key_file else { return Ok(MeshTrust::Open) };
    let text = secret(file)?;
    let refused = |error: &dyn std::fmt::Display| refused("key_file", file, error.to_string());
    let Some(members) = &mesh.members_file else {
        return MeshKeys::parse(&text).map(MeshTrust::Psk).map_err(|error| refused(&error));
    };
    let own = MeshNodeKey::parse(&text).map_err(|error| refused(&error))?;
    let of_members = |why: String| self::refused("members_file", members, why);
    let text = text_of(members).map_err(|error| of_members(error.to_string()))?;
    let members = MeshMembers::parse(&text).map_err(|error| of_members(error.to_string()))?;
    // Others would drop all that it sends, and say nothing.
    if !members.has_key(&own) {
        let public = own.public();
        return Err(refused(&format!(
            "its key {public} is not admitted: members_file has no line `member {public}`, and the \
             file no certificate of an authority there; or it is revoked"
        )));
    }
    Ok(MeshTrust::Pki(Box::new((own, members))))
}

fn refused(key: &'static str, file: &str, why: String) -> MeshError {
    MeshError::Keys { key, file: file.to_owned(), why }
}

/// The text of a file that only its owner may read.
fn secret(file: &str) -> Result<String, MeshError> {
    let refused = |why: String| refused("key_file", file, why);
    let metadata = fs::metadata(file).map_err(|error| refused(error.to_string()))?;
    if metadata.permissions().mode() & OTHERS != 0 {
        return Err(refused(
            "others than its owner may read it: chmod 600 makes it a secret".into(),
        ));
    }
    text_of(file).map_err(|error| refused(error.to_string()))
}

/// The text of a file.
fn text_of(file: &str) -> io::Result<String> {
    io::read_to_string(open_file(Path::new(file))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of keys is read when only its owner can; what is wrong is said without a key.
    #[test]
    fn a_file_of_keys_is_a_secret() {
        let file = std::env::temp_dir().join(format!("gatewright-mesh-key-{}", std::process::id()));
        let mesh = Mesh {
            interface: "mesh0".into(),
            links: Vec::new(),
            ports: Vec::new(),
            tunnels: Vec::new(),
            profile: MeshProfile::Default,
            routing: MeshRouting::OnDemand,
            key_file: Some(file.to_string_lossy().into_owned()),
            members_file: None,
        };
        let key = "5a".repeat(32);
        fs::write(&file, &key).unwrap();
        let set = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        set(0o644);
        assert!(trust(&mesh).unwrap_err().to_string().contains("chmod 600"));
        set(0o600);
        assert!(matches!(trust(&mesh), Ok(MeshTrust::Psk(_))));
        fs::write(&file, &key[1..]).unwrap();
        let why = trust(&mesh).unwrap_err().to_string();
        assert!(why.contains("line 1") && !why.contains("5a5a"), "{why}");
        fs::remove_file(&file).unwrap();
        assert!(trust(&mesh).unwrap_err().to_string().contains("No such file"));
    }

    /// A node whose key is not admitted does not start: nobody would hear it.
    #[test]
    fn a_node_is_a_member_or_does_not_start() {
        let folder = std::env::temp_dir();
        let name = |what| folder.join(format!("gatewright-mesh-{what}-{}", std::process::id()));
        let [key, members] = ["node", "members"].map(name);
        let text = |file: &Path| Some(file.to_string_lossy().into_owned());
        let mesh = Mesh {
            interface: "mesh0".into(),
            links: Vec::new(),
            ports: Vec::new(),
            tunnels: Vec::new(),
            profile: MeshProfile::Default,
            routing: MeshRouting::OnDemand,
            key_file: text(&key),
            members_file: text(&members),
        };
        let [own, authority] = [1, 2].map(|octet| MeshNodeKey::of_seed([octet; 32]).unwrap());
        let (public, by) = (own.public(), authority.public());
        let certified = own.clone().with_certificate(authority.admit(&public).unwrap());
        fs::write(&key, "").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        for (node, list, expected) in [
            (&own, format!("member {public}"), None),
            (&certified, format!("authority {by}"), None),
            (&own, format!("authority {by}"), Some("is not admitted")),
            (&certified, format!("authority {by}\nrevoked {public}"), Some("is not admitted")),
            (&own, format!("member {by}"), Some("is not admitted")),
            (&own, "everybody".to_owned(), Some("line 1")),
            (&own, String::new(), Some("nobody is admitted")),
        ] {
            fs::write(&key, node.text()).unwrap();
            fs::write(&members, &list).unwrap();
            match (trust(&mesh), expected) {
                (Ok(MeshTrust::Pki(_)), None) => {}
                (Err(error), Some(words)) => assert!(error.to_string().contains(words), "{error}"),
                (other, _) => panic!("{list}: {other:?}"),
            }
        }
        for file in [key, members] {
            fs::remove_file(file).unwrap();
        }
    }
}
