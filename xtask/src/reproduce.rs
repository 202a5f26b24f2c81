//! `cargo xtask reproduce`: builds Debian's package twice from the last commit, in two folders, one
//! after the other, with other languages, time zones and file masks, and compares them.

use crate::{
    build::target,
    deb::{self, output, run},
    root,
    step::CommandStep,
};
use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    process::Command,
};

/// The folders, whose paths have different lengths, and what differs in the environment.
const BUILDS: [(&str, &str, &str, &str); 2] = [
    ("first", "C.UTF-8", "UTC", "022"),
    ("second/in-a-deeper-folder", "C", "Pacific/Auckland", "077"),
];

/// Builds twice with the profile, and compares; whether both are the same.
pub fn reproduce(profile: &str) -> bool {
    match compared(profile) {
        Ok(same) => same,
        Err(error) => {
            eprintln!("reproduce: {error}");
            false
        }
    }
}

fn compared(profile: &str) -> io::Result<bool> {
    let out = target().join("reproduce");
    match fs::remove_dir_all(&out) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(&out)?,
    }
    let epoch = deb::epoch()?;
    let archive = out.join("sources.tar");
    run(Command::new("git")
        .current_dir(root())
        .arg("archive")
        .arg("-o")
        .arg(&archive)
        .arg("HEAD"))?;
    let mut packages = Vec::new();
    for (folder, language, zone, mask) in BUILDS {
        let folder = out.join(folder);
        fs::create_dir_all(&folder)?;
        run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&folder))?;
        let script = format!("umask {mask} && exec cargo xtask deb --profile {profile}");
        let step = CommandStep::program("reproduce", "sh", &["-c", &script])
            .environment("LC_ALL", language)
            .environment("TZ", zone)
            .environment("SOURCE_DATE_EPOCH", &epoch)
            .environment("CARGO_TARGET_DIR", &folder.join("target").display().to_string());
        if !step.within(&folder).run() {
            return Err(io::Error::other(format!("no package in {}", folder.display())));
        }
        packages.push(package(&folder.join("target/deb"))?);
        // Of what was built, only the package is needed.
        fs::remove_dir_all(folder.join("target/package"))?;
    }
    let [first, second] = &packages[..] else { return Ok(false) };
    let sums = output(Command::new("sha256sum").args([first, second]))?;
    print!("{}", String::from_utf8_lossy(&sums));
    let same = fs::read(first)? == fs::read(second)?;
    if !same {
        differences(&out, first, second)?;
    }
    println!("== reproduce: {}", if same { "both are the same" } else { "they DIFFER" });
    Ok(same)
}

/// The package in a folder.
fn package(folder: &Path) -> io::Result<PathBuf> {
    let found = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found = found.filter(|path| path.extension().is_some_and(|it| it == "deb"));
    found.next().ok_or_else(|| io::Error::other(format!("{} has no package", folder.display())))
}

/// Names the files that differ.
fn differences(out: &Path, first: &Path, second: &Path) -> io::Result<()> {
    for (package, name) in [(first, "one"), (second, "other")] {
        run(Command::new("dpkg-deb").arg("-R").arg(package).arg(out.join(name)))?;
    }
    let mut diff = Command::new("diff");
    diff.arg("-rq").arg(out.join("one")).arg(out.join("other")).status().map(drop)
}
