//! `cargo xtask router`: the program for machines with little flash, stripped, with its size held.

use crate::{
    build::{Build, target},
    deb::{DebPlan, in_mib, output, run, write},
};
use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// The package, which is the program's name.
const NAME: &str = "gatewright-router";

/// Maximum size of the program, stripped, in MiB.
const ROUTER_MIB_MAX: f64 = 5.0;

/// Builds the program, or takes it as it is built; whether it is small enough.
pub fn router(plan: &DebPlan) -> bool {
    let build = Build { package: NAME, profile: &plan.profile, is_static: false };
    let made = plan.program.clone().map_or_else(|| build.run(), Ok);
    match made.and_then(|program| stripped(&program, &target().join("router"))) {
        Ok((file, mib)) => {
            println!("== router: {}", file.display());
            println!("== router: router_mib {mib:.2} (at most {ROUTER_MIB_MAX})");
            let small = mib <= ROUTER_MIB_MAX;
            if !small {
                eprintln!("router: the program is too large");
            }
            small
        }
        Err(error) => {
            eprintln!("router: {error}");
            false
        }
    }
}

/// The program without symbols, in the folder `out`, and its size.
fn stripped(program: &Path, out: &Path) -> io::Result<(PathBuf, f64)> {
    let file = out.join(NAME);
    write(&file, &fs::read(program)?)?;
    run(Command::new("strip").args(["--strip-unneeded", "--remove-section=.comment"]).arg(&file))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    // It runs as it is now.
    output(Command::new(&file).arg("version"))?;
    let octets = fs::metadata(&file)?.len();
    Ok((file, in_mib(octets)))
}
