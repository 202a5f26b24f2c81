//! Hosts on a VLAN of a cable, also with a kernel without VLANs.

use crate::{TestInterface, TestbedError};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

/// Replaces a VLAN interface on kernels without one: it tags outgoing packets, removes the tag from
/// incoming ones, and drops untagged ones. The numbers are the kernel's for the functions
/// `bpf_skb_vlan_push` and `bpf_skb_vlan_pop`, the verdicts `TC_ACT_OK` and `TC_ACT_SHOT`.
const TAGGER: &str = r#"
struct packet {
    unsigned len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto;
};
static long (*const push)(struct packet *, unsigned short, unsigned short) = (void *)18;
static long (*const pop)(struct packet *) = (void *)19;
__attribute__((section("egress"), used)) int tag(struct packet *packet) {
    push(packet, __builtin_bswap16(0x8100), ID);
    return 0;
}
__attribute__((section("ingress"), used)) int untag(struct packet *packet) {
    if (!packet->vlan_present || (packet->vlan_tci & 0xfff) != ID)
        return 2;
    pop(packet);
    return 0;
}
char licence[] __attribute__((section("license"), used)) = "GPL";
"#;

impl TestInterface {
    /// Makes a host of this namespace a member of the VLAN `id` on this interface. Returns the
    /// interface that carries its packets without their tags, which is up.
    ///
    /// It is a VLAN interface of the kernel. If the kernel has none, it is this interface itself,
    /// with programs of `clang` and `tc` that do the same.
    ///
    /// # Errors
    ///
    /// [`TestbedError::Failed`] with the error output of `clang` or `tc`.
    pub fn vlan(&self, id: u16) -> Result<Self, TestbedError> {
        let (namespace, id) = (self.namespace(), id.to_string());
        let name = format!("v{id}");
        let add = ["link", "add", "link", self.name(), "name", &name, "type", "vlan", "id", &id];
        self.up()?;
        if namespace.ip(&add).is_ok() {
            let member = Self::existing(namespace, &name);
            member.up()?;
            return Ok(member);
        }
        let object = Object::compile(self, &id)?;
        namespace.command("tc").args(["qdisc", "add", "dev", self.name(), "clsact"]).run()?;
        // `tc` makes folders in the BPF file system, and fails if another one has just made them.
        let _alone = alone()?;
        for side in ["egress", "ingress"] {
            let add = ["filter", "add", "dev", self.name(), side, "bpf", "direct-action", "obj"];
            let (add, at) = (namespace.command("tc").args(add), object.path());
            add.arg(at).args(["sec", side]).run()?;
        }
        Ok(self.clone())
    }
}

/// Excludes other processes and threads of these tests while this value lives.
fn alone() -> Result<File, TestbedError> {
    let path = std::env::temp_dir().join("gatewright-tc.lock");
    let text = path.display().to_string();
    let file = File::options().create(true).append(true).open(&path);
    let file = file.map_err(TestbedError::file(&text))?;
    file.lock().map_err(TestbedError::file(&text))?;
    Ok(file)
}

/// A compiled program on disk, for as long as `tc` reads it.
struct Object(PathBuf);

impl Object {
    fn compile(on: &TestInterface, id: &str) -> Result<Self, TestbedError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gatewright-vlan-{}-{number}", std::process::id());
        let folder = std::env::temp_dir();
        let (source, object) = (folder.join(&name).with_extension("c"), folder.join(&name));
        let text = source.display().to_string();
        std::fs::write(&source, TAGGER).map_err(TestbedError::file(&text))?;
        let object = Self(object);
        let clang = on.namespace().command("clang").args(["-O2", "-target", "bpf", "-c"]);
        let made = clang.arg(format!("-DID={id}")).arg(&source).arg("-o").arg(object.path());
        let made = made.stdout(Stdio::null()).run();
        // What is left behind in the folder for temporary files harms nobody.
        let _gone = std::fs::remove_file(&source);
        made.map(|_| object)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // As above.
        let _gone = std::fs::remove_file(&self.0);
    }
}
