//! The one list of what set-up installs, `packages.txt`.

/// The list's text.
pub const LIST: &str = include_str!("../packages.txt");

/// Programs of Debian's essential packages, and Rust's own: every machine that builds has them.
const ESSENTIAL: [&str; 14] = [
    "sh", "bash", "cat", "sleep", "setsid", "setpriv", "unshare", "nsenter", "grep", "mount",
    "umount", "tar", "rustc", "cargo",
];

/// A Debian package of the list.
#[derive(Debug, Eq, PartialEq)]
pub struct Package<'a> {
    /// Its name.
    pub name: &'a str,
    /// The programs that tests or the demo start from it.
    pub programs: Vec<&'a str>,
    /// The daemon that it would start at the next boot.
    pub service: Option<&'a str>,
    /// Whether the demo needs it, to be built or to run.
    pub demo: bool,
    /// Why it is needed.
    pub reason: &'a str,
}

/// Reads a list: a line a package, `name | programs | reason`; `#` begins a comment line. Two words
/// stand among the programs: `service NAME`, and `demo`.
///
/// # Errors
///
/// The line that does not have its three columns, a name, or a reason.
pub fn parse(list: &str) -> Result<Vec<Package<'_>>, String> {
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(|line| package(line).ok_or_else(|| format!("not a package: {line}"))).collect()
}

fn package(line: &str) -> Option<Package<'_>> {
    let mut columns = line.split('|').map(str::trim);
    let (name, words, reason) = (columns.next()?, columns.next()?, columns.next()?);
    if name.is_empty() || reason.is_empty() || columns.next().is_some() {
        return None;
    }
    let (mut programs, mut service, mut demo) = (Vec::new(), None, false);
    let mut words = words.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "service" => service = Some(words.next()?),
            "demo" => demo = true,
            program => programs.push(program),
        }
    }
    Some(Package { name, programs, service, demo, reason })
}

/// The packages of the list that the demo needs.
///
/// # Errors
///
/// Those of [`parse`].
pub fn of_demo() -> Result<Vec<Package<'static>>, String> {
    Ok(parse(LIST)?.into_iter().filter(|package| package.demo).collect())
}

/// Whether set-up provides `program`, or every Debian has it.
pub fn provides(packages: &[Package<'_>], program: &str) -> bool {
    ESSENTIAL.contains(&program)
        || packages.iter().any(|package| package.programs.contains(&program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_package() {
        let list =
            "# comment\n\nnginx-light | nginx service nginx | a peer\nlibc6-dev | demo | headers\n";
        let packages = parse(list).unwrap();
        let [nginx, libc] = packages.as_slice() else { panic!("{packages:?}") };
        assert_eq!((nginx.name, nginx.service), ("nginx-light", Some("nginx")));
        assert_eq!((nginx.programs.as_slice(), nginx.reason), (&["nginx"][..], "a peer"));
        assert!(libc.programs.is_empty() && libc.demo && !nginx.demo);
        assert!(provides(&packages, "nginx") && provides(&packages, "sh"));
        assert!(!provides(&packages, "service"));
    }

    #[test]
    fn a_line_without_reason_is_refused() {
        assert_eq!(parse("tshark | tshark |"), Err("not a package: tshark | tshark |".to_owned()));
        assert!(parse("tshark").is_err());
    }
}
