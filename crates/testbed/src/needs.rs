use crate::Namespace;
use std::fmt;
use std::sync::OnceLock;

/// What a test needs from the machine, tried at run time.
///
/// ```
/// use gatewright_testbed::Needs;
///
/// if let Some(missing) = Needs::new().namespaces().program("iperf3").missing() {
///     println!("skipped: {missing}");
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Needs {
    missing: Vec<String>,
}

impl Needs {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Namespaces can be made: root (or `CAP_SYS_ADMIN`) and the `ip` program.
    #[must_use]
    pub fn namespaces(mut self) -> Self {
        static ANSWER: OnceLock<Option<String>> = OnceLock::new();
        let answer = ANSWER.get_or_init(|| match Namespace::new() {
            Ok(_) => None,
            Err(_) if !nix::unistd::geteuid().is_root() => Some("root".to_owned()),
            Err(error) => Some(format!("namespaces ({error})")),
        });
        self.missing.extend(answer.clone());
        self
    }

    /// A program on the search path.
    #[must_use]
    pub fn program(mut self, name: &str) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut directories = std::env::split_paths(&path);
        if !directories.any(|directory| directory.join(name).is_file()) {
            self.missing.push(format!("the program {name}"));
        }
        self
    }

    /// A kernel of at least this version.
    #[must_use]
    pub fn linux(mut self, major: u32, minor: u32) -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        if version(&release).is_none_or(|found| found < (major, minor)) {
            self.missing.push(format!("Linux {major}.{minor}"));
        }
        self
    }

    /// What is missing, or `None` if the test can run.
    pub fn missing(self) -> Option<Missing> {
        (!self.missing.is_empty()).then_some(Missing(self.missing))
    }
}

/// The first two numbers of a kernel's release (`6.1.0-37-amd64`).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// What the machine lacks; shown as `root, the program iperf3`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Missing(Vec<String>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_compared_by_its_numbers() {
        assert_eq!(version("6.1.0-37-amd64"), Some((6, 1)));
        assert_eq!(version("6.18.44"), Some((6, 18)));
        assert_eq!(version("unknown"), None);
        assert_eq!(Needs::new().linux(2, 6).missing(), None);
        assert_eq!(Needs::new().linux(99, 0).missing().unwrap().to_string(), "Linux 99.0");
    }

    #[test]
    fn a_missing_program_is_named() {
        let missing = Needs::new().program("sh").program("no-such-program").missing();
        assert_eq!(missing.unwrap().to_string(), "the program no-such-program");
        assert_eq!(Needs::new().program("sh").missing(), None);
    }
}
