//! Reports of the delay lab: the HTML files of the folder `[web] reports`, listed and opened.
//!
//! A report is a page of its own that somebody has put there. It is served in a sandbox (W3C Content
//! Security Policy 3, §6.4.1): it has an origin of its own, runs no script, and loads nothing.

use crate::{
    answer::{HTML, PlainAnswer, WebAnswer, WebRefusal, json, tag_of},
    query::Query,
    site::{Asked, Site},
};
use gatewright_gateway::open_file;
use hyper::{
    StatusCode,
    header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue},
};
use serde::Serialize;
use std::{
    fs::{self, DirEntry, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// Maximum reports of a list; the oldest are left out.
const REPORTS_MAX: usize = 200;

/// Maximum entries of the folder that are looked at.
const ENTRIES_MAX: usize = 4096;

/// Maximum octets of a report that is opened. One of the default experiment has about 2 MiB.
const REPORT_OCTETS_MAX: u64 = 32 * 1024 * 1024;

/// Maximum octets of a report's name.
const NAME_OCTETS_MAX: usize = 128;

/// Octets of a report in which its title is looked for.
const TITLE_WITHIN: u64 = 1024;

/// Maximum characters of a title.
const TITLE_MAX: usize = 200;

/// The policy of a report. Its tables may be saved: `allow-downloads`.
const POLICY: &str = "sandbox allow-downloads; default-src 'none'; style-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A sandboxed document may not ask for a group of its own: a browser refuses to open it
/// (WHATWG HTML §7.4.5, "attempt to populate the history entry's document").
const OPENER_POLICY: (HeaderName, &str) =
    (HeaderName::from_static("cross-origin-opener-policy"), "unsafe-none");

/// A report in a list.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
struct ReportEntry {
    name: String,
    /// The title of the experiment; empty if the file has none.
    title: String,
    octets: u64,
    /// When it was written, in milliseconds since 1970.
    written_ms: u64,
}

/// The reports of a folder, the newest first.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
struct ReportList {
    reports: Vec<ReportEntry>,
    /// Reports that are not in the list.
    left_out: usize,
    /// Why the folder could not be read.
    problem: Option<String>,
}

impl ReportList {
    fn of(folder: &Path) -> Self {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                let problem = Some(format!("{}: {error}", folder.display()));
                return Self { problem, ..Self::default() };
            }
        };
        let found = entries.take(ENTRIES_MAX).filter_map(Result::ok);
        let mut reports: Vec<ReportEntry> = found.filter_map(|entry| listed(&entry)).collect();
        reports.sort_by(|a, b| (b.written_ms, &a.name).cmp(&(a.written_ms, &b.name)));
        let left_out = reports.len().saturating_sub(REPORTS_MAX);
        reports.truncate(REPORTS_MAX);
        for report in &mut reports {
            report.title = title_of(&folder.join(&report.name)).unwrap_or_default();
        }
        Self { reports, left_out, problem: None }
    }
}

/// A file of the folder, if it is a report.
fn listed(entry: &DirEntry) -> Option<ReportEntry> {
    let name = entry.file_name().into_string().ok().filter(|name| is_report_name(name))?;
    // Of a link it is the link's own: what is elsewhere is no report of this folder.
    let metadata = entry.metadata().ok().filter(is_report_file)?;
    let since = metadata.modified().unwrap_or(UNIX_EPOCH).duration_since(SystemTime::UNIX_EPOCH);
    let written_ms = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    Some(ReportEntry { name, title: String::new(), octets: metadata.len(), written_ms })
}

/// Whether a name can be a report's: it leads to no other folder, and is not hidden.
fn is_report_name(name: &str) -> bool {
    let is_plain = |character: char| character != '/' && !character.is_control();
    let is_of_html = name.strip_suffix(".html").is_some_and(|stem| !stem.is_empty());
    is_of_html
        && name.len() <= NAME_OCTETS_MAX
        && !name.starts_with('.')
        && name.chars().all(is_plain)
}

/// Whether a file is of its folder only: a hard link may be to a file that others keep elsewhere.
fn is_report_file(metadata: &fs::Metadata) -> bool {
    metadata.is_file() && metadata.nlink() == 1
}

/// Opens a regular file of the folder.
fn open(path: &Path) -> io::Result<(File, u64)> {
    // A symbolic link may lead out of the folder.
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let file = open_file(path)?;
    // Of what is open, whatever has taken the path meanwhile.
    let metadata = file.metadata()?;
    if !is_report_file(&metadata) {
        return Err(io::Error::other("it is a hard link, or no regular file: copy it there"));
    }
    Ok((file, metadata.len()))
}

/// The title in the head of a report.
fn title_of(path: &Path) -> Option<String> {
    let mut head = Vec::new();
    open(path).ok()?.0.take(TITLE_WITHIN).read_to_end(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head);
    let (title, _) = head.split_once("<title>")?.1.split_once("</title>")?;
    let title: String = title.trim().chars().take(TITLE_MAX).collect();
    // What the lab escapes, in the opposite order.
    let unescaped = title.replace("&quot;", "\"").replace("&gt;", ">").replace("&lt;", "<");
    Some(unescaped.replace("&amp;", "&"))
}

/// Reads the report of this name, or the newest; `None` if there is none.
fn read(folder: &Path, name: Option<&str>) -> Option<Result<Vec<u8>, String>> {
    let newest = || ReportList::of(folder).reports.into_iter().next().map(|report| report.name);
    let name = name.map(str::to_owned).or_else(newest).filter(|name| is_report_name(name))?;
    let (file, length) = match open(&folder.join(&name)) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(format!("{name}: {error}"))),
    };
    if length > REPORT_OCTETS_MAX {
        return Some(Err(format!("{name} is longer than 32 MiB: open the file itself")));
    }
    let mut octets = Vec::new();
    let read = file.take(REPORT_OCTETS_MAX).read_to_end(&mut octets);
    Some(read.map(|_| octets).map_err(|error| format!("{name}: {error}")))
}

impl Site {
    fn reports_folder(&self) -> Result<PathBuf, WebRefusal> {
        let why = "this gateway shows no reports: `reports` in [web] names their folder";
        self.reports().ok_or_else(|| WebRefusal::not_found(why))
    }

    /// The reports of the folder.
    pub(crate) async fn lab_reports(self: &Arc<Self>) -> Result<WebAnswer, WebRefusal> {
        let folder = self.reports_folder()?;
        let list = self.ask(move |_| Ok(ReportList::of(&folder))).await?;
        Ok(json(StatusCode::OK, &list))
    }

    /// A report of the folder, in its sandbox.
    pub(crate) async fn lab_report(
        self: &Arc<Self>,
        asked: &Asked<'_>,
    ) -> Result<WebAnswer, WebRefusal> {
        let folder = self.reports_folder()?;
        let query = Query::parse(asked.head.uri.query(), &["name"])?;
        let name = query.text("name").map(str::to_owned);
        let found = self.ask(move |_| Ok(read(&folder, name.as_deref()))).await?;
        let missing = || {
            let why = "there is no such report: /api/v1/lab/reports lists those there are";
            WebRefusal::not_found(why)
        };
        let octets = found.ok_or_else(missing)?;
        let octets = octets.map_err(|why| WebRefusal::new(StatusCode::CONFLICT, why))?;
        let etag = tag_of(&octets);
        let plain = PlainAnswer::new(HTML, octets).cache("private, no-cache").etag(etag);
        let mut answer = plain.finish(&asked.head.headers);
        for (name, value) in [(CONTENT_SECURITY_POLICY, POLICY), OPENER_POLICY] {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gw-reports-{name}-{}", std::process::id()));
        let _gone = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn named(list: &ReportList) -> Vec<&str> {
        list.reports.iter().map(|report| report.name.as_str()).collect()
    }

    #[test]
    fn a_name_leads_to_no_other_folder() {
        for good in [
            "lab-default.html",
            "a.html",
            "2026_11.v2.html",
            "lab-two relays, \"fast\" & slow.html",
            "ä.html",
        ] {
            assert!(is_report_name(good), "{good}");
        }
        let long = format!("{}.html", "a".repeat(NAME_OCTETS_MAX));
        for bad in [
            "",
            ".html",
            ".hidden.html",
            "../a.html",
            "a/b.html",
            "/etc/passwd",
            "a.htm",
            "a.html ",
            "a\0.html",
            "a\n.html",
            "a.json",
            &long,
        ] {
            assert!(!is_report_name(bad), "{bad}");
        }
    }

    #[test]
    fn the_newest_is_first_and_links_and_folders_are_no_reports() {
        let folder = folder("list");
        let secret = folder.join("secret");
        fs::write(&secret, "secret").unwrap();
        for (name, title, second) in [("old.html", "a &amp;lt; b", 1), ("new.html", "&lt;b&gt;", 2)]
        {
            fs::write(folder.join(name), format!("<title>{title}</title>")).unwrap();
            let file = File::options().append(true).open(folder.join(name)).unwrap();
            file.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(second)).unwrap();
        }
        symlink(&secret, folder.join("link.html")).unwrap();
        fs::hard_link(&secret, folder.join("hard.html")).unwrap();
        fs::create_dir(folder.join("folder.html")).unwrap();
        fs::write(folder.join("run.json"), "{}").unwrap();
        let list = ReportList::of(&folder);
        assert_eq!(named(&list), ["new.html", "old.html"]);
        let titles: Vec<_> = list.reports.iter().map(|it| it.title.as_str()).collect();
        assert_eq!(titles, ["<b>", "a &lt; b"], "unescaped once");
        assert_eq!((list.reports[0].written_ms, list.left_out), (2000, 0));
        assert_eq!(read(&folder, None).unwrap().unwrap(), b"<title>&lt;b&gt;</title>");
        assert!(read(&folder, Some("gone.html")).is_none());
        assert!(read(&folder, Some("../secret")).is_none());
        for other in ["link.html", "folder.html", "hard.html"] {
            assert!(read(&folder, Some(other)).unwrap().unwrap_err().contains("no regular file"));
        }
        let long = File::create(folder.join("long.html")).unwrap();
        long.set_len(REPORT_OCTETS_MAX + 1).unwrap();
        assert!(read(&folder, Some("long.html")).unwrap().unwrap_err().contains("32 MiB"));
        fs::remove_dir_all(&folder).unwrap();
        let gone = ReportList::of(&folder);
        assert!(gone.reports.is_empty() && gone.problem.is_some(), "{gone:?}");
    }

    #[test]
    fn a_full_folder_is_listed_in_part() {
        let folder = folder("full");
        for number in 0..REPORTS_MAX + 7 {
            fs::write(folder.join(format!("{number}.html")), "").unwrap();
        }
        let list = ReportList::of(&folder);
        assert_eq!((list.reports.len(), list.left_out), (REPORTS_MAX, 7));
        fs::remove_dir_all(&folder).unwrap();
    }
}
