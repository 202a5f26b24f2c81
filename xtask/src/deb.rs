//! `cargo xtask deb`: Debian's package of the command, by `dpkg-deb` over a tree that is laid out
//! here.
//!
//! Every file has the time of the last commit and belongs to root, so that the same program gives the
//! same package. It needs no program beyond those of Debian's `dpkg` and `binutils`.

mod booted;
mod control;
pub mod installed;

use crate::{
    build::{Build, target},
    root,
    sbom::sbom,
};
use control::Control;
pub(crate) use control::epoch;
use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// Maximum size of the package, in MiB.
const DEB_MIB_MAX: f64 = 8.0;

/// Files of the repository that are taken as they are, with their places in the package.
const FILES: [(&str, &str); 11] = [
    ("SECURITY.md", "usr/share/doc/gatewright/SECURITY.md"),
    ("packaging/gatewright.service", "lib/systemd/system/gatewright.service"),
    ("packaging/gatewright.socket", "lib/systemd/system/gatewright.socket"),
    ("packaging/gatewright.sysusers", "usr/lib/sysusers.d/gatewright.conf"),
    ("packaging/gatewright.tmpfiles", "usr/lib/tmpfiles.d/gatewright.conf"),
    ("packaging/gatewright.toml", "etc/gatewright/gateway.toml"),
    ("packaging/gatewright.toml", "usr/share/doc/gatewright/examples/gateway.toml"),
    ("packaging/debian/copyright", "usr/share/doc/gatewright/copyright"),
    ("packaging/debian/lintian-overrides", "usr/share/lintian/overrides/gatewright"),
    ("README.md", "usr/share/doc/gatewright/README.md"),
    ("SPECIFICATION.md", "usr/share/doc/gatewright/SPECIFICATION.md"),
];

/// Folders that are taken with the files in them.
const FOLDERS: [(&str, &str); 6] = [
    ("packaging/prometheus", "usr/share/doc/gatewright/examples/prometheus"),
    ("packaging/grafana", "usr/share/doc/gatewright/examples/grafana"),
    ("docs", "usr/share/doc/gatewright/docs"),
    ("examples/gateways", "usr/share/doc/gatewright/examples/gateways"),
    ("examples/lab", "usr/share/doc/gatewright/examples/lab"),
    ("examples/ward", "usr/share/doc/gatewright/examples/ward"),
];

/// Completions: the shell, and the place of its script.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/gatewright"),
    ("zsh", "usr/share/zsh/vendor-completions/_gatewright"),
    ("fish", "usr/share/fish/vendor_completions.d/gatewright.fish"),
];

/// Configuration files, which an upgrade keeps as the administrator has changed them.
const CONFFILES: [&str; 1] = ["etc/gatewright/gateway.toml"];

/// The folder for keys and passwords, which is root's alone.
const CREDENTIALS: &str = "etc/gatewright/credentials";

/// Scripts of the maintainer.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// What to build.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DebPlan {
    /// The profile of cargo.
    pub profile: String,
    /// The revision of the package.
    pub revision: u32,
    /// The command, if it is built already.
    pub program: Option<PathBuf>,
}

impl DebPlan {
    /// Reads `[--profile NAME | --program FILE] [--revision N]`.
    ///
    /// # Errors
    ///
    /// Says which argument is wrong.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut plan = Self { profile: "release".to_owned(), revision: 1, program: None };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("`{word}` takes a value"))?;
            match word.as_str() {
                "--profile" => plan.profile.clone_from(value),
                "--program" => plan.program = Some(PathBuf::from(value)),
                "--revision" => {
                    plan.revision =
                        value.parse().map_err(|_| format!("`{value}` is not a number"))?;
                }
                other => return Err(format!("`deb` has no argument `{other}`")),
            }
        }
        Ok(plan)
    }
}

/// Builds the command and its package; prints where it is and how large.
pub fn deb(plan: &DebPlan) -> bool {
    match build(plan) {
        Ok(_) => true,
        Err(problem) => {
            eprintln!("deb: {problem}");
            false
        }
    }
}

/// Builds the command and its package; returns the package's file.
///
/// # Errors
///
/// Which program failed, or which file cannot be read or written.
pub fn build(plan: &DebPlan) -> io::Result<PathBuf> {
    assemble(&program_of(plan, false)?, plan.revision, &target().join("deb"))
}

/// The command of a plan: the one that it names, or one that is built.
pub(crate) fn program_of(plan: &DebPlan, is_static: bool) -> io::Result<PathBuf> {
    let build = Build { package: "gatewright", profile: &plan.profile, is_static };
    plan.program.clone().map_or_else(|| build.run(), Ok)
}

/// Makes the package of `program` in the folder `out`; returns the package's file.
///
/// # Errors
///
/// As [`build`].
pub fn assemble(program: &Path, revision: u32, out: &Path) -> io::Result<PathBuf> {
    let tree = out.join("tree");
    match fs::remove_dir_all(&tree) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(&tree)?,
    }
    let control = Control::of(program, revision)?;
    lay_out(program, &tree, &control)?;
    readable(&tree)?;
    fs::set_permissions(tree.join(CREDENTIALS), fs::Permissions::from_mode(0o700))?;
    let metadata = tree.join("DEBIAN");
    control.write(&tree, &metadata)?;
    fs::set_permissions(&metadata, fs::Permissions::from_mode(0o755))?;
    for script in SCRIPTS {
        let at = metadata.join(script);
        fs::copy(root().join("packaging/debian").join(script), &at)?;
        fs::set_permissions(&at, fs::Permissions::from_mode(0o755))?;
    }
    let package = out.join(control.file_name());
    // The smallest for a release: it takes minutes, and a package that is only tried needs it not.
    let level = if program.parent().is_some_and(|folder| folder.ends_with("release")) {
        "-z9"
    } else {
        "-z1"
    };
    let mut command = Command::new("dpkg-deb");
    command.env("SOURCE_DATE_EPOCH", control.epoch().to_string());
    command.args(["--root-owner-group", "-Zxz", "--threads-max=1", level, "--build"]);
    run(command.arg(&tree).arg(&package))?;
    let octets = fs::metadata(&package)?.len();
    println!("== deb: {}", package.display());
    println!("== deb: deb_mib {:.2} (at most {DEB_MIB_MAX})", in_mib(octets));
    fs::remove_dir_all(&tree)?;
    Ok(package)
}

/// Puts every file into its place below `tree`.
fn lay_out(program: &Path, tree: &Path, control: &Control) -> io::Result<()> {
    let binary = tree.join("usr/bin/gatewright");
    put(program, &binary)?;
    run(Command::new("strip")
        .args(["--strip-unneeded", "--remove-section=.comment"])
        .arg(&binary))?;
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))?;
    println!("== deb: the program has {:.2} MiB, stripped", in_mib(fs::metadata(&binary)?.len()));
    for (from, to) in FILES {
        put(&root().join(from), &tree.join(to))?;
    }
    for (from, to) in FOLDERS {
        put_folder(&root().join(from), &tree.join(to))?;
    }
    for folder in ["etc/gatewright/conf.d", CREDENTIALS] {
        fs::create_dir_all(tree.join(folder))?;
    }
    for (shell, to) in COMPLETIONS {
        write(&tree.join(to), &output(Command::new(&binary).args(["completion", shell]))?)?;
    }
    let pages = tree.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    output(Command::new(&binary).args(["man", "--output"]).arg(&pages))?;
    for entry in fs::read_dir(&pages)? {
        compress(&entry?.path())?;
    }
    let doc = tree.join("usr/share/doc/gatewright");
    put(&root().join("CHANGELOG.md"), &doc.join("changelog"))?;
    compress(&doc.join("changelog"))?;
    write(&doc.join("sbom.cdx.json"), sbom()?.as_bytes())?;
    write(&doc.join("changelog.Debian"), control.changelog().as_bytes())?;
    compress(&doc.join("changelog.Debian"))
}

/// Gives each folder of a tree, each program and each other file the mode of its kind, whatever the file
/// mask was when it was made.
pub(crate) fn readable(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            readable(&entry.path())?;
        } else {
            let runs = entry.metadata()?.permissions().mode() & 0o100 != 0;
            let mode = if runs { 0o755 } else { 0o644 };
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

/// Copies a file, which everybody may read.
fn put(from: &Path, to: &Path) -> io::Result<()> {
    let octets = fs::read(from)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", from.display())))?;
    write(to, &octets)
}

/// Copies the files of a folder and of those in it.
fn put_folder(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            put_folder(&entry.path(), &to)?;
        } else {
            put(&entry.path(), &to)?;
        }
    }
    Ok(())
}

pub(crate) fn write(to: &Path, octets: &[u8]) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(to, octets)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o644))
}

/// `gzip`, without the file's name and time.
fn compress(file: &Path) -> io::Result<()> {
    run(Command::new("gzip").args(["-9", "-n", "-f"]).arg(file))
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> io::Result<()> {
    output(command).map(drop)
}

/// What a program writes on standard output.
pub(crate) fn output(command: &mut Command) -> io::Result<Vec<u8>> {
    let name = command.get_program().display().to_string();
    let output = command
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{name}: {}: {said}", output.status)))
}

#[expect(clippy::cast_precision_loss, reason = "a size for people")]
pub(crate) fn in_mib(octets: u64) -> f64 {
    octets as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_readable_whatever_the_mask_was() {
        let out = std::env::temp_dir().join(format!("gatewright-modes-{}", std::process::id()));
        let (folder, file, program) = (out.join("a"), out.join("a/file"), out.join("a/program"));
        fs::create_dir_all(&folder).unwrap();
        for (at, mode) in [(&file, 0o600), (&program, 0o700)] {
            fs::write(at, "").unwrap();
            fs::set_permissions(at, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        readable(&out).unwrap();
        let mode = |at: &Path| fs::metadata(at).unwrap().permissions().mode() & 0o777;
        assert_eq!([&folder, &file, &program].map(|at| mode(at)), [0o755, 0o644, 0o755]);
        fs::remove_dir_all(&out).unwrap();
    }

    /// The files of the repository that a path or a pattern (`FOLDER/*.END`) of the ward's example means,
    /// read in the folder `from` of a tree whose folders are those of the repository as `places` says.
    fn meant(from: &str, pattern: &str, places: &[(&str, &str)]) -> Vec<String> {
        let mut folder: Vec<&str> = from.split('/').collect();
        let (above, name) = pattern.rsplit_once('/').unwrap_or((".", pattern));
        for step in above.split('/') {
            match step {
                "." => {}
                ".." => {
                    folder.pop();
                }
                step => folder.push(step),
            }
        }
        let folder = folder.join("/");
        let Some((of, _)) = places.iter().find(|(_, place)| *place == folder) else {
            return Vec::new();
        };
        let files = fs::read_dir(root().join(of)).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let is_meant = |file: &String| match name.strip_prefix('*') {
            Some(end) => file.ends_with(end),
            None => file == name,
        };
        names.filter(is_meant).collect()
    }

    /// Prometheus ignores a pattern that finds no file, and an administrator would miss the rules.
    #[test]
    fn the_wards_example_finds_its_rules_in_the_sources_and_in_the_package() {
        let file = fs::read_to_string(root().join("examples/ward/prometheus.yml")).unwrap();
        let (_, rules) = file.split_once("rule_files:\n").unwrap();
        let rules: Vec<&str> =
            rules.lines().filter_map(|line| line.trim().strip_prefix("- ")).collect();
        let sources = FOLDERS.map(|(of, _)| (of, of));
        for (from, places) in
            [("examples/ward", sources), ("usr/share/doc/gatewright/examples/ward", FOLDERS)]
        {
            let mut found: Vec<String> =
                rules.iter().flat_map(|rule| meant(from, rule, &places)).collect();
            found.sort();
            assert_eq!(found, ["gatewright.rules.yml", "ward.rules.yml"], "{from}");
        }
    }

    #[test]
    fn arguments_are_read() {
        let parse = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            DebPlan::parse(&words)
        };
        assert_eq!(
            parse(""),
            Ok(DebPlan { profile: "release".to_owned(), revision: 1, program: None })
        );
        let demo = DebPlan { profile: "demo".to_owned(), revision: 2, program: None };
        assert_eq!(parse("--profile demo --revision 2"), Ok(demo));
        assert!(parse("--profile").is_err() && parse("--revision x").is_err());
        assert!(parse("--fast yes").is_err());
    }
}
