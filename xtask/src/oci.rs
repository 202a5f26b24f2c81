//! `cargo xtask oci`: an image for containers (OCI image format 1.0) from nothing but the command, as a
//! static program, and the default description. Of a program that is given, the libraries that it loads
//! are in it, too.
//!
//! It is laid out here and packed by `tar` and `gzip`; no container program is needed. Its files have
//! the time of the last commit, so that the same program gives the same image.

use crate::{
    build::target,
    deb::{self, DebPlan, output, program_of, readable, run, write},
};
use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// The user and group that it runs as, by number: an image has no other users.
const USER: u32 = 65_532;

/// What the image runs.
const COMMAND: &str =
    r#"["run", "--last-good", "/var/lib/gatewright/last-good.toml", "/etc/gatewright"]"#;

/// Folders that its user writes to.
const WRITTEN: [&str; 2] = ["var/lib/gatewright", "run/gatewright"];

/// Builds the command and its image; prints where it is and how large.
pub fn oci(plan: &DebPlan) -> bool {
    let made = program_of(plan, true).and_then(|it| assemble(&it, &target().join("oci")));
    match made {
        Ok(image) => {
            println!("== oci: {}", image.display());
            true
        }
        Err(problem) => {
            eprintln!("oci: {problem}");
            false
        }
    }
}

/// Makes the image of `program` in the folder `out`.
pub(crate) fn assemble(program: &Path, out: &Path) -> io::Result<PathBuf> {
    let tree = out.join("tree");
    fresh(&tree)?;
    let libraries = lay_out(program, &tree)?;
    starts(&tree)?;
    let epoch = deb::epoch()?;
    let layout = out.join("layout");
    fresh(&layout.join("blobs/sha256"))?;
    let layer = out.join("layer.tar");
    remove(&layer)?;
    pack(&tree, &layer, &epoch, 0, &["usr", "lib", "lib64", "etc"])?;
    pack(&tree, &layer, &epoch, USER, &WRITTEN)?;
    let plain = digest(&layer)?;
    run(Command::new("gzip").args(["-9", "-n", "-f"]).arg(&layer))?;
    let layer = store(&layout, &out.join("layer.tar.gz"))?;
    let created = said(Command::new("date").args(["-u", "-d", &format!("@{epoch}"), "+%FT%TZ"]))?;
    let config = format!(
        "{{\"created\":\"{created}\",\"architecture\":\"{}\",\"os\":\"linux\",\"config\":{{\
         \"User\":\"{USER}:{USER}\",\"Entrypoint\":[\"/usr/bin/gatewright\"],\"Cmd\":{COMMAND},\
         \"Volumes\":{{\"/var/lib/gatewright\":{{}}}},\"WorkingDir\":\"/\"}},\
         \"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:{plain}\"]}}}}",
        said(Command::new("dpkg").arg("--print-architecture"))?
    );
    let config = blob(&layout, out, config.as_bytes())?;
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\
         \"config\":{},\"layers\":[{}]}}",
        config.described("application/vnd.oci.image.config.v1+json"),
        layer.described("application/vnd.oci.image.layer.v1.tar+gzip")
    );
    let manifest = blob(&layout, out, manifest.as_bytes())?;
    let index = format!(
        "{{\"schemaVersion\":2,\"manifests\":[{}]}}",
        manifest.described("application/vnd.oci.image.manifest.v1+json")
    );
    write(&layout.join("index.json"), index.as_bytes())?;
    write(&layout.join("oci-layout"), b"{\"imageLayoutVersion\":\"1.0.0\"}")?;
    readable(&layout)?;
    let image = out.join(format!("gatewright_{}.oci.tar", env!("CARGO_PKG_VERSION")));
    remove(&image)?;
    pack(&layout, &image, &epoch, 0, &["oci-layout", "index.json", "blobs"])?;
    println!("== oci: {libraries} libraries, layer of {:.2} MiB", deb::in_mib(layer.octets));
    fs::remove_dir_all(&tree)?;
    fs::remove_dir_all(&layout)?;
    verify(&image, &out.join("read"))?;
    Ok(image)
}

/// Puts every file into its place below `tree`; returns the number of libraries.
fn lay_out(program: &Path, tree: &Path) -> io::Result<usize> {
    let binary = tree.join("usr/bin/gatewright");
    write(&binary, &fs::read(program)?)?;
    run(Command::new("strip").arg("--strip-unneeded").arg(&binary))?;
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))?;
    let loaded = libraries(&said(Command::new("ldd").arg(&binary))?);
    for library in &loaded {
        let at = tree.join(library.trim_start_matches('/'));
        write(&at, &fs::read(library)?)?;
        fs::set_permissions(&at, fs::Permissions::from_mode(0o755))?;
    }
    let description = fs::read(crate::root().join("packaging/gatewright.toml"))?;
    write(&tree.join("etc/gatewright/gateway.toml"), &description)?;
    let users = format!("gatewright:x:{USER}:{USER}::/var/lib/gatewright:/nonexistent\n");
    write(&tree.join("etc/passwd"), users.as_bytes())?;
    readable(tree)?;
    for folder in WRITTEN {
        let at = tree.join(folder);
        fs::create_dir_all(&at)?;
        fs::set_permissions(&at, fs::Permissions::from_mode(0o700))?;
    }
    Ok(loaded.len())
}

/// Paths in what ldd(1) says: `libc.so.6 => /lib/libc.so.6 (0x…)`, and the loader, which stands alone.
/// A static program has none.
fn libraries(text: &str) -> Vec<String> {
    let words = text.lines().flat_map(str::split_whitespace);
    words.filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

/// The command runs with nothing around it but the tree; who is not root cannot try it.
fn starts(tree: &Path) -> io::Result<()> {
    let mut command = Command::new("chroot");
    command.arg(tree).args(["/usr/bin/gatewright", "check", "/etc/gatewright"]);
    match output(&mut command) {
        Err(error) if error.to_string().contains("cannot change root directory") => {
            println!("== oci: not tried, which needs root");
            Ok(())
        }
        result => result.map(drop),
    }
}

/// A blob of the image.
struct Blob {
    digest: String,
    octets: u64,
}

impl Blob {
    /// Its descriptor.
    fn described(&self, media_type: &str) -> String {
        let Self { digest, octets } = self;
        format!(
            "{{\"mediaType\":\"{media_type}\",\"digest\":\"sha256:{digest}\",\"size\":{octets}}}"
        )
    }
}

/// Stores octets as a blob of the layout.
fn blob(layout: &Path, out: &Path, octets: &[u8]) -> io::Result<Blob> {
    let part = out.join("blob.part");
    write(&part, octets)?;
    store(layout, &part)
}

/// Moves a file to the blobs of the layout.
fn store(layout: &Path, file: &Path) -> io::Result<Blob> {
    let (digest, octets) = (digest(file)?, fs::metadata(file)?.len());
    fs::rename(file, layout.join("blobs/sha256").join(&digest))?;
    Ok(Blob { digest, octets })
}

/// The SHA-256 of a file, as `sha256sum` says it.
fn digest(file: &Path) -> io::Result<String> {
    let said = said(Command::new("sha256sum").arg(file))?;
    Ok(said.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Appends members of a folder, as far as they are there, to an archive, in the order of the names.
fn pack(
    folder: &Path,
    archive: &Path,
    epoch: &str,
    owner: u32,
    members: &[&str],
) -> io::Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--numeric-owner", "--format=ustar", &format!("--mtime=@{epoch}")]);
    tar.args([format!("--owner={owner}"), format!("--group={owner}")]).arg("-rf").arg(archive);
    tar.arg("-C").arg(folder);
    run(tar.args(members.iter().filter(|member| folder.join(member).exists())))
}

/// Unpacks an image in the folder `out`, and checks that all of it fits together: each blob has the
/// digest that is its name, index, manifest and configuration name blobs that are there with their
/// sizes, and the layer is what the configuration says (image-spec, "image layout").
fn verify(image: &Path, out: &Path) -> io::Result<()> {
    fresh(out)?;
    run(Command::new("tar").arg("-xf").arg(image).arg("-C").arg(out))?;
    let wrong = |what: String| io::Error::new(ErrorKind::InvalidData, what);
    let blobs = out.join("blobs/sha256");
    for entry in fs::read_dir(&blobs)? {
        let blob = entry?;
        let (name, is) = (blob.file_name().display().to_string(), digest(&blob.path())?);
        if name != is {
            return Err(wrong(format!("the blob {name} has the digest {is}")));
        }
    }
    let mut text = fs::read_to_string(out.join("index.json"))?;
    let mut layer = None;
    // From the index to the manifest, and from that to configuration and layer.
    for _ in 0..2 {
        let described = descriptors(&text);
        for (name, octets) in &described {
            let there = fs::metadata(blobs.join(name)).map(|it| it.len());
            if there.as_ref().ok() != Some(octets) {
                return Err(wrong(format!("{name} has {octets} octets: {there:?}")));
            }
        }
        let (Some((first, _)), last) = (described.first(), described.last()) else {
            return Err(wrong(format!("nothing is described: {text}")));
        };
        text = fs::read_to_string(blobs.join(first))?;
        layer = last.map(|(name, _)| blobs.join(name));
    }
    let unpacked = out.join("layer.tar");
    let octets = output(Command::new("gzip").arg("-dc").args(layer))?;
    write(&unpacked, &octets)?;
    let is = digest(&unpacked)?;
    if !text.contains(&format!("\"diff_ids\":[\"sha256:{is}\"]")) {
        return Err(wrong(format!("the configuration does not name the layer {is}: {text}")));
    }
    fs::remove_dir_all(out)
}

/// Digests and sizes of the descriptors in a text of ours.
fn descriptors(text: &str) -> Vec<(String, u64)> {
    let descriptor = |part: &str| {
        let (digest, rest) = part.split_once("\",\"size\":")?;
        let len = rest.find(|letter: char| !letter.is_ascii_digit())?;
        Some((digest.to_owned(), rest.get(..len)?.parse().ok()?))
    };
    text.split("\"digest\":\"sha256:").skip(1).filter_map(descriptor).collect()
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What a program says, without the line's end.
fn said(command: &mut Command) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&output(command)?).trim().to_owned())
}

/// An empty folder.
fn fresh(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::create_dir_all(folder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of another program, which needs what the command needs.
    #[test]
    fn an_image_fits_together() {
        let out = std::env::temp_dir().join(format!("gatewright-oci-{}", std::process::id()));
        let image = assemble(Path::new("/bin/true"), &out).unwrap();
        let again = fs::read(&image).unwrap();
        assert_eq!(fs::read(assemble(Path::new("/bin/true"), &out).unwrap()).unwrap(), again);
        let read = out.join("read");
        verify(&image, &read).unwrap();
        // A blob that is not what its name says.
        fresh(&read).unwrap();
        run(Command::new("tar").arg("-xf").arg(&image).arg("-C").arg(&read)).unwrap();
        let blob = fs::read_dir(read.join("blobs/sha256")).unwrap().next().unwrap().unwrap();
        let mut octets = fs::read(blob.path()).unwrap();
        octets.push(b' ');
        fs::write(blob.path(), octets).unwrap();
        let other = out.join("other.tar");
        run(Command::new("tar").arg("-cf").arg(&other).arg("-C").arg(&read).arg(".")).unwrap();
        let error = verify(&other, &out.join("read-again")).unwrap_err().to_string();
        assert!(error.contains("has the digest"), "{error}");
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn libraries_are_told_by_their_paths() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        assert_eq!(
            libraries(text),
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
        assert!(libraries("\tstatically linked\n").is_empty());
    }
}
