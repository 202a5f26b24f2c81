//! `cargo xtask interop`: tests that want another kernel than this machine's, in virtual machines
//! with Debian's; and those that want a peer from the registry of crates, or a browser.
//!
//! A machine has no disk: a file system in memory is made of busybox, the test programs, what they
//! start, and the modules that they need. Its first process runs the tests and tells their verdicts
//! on the serial line.

mod archive;

use crate::{dashboard, packages::Package, root, setup, step::CommandStep, summary::Summary};
use archive::Archive;
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A kernel, and what is tried with it.
struct KernelPlan {
    /// The package whose dependency is the kernel: small, and made for machines without hardware.
    kernel: &'static str,
    /// Of [`MODULES`], those that it does without.
    without: &'static [&'static str],
    /// The tests: package, test program, and which of its tests; all if that is empty. What the
    /// kernel cannot do they skip by name.
    tests: &'static [(&'static str, &'static str, &'static str)],
}

const PLANS: [KernelPlan; 2] = [
    // Debian 12's own kernel.
    KernelPlan {
        kernel: "linux-image-cloud-amd64",
        without: &[],
        tests: &[
            ("gatewright", "vlan", ""),
            ("gatewright-link", "kernel", "::ping"),
            ("gatewright-link", "kernel", "::the_kernel_between_stays_silent"),
            ("gatewright-planes", "kernels", "packet_socket::"),
            ("gatewright-planes", "kernels", "xdp::"),
            ("gatewright-planes", "returning", "xdp::"),
            ("gatewright-planes", "drivers", "a_link_tells"),
            ("gatewright-planes", "shared_vlans", ""),
            ("gatewright-xdp", "forward", ""),
            ("gatewright-xdp", "label", ""),
        ],
    },
    // The newer one that Debian 12 has beside it: what older ones cannot do, and, without nftables,
    // what keeps the kernel between quiet where that is missing.
    KernelPlan {
        kernel: "linux-image-6.12-cloud-amd64",
        without: &["nf_tables"],
        tests: &[
            ("gatewright-link", "kernel", "::the_kernel_between_stays_silent"),
            ("gatewright-planes", "kernels", "packet_socket::pings_of_every_size"),
            ("gatewright-planes", "kernels", "xdp::frames_of_9000_octets_pass"),
            ("gatewright-planes", "shared", ""),
            ("gatewright-planes", "shared_vlans", ""),
            ("gatewright", "vlan", "xdp::"),
            ("gatewright-xdp", "mpls", ""),
            ("gatewright-planes", "drivers", ""),
            ("gatewright-planes", "process", "by_af_xdp"),
            ("gatewright-xdp", "forward", ""),
            ("gatewright-xdp", "label", ""),
            ("gatewright-data", "driver_reports", ""),
        ],
    },
];

impl KernelPlan {
    /// The plan with the tests of one program only, which stand together; `None` if it has none.
    fn of(self, only: Option<&str>) -> Option<Self> {
        let Some(only) = only else { return Some(self) };
        let is = |(_, program, _): &&(&str, &str, &str)| *program == only;
        let count = self.tests.iter().filter(is).count();
        let first = self.tests.iter().position(|test| is(&test))?;
        let tests = self.tests.get(first..first + count)?;
        Some(Self { tests, ..self })
    }
}

/// What the tests start, beside busybox.
const PROGRAMS: [&str; 11] = [
    "ip",
    "tc",
    "ping",
    "traceroute",
    "tracepath",
    "iperf3",
    "dnsmasq",
    "dig",
    "tshark",
    "dumpcap",
    "ethtool",
];

/// What busybox is there for, under names of its own.
const APPLETS: [&str; 8] = ["sh", "cat", "sleep", "mkdir", "mount", "insmod", "poweroff", "uname"];

/// What the kernels have as modules; what these need themselves is found in them.
const MODULES: [&str; 10] = [
    "8021q",
    "veth",
    "bridge",
    "sch_ingress",
    "cls_bpf",
    "tun",
    "nf_conntrack",
    "nf_tables",
    "mpls_router",
    "mpls_iptunnel",
];

/// What a machine needs beside what set-up installs for every test.
const PACKAGE: Package<'_> = Package {
    name: "qemu-system-x86",
    programs: Vec::new(),
    service: None,
    demo: false,
    reason: "a virtual machine for Debian's kernels",
};

/// How long a virtual machine may take: without hardware's help it is ten times slower.
const LIMIT: Duration = Duration::from_mins(20);

/// What is written before a test's exit code on the serial line.
const VERDICT: &str = "INTEROP";

/// Runs the tests on each kernel, or those of one test program; whether all that could run passed.
pub fn interop(only: Option<&str>) -> bool {
    let start = Instant::now();
    let mut summary = Summary::default();
    if only.is_none() {
        setup::setup();
    }
    setup::install_missing(&[PACKAGE]);
    let plans: Vec<KernelPlan> = PLANS.into_iter().filter_map(|plan| plan.of(only)).collect();
    if plans.is_empty() {
        eprintln!("interop: no kernel has the test program {}", only.unwrap_or_default());
        return false;
    }
    let passed = plans.iter().fold(true, |passed, plan| {
        let ran = match machine(plan) {
            Ok(machine) => machine.run(plan, &mut summary),
            Err(Stop::Missing(what)) => {
                summary.skip(&format!("interop, {}", plan.kernel), &what);
                true
            }
            Err(Stop::Failed(what)) => {
                eprintln!("interop: {}: {what}", plan.kernel);
                false
            }
        };
        passed & ran
    });
    let passed = match only {
        Some(_) => passed,
        None => passed & stamp_peer(&mut summary) & dashboard::interop(&mut summary),
    };
    summary.took(start.elapsed());
    println!("== summary\n{summary}");
    passed
}

/// The peer of STAMP from the registry of crates: built apart from the workspace, whose lock file it does
/// not touch.
const STAMP_PEER: (&str, &str) = ("stamp-suite", "1.0.0");

/// Builds the peer of STAMP, and runs the tests that want it.
fn stamp_peer(summary: &mut Summary) -> bool {
    let (name, version) = STAMP_PEER;
    let folder = target().join("interop").join(name);
    let into = folder.display().to_string();
    let install = ["install", name, "--version", version, "--locked", "--quiet", "--root", &into];
    if !folder.join("bin").join(name).is_file() && !CommandStep::cargo(name, &install).run() {
        summary.skip("STAMP beside stamp-suite", "it cannot be fetched or built");
        return true;
    }
    let package = ["test", "--workspace", "--locked", "--test", "stamp", "stamp_suite"];
    CommandStep::cargo("STAMP beside stamp-suite", &package).run()
}

/// Why there is no machine.
enum Stop {
    /// Something is not installed.
    Missing(String),
    /// Something that should work did not.
    Failed(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A virtual machine that is ready to be started.
struct Machine {
    kernel: PathBuf,
    initramfs: PathBuf,
}

fn machine(plan: &KernelPlan) -> Result<Machine, Stop> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Stop::Missing("the virtual machine is one of amd64".to_owned()));
    }
    if find("qemu-system-x86_64").is_none() {
        let how = "apt-get install --no-install-recommends qemu-system-x86";
        return Err(Stop::Missing(format!("needs the program qemu-system-x86_64 ({how})")));
    }
    let busybox = find("busybox").ok_or_else(|| Stop::Missing("needs busybox".to_owned()))?;
    let folder = target().join("interop");
    std::fs::create_dir_all(&folder)?;
    let (kernel, modules) = debian_kernel(plan.kernel, &folder)?;
    let tests = tests(plan)?;
    let initramfs = folder.join("initramfs");
    let mut archive = Archive::create(&initramfs)?;
    archive.program(&busybox)?;
    for applet in APPLETS {
        archive.link(&format!("usr/bin/{applet}"), &busybox.display().to_string())?;
    }
    for program in PROGRAMS {
        match find(program) {
            Some(path) => archive.program(&path)?,
            None => {
                println!("== interop: {program} is not installed; tests that need it are skipped");
            }
        }
    }
    for program in &tests {
        archive.stripped(program, &folder)?;
    }
    // What the tests of the binary start, which are built with it, and where they write.
    let binary = target().join("debug/gatewright");
    if binary.is_file() {
        archive.stripped(&binary, &folder)?;
    }
    for folder in ["proc", "sys", "dev", "tmp", "run", "root"] {
        archive.folder(folder)?;
    }
    archive.folder(&target().join("tmp").display().to_string())?;
    let mut order = Vec::new();
    for module in MODULES.iter().filter(|module| !plan.without.contains(module)) {
        in_order(module, &modules, &mut order)?;
    }
    let mut loads = String::new();
    for module in &order {
        let name = module.file_stem().unwrap_or_default().display().to_string();
        archive.octets(&format!("modules/{name}"), &plain(module)?, 0o644)?;
        loads.extend(["insmod /modules/", &name, "\n"]);
    }
    archive.text("etc/passwd", "root:x:0:0::/root:/bin/sh\n", 0o644)?;
    archive.text("init", &init(&loads, &tests, plan), 0o755)?;
    archive.finish()?;
    Ok(Machine { kernel, initramfs })
}

/// The first process's script.
fn init(loads: &str, tests: &[PathBuf], plan: &KernelPlan) -> String {
    let mut script = "#!/usr/bin/sh\nexport PATH=/usr/sbin:/usr/bin HOME=/root\n\
        mount -t proc proc /proc\nmount -t sysfs sys /sys\nmount -t devtmpfs dev /dev\n\
        ip link set lo up\n"
        .to_owned();
    script += loads;
    script += "uname -r\n";
    for (test, (_, name, filter)) in tests.iter().zip(plan.tests) {
        let path = test.display().to_string();
        let run = [path.as_str(), " --test-threads=1 --color never ", filter];
        // What they say beside their verdicts would stand in the middle of a line.
        script.extend(run.into_iter().chain([" 2>/said\ncode=$?\ncat /said\n"]));
        script.extend(["echo ", VERDICT, " ", name, " $code\n"]);
    }
    script + "poweroff -f\n"
}

impl Machine {
    /// Starts it, shows what it says, and notes each test; whether all passed.
    fn run(&self, plan: &KernelPlan, summary: &mut Summary) -> bool {
        println!("== interop: starting {}", plan.kernel);
        let mut command = Command::new("qemu-system-x86_64");
        // Not every machine that offers hardware's help can give it; without, this takes minutes.
        command.args(["-machine", "q35", "-accel", "tcg,thread=multi"]);
        command.args(["-cpu", "max", "-smp", "2", "-m", "2048", "-no-reboot", "-nic", "none"]);
        command.args(["-display", "none", "-monitor", "none", "-serial", "stdio"]);
        // On a busy machine the timer's interrupts come too late for the kernel's check of them.
        command.args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check"]);
        command.arg("-kernel").arg(&self.kernel);
        command.arg("-initrd").arg(&self.initramfs).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                eprintln!("interop: qemu-system-x86_64: {error}");
                return false;
            }
        };
        let Some(output) = child.stdout.take() else { return false };
        let (lines, heard) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let (end, mut verdicts) = (Instant::now() + LIMIT, Vec::new());
        // A program of which nothing could run shows nothing.
        let mut shown = false;
        while let Ok(line) = heard.recv_timeout(end.saturating_duration_since(Instant::now())) {
            let line = line.trim_end();
            println!("{line}");
            summary.note(line);
            let ran = line.strip_prefix("test result: ok. ");
            shown |= ran.is_some_and(|ran| !ran.starts_with("0 "));
            if let Some(verdict) = line.strip_prefix(VERDICT) {
                verdicts.push(verdict.ends_with(" 0") && std::mem::take(&mut shown));
            }
        }
        // It has ended by itself, or has had its time.
        let _ended = child.kill();
        let _status = child.wait();
        let _panicked = reader.join();
        let passed = verdicts.len() == plan.tests.len() && verdicts.iter().all(|passed| *passed);
        println!("== interop: {} {}", plan.kernel, if passed { "passed" } else { "FAILED" });
        passed
    }
}

/// Where cargo builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A program on the search path.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The newest kernel behind a package's name and the folder with its modules; fetched once.
fn debian_kernel(wanted: &str, folder: &Path) -> Result<(PathBuf, PathBuf), Stop> {
    let output = Command::new("apt-cache").args(["depends", wanted]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let package = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let package = package.ok_or_else(|| Stop::Missing(format!("needs Debian's {wanted}")))?;
    let version = package.trim_start_matches("linux-image-");
    let tree = folder.join(package);
    let kernel = tree.join(format!("boot/vmlinuz-{version}"));
    if !kernel.is_file() {
        println!("== interop: fetching {package}, which is unpacked and not installed");
        // The package's file comes to the working folder.
        let mut fetch = Command::new("apt-get");
        let fetched = fetch.args(["download", "-qq", package]).current_dir(folder).status();
        let is_package = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().display().to_string();
            name.starts_with(package) && path.extension().is_some_and(|kind| kind == "deb")
        };
        let files = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
        let file = files.filter(is_package).max();
        let (Ok(_), Some(file)) = (fetched, file) else {
            return Err(Stop::Missing(format!(
                "needs Debian's {package}, which cannot be fetched"
            )));
        };
        let unpack = Command::new("dpkg").arg("-x").arg(&file).arg(&tree).status()?;
        std::fs::remove_file(&file)?;
        if !unpack.success() || !kernel.is_file() {
            return Err(Stop::Failed(format!("{package} has no {}", kernel.display())));
        }
    }
    Ok((kernel, tree.join(format!("lib/modules/{version}/kernel"))))
}

/// Builds the test programs.
fn tests(plan: &KernelPlan) -> Result<Vec<PathBuf>, Stop> {
    let mut found = Vec::new();
    for (package, test, _) in plan.tests {
        let build = ["test", "--no-run", "--locked", "--package", package, "--test", test];
        println!("== interop: cargo {}", build.join(" "));
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        command.args(build).current_dir(root()).stderr(Stdio::piped());
        let mut build = command.spawn()?;
        let mut path = None;
        let said = build.stderr.take().map(BufReader::new);
        for line in said.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
            eprintln!("{line}");
            if line.trim_start().starts_with("Executable") {
                path = line.rsplit_once('(').map(|(_, path)| path.trim_end_matches(')').to_owned());
            }
        }
        if !build.wait()?.success() {
            return Err(Stop::Failed(format!("{package}'s test {test} was not built")));
        }
        let path = path.ok_or_else(|| Stop::Failed(format!("where is the test {test}?")))?;
        found.push(root().join(path));
    }
    Ok(found)
}

/// Puts a module into `order` behind those that it needs. One that is built in, or is not there, is
/// left out.
fn in_order(name: &str, folder: &Path, order: &mut Vec<PathBuf>) -> Result<(), Stop> {
    let wanted = format!("{}.ko", name.replace('_', "-"));
    let Some(path) = module(folder, &wanted)? else { return Ok(()) };
    if order.contains(&path) {
        return Ok(());
    }
    for needed in needs(&plain(&path)?) {
        in_order(&needed, folder, order)?;
    }
    order.push(path);
    Ok(())
}

/// A module as kernels take it: newer ones have theirs packed.
fn plain(module: &Path) -> io::Result<Vec<u8>> {
    if module.extension().is_none_or(|kind| kind != "xz") {
        return std::fs::read(module);
    }
    let unpacked = Command::new("busybox").args(["unxz", "-c"]).arg(module).output()?;
    if !unpacked.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&unpacked.stderr).into_owned()));
    }
    Ok(unpacked.stdout)
}

/// The names behind `depends=` in a module.
fn needs(module: &[u8]) -> BTreeSet<String> {
    const KEY: &[u8] = b"\0depends=";
    let at = module.windows(KEY.len()).position(|window| window == KEY);
    let behind = at.and_then(|at| module.get(at + KEY.len()..)).unwrap_or_default();
    let names = behind.split(|octet| *octet == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(names);
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// A file of this name below `folder`, whichever of `-` and `_` it is written with.
fn module(folder: &Path, name: &str) -> io::Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_it = path.file_name().is_some_and(|file| {
            file.to_string_lossy().replace('_', "-").trim_end_matches(".xz") == name
        });
        if path.is_dir() {
            if let Some(found) = module(&path, name)? {
                return Ok(Some(found));
            }
        } else if is_it {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_tells_what_it_needs() {
        let module = b"\x7fELF\0license=GPL\0depends=stp,llc\0name=bridge\0";
        assert_eq!(needs(module), BTreeSet::from(["llc".to_owned(), "stp".to_owned()]));
        assert_eq!(needs(b"\0depends=\0"), BTreeSet::new());
        assert_eq!(needs(b"\0depen"), BTreeSet::new());
    }

    #[test]
    fn the_first_process_tells_each_verdict_and_ends() {
        let plan = KernelPlan { kernel: "", without: &[], tests: &[("", "vlan", "")] };
        let script = init("insmod /modules/veth.ko\n", &["/a/vlan".into()], &plan);
        assert!(script.contains("insmod /modules/veth.ko\n"));
        let run = "/a/vlan --test-threads=1 --color never  2>/said\n";
        assert!(script.contains(run) && script.contains("\necho INTEROP vlan $code\n"), "{script}");
        assert!(script.ends_with("poweroff -f\n"));
    }
}
