//! The mesh of a description, as a part of its gateway.

use crate::report::PART;
use crate::router::{MeshRouter, MeshSetup};
use crate::{MeshEcho, MeshError, MeshState};
use gatewright_config::{Config, Mesh, MeshProfile};
use gatewright_mesh::{MeshKeys, MeshTrust, Profile};
use gatewright_part::{Change, EventSink, Part, PartStatus, Staged, Unable};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Permissions of others than the owner of a file.
const OTHERS: u32 = 0o077;

/// The node of a gateway, if its description has one.
#[derive(Clone, Debug)]
pub struct MeshPart {
    running: Arc<Mutex<Option<Arc<MeshRouter>>>>,
    seed: u64,
    sink: EventSink,
}

impl MeshPart {
    /// Starts the node of `config`; `seed` begins its randomness.
    ///
    /// # Errors
    ///
    /// [`MeshError`] names what failed.
    pub fn start(config: &Config, seed: u64, sink: EventSink) -> Result<Self, MeshError> {
        let this = Self { running: Arc::default(), seed, sink };
        this.exchange(config.mesh.as_ref())?;
        Ok(this)
    }

    /// The node's state.
    ///
    /// # Errors
    ///
    /// In words, if there is no node here.
    pub fn state(&self) -> Result<MeshState, String> {
        self.lock().as_ref().ok_or_else(no_node)?.state()
    }

    /// Cuts a link, or heals it.
    ///
    /// # Errors
    ///
    /// In words, if there is no node here or no such link.
    pub fn cut(&self, link: &str, is_cut: bool) -> Result<(), String> {
        self.lock().as_ref().ok_or_else(no_node)?.cut(link, is_cut)
    }

    /// Asks a node for an answer over the path of a class to it, or the relay at `ttl` links on it.
    ///
    /// # Errors
    ///
    /// In words, if there is no node here, no such node, no path or no answer.
    pub fn echo(&self, node: &str, class: u8, ttl: u8) -> Result<MeshEcho, String> {
        // An answer takes seconds at the most; a reload does not wait for it.
        let router = self.lock().clone();
        router.ok_or_else(no_node)?.echo(node, class, ttl)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<MeshRouter>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there was a node, and it has ended by itself.
    fn has_ended(&self) -> bool {
        self.lock().as_ref().is_some_and(|router| router.has_ended())
    }

    /// Ends the node, and starts another one, which takes an interface of the same name over.
    fn exchange(&self, mesh: Option<&Mesh>) -> Result<(), MeshError> {
        let setup = mesh.map(|mesh| trust(mesh).map(|trust| setup(mesh, trust))).transpose()?;
        let mut running = self.lock();
        if let Some(router) = running.take() {
            match &setup {
                Some(next) if next.interface == router.interface() => router.hand_over(),
                _ => router.stop(),
            }
        }
        if let Some(setup) = setup {
            let router = MeshRouter::start(&setup, self.seed, self.sink.clone())?;
            *running = Some(Arc::new(router));
        }
        Ok(())
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
        }
        changes
    }

    fn stage(&self, old: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        if old.mesh == new.mesh && !self.has_ended() {
            return Ok(Box::new(gatewright_part::Unchanged));
        }
        if let Err(error) = self.exchange(new.mesh.as_ref()) {
            // It ran a moment ago.
            let _free = self.exchange(old.mesh.as_ref());
            return Err(error.to_string().into());
        }
        Ok(Box::new(StagedMesh { part: self.clone(), before: old.mesh.clone() }))
    }

    fn tell(&self) -> PartStatus {
        // A stage in progress holds the lock; nobody waits for it here.
        let Ok(running) = self.running.try_lock() else { return PartStatus::default() };
        let Some(router) = running.as_ref() else { return PartStatus::default() };
        if router.has_ended() {
            let words = vec![("ended", "`gatewright reload` starts it again".to_owned())];
            return PartStatus { words, ..PartStatus::default() };
        }
        let summary = router.summary();
        PartStatus {
            words: summary.words,
            gauges: summary.gauges,
            counters: summary.counters,
            ..PartStatus::default()
        }
    }

    fn stop(&self) {
        let router = self.lock().take();
        if let Some(router) = router {
            router.stop();
        }
    }
}

struct StagedMesh {
    part: MeshPart,
    before: Option<Mesh>,
}

impl Staged for StagedMesh {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        Ok(Vec::new())
    }

    fn undo(self: Box<Self>) {
        // It ran a moment ago.
        let _free = self.part.exchange(self.before.as_ref());
    }
}

fn no_node() -> String {
    "this gateway has no [mesh]".to_owned()
}

fn setup(mesh: &Mesh, trust: MeshTrust) -> MeshSetup {
    MeshSetup {
        interface: mesh.interface.clone(),
        links: mesh.links.iter().map(|link| link.value.clone()).collect(),
        profile: match mesh.profile {
            MeshProfile::Classic => Profile::Classic,
            MeshProfile::Default => Profile::Default,
        },
        trust,
    }
}

/// Who may take part in a mesh: with a file of keys, who has one of them.
fn trust(mesh: &Mesh) -> Result<MeshTrust, MeshError> {
    let Some(file) = &mesh.key_file else { return Ok(MeshTrust::Open) };
    let refused = |why: String| MeshError::Keys { file: file.clone(), why };
    let metadata = fs::metadata(file).map_err(|error| refused(error.to_string()))?;
    if metadata.permissions().mode() & OTHERS != 0 {
        return Err(refused(
            "others than its owner may read it: chmod 600 makes it a secret".into(),
        ));
    }
    let text = fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    MeshKeys::parse(&text).map(MeshTrust::Psk).map_err(|error| refused(error.to_string()))
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
            profile: MeshProfile::Default,
            key_file: Some(file.to_string_lossy().into_owned()),
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
}
