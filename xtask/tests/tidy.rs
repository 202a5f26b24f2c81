//! The repository is tidy, and each check can fail: it is also asked about an untidy example.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use std::process::Command;
use std::sync::OnceLock;
use xtask::tidy::{File, code, files, manifests, pages, rooms, shape, text};
use xtask::{packages, root};

fn repository() -> &'static [File] {
    static FILES: OnceLock<Vec<File>> = OnceLock::new();
    FILES.get_or_init(|| files(&root()).expect("the repository must be readable"))
}

fn file(path: &str) -> &'static File {
    let found = repository().iter().find(|file| file.path == path);
    found.unwrap_or_else(|| panic!("{path} is missing"))
}

fn assert_tidy(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

/// The check finds exactly these in the example, named by a part of the finding.
fn assert_finds(findings: &[String], parts: &[&str]) {
    let all = findings.join("\n");
    assert_eq!(findings.len(), parts.len(), "{all}");
    for part in parts {
        assert!(all.contains(part), "`{part}` is not in:\n{all}");
    }
}

/// A crate's manifest as it should be.
fn manifest(name: &str, floor: u8, rest: &str) -> File {
    File::new(
        format!("crates/{name}/Cargo.toml"),
        format!(
            "[package]\nname = \"gatewright-{name}\"\ndescription = \"A\"\n\
             [package.metadata.gatewright]\nfloor = {floor}\n[lints]\nworkspace = true\n{rest}"
        ),
    )
}

#[test]
fn a_crate_uses_lower_floors_only() {
    let crates = manifests::crates(repository());
    assert!(crates.len() >= 5, "{} crates found", crates.len());
    assert_tidy(&manifests::floors(&crates));

    let files = [
        manifest("ant", 1, "[dependencies]\ngatewright-bee.workspace = true\n"),
        manifest("bee", 0, "[dev-dependencies]\ngatewright-ant = { workspace = true }\n"),
        manifest("owl", 1, "[target.'cfg(unix)'.dependencies.gatewright-gnu]\n"),
        File::new("crates/fly/Cargo.toml", "[package]\nname = \"gatewright-fly\"\n"),
    ];
    let findings = manifests::floors(&manifests::crates(&files));
    let parts = ["bee on floor 0 uses ant, which is on floor 1", "fly/Cargo.toml: no floor"];
    assert_finds(&findings, &[parts[0], parts[1], "uses gnu"]);
}

#[test]
fn the_lock_file_of_the_fuzz_targets_is_up_to_date() {
    let crates = manifests::crates(repository());
    assert_tidy(&manifests::stale_lock(file("fuzz/Cargo.lock"), &crates));

    let uses = "[dependencies]\ngatewright-bee.workspace = true\n[dev-dependencies]\ngatewright-fly = {}\n";
    let ant = manifests::Manifest::read(&manifest("ant", 1, uses));
    let lock = |uses: &str| {
        let text = format!("[[package]]\nname = \"gatewright-ant\"\ndependencies = [\n{uses}]\n");
        manifests::stale_lock(&File::new("fuzz/Cargo.lock", text), std::slice::from_ref(&ant))
    };
    assert_tidy(&lock(" \"gatewright-bee\",\n"));
    assert_finds(&lock(" \"gatewright-beetle\",\n"), &["ant without bee"]);
}

#[test]
fn the_map_tells_the_floors() {
    let crates = manifests::crates(repository());
    assert_tidy(&manifests::floor_table(file("ARCHITECTURE.md"), &crates));

    let ant = manifests::Manifest::read(&manifest("ant", 1, ""));
    let table = |rows: &str| {
        let page = File::new("MAP.md", format!("| floor | crate |\n|---|---|\n{rows}"));
        manifests::floor_table(&page, std::slice::from_ref(&ant))
    };
    assert_tidy(&table("| 1 | `ant`, `bee` | small |\n"));
    assert_finds(&table("| 2 | `ant` | small |\n"), &["floor 1, in MAP.md: 2"]);
    assert_finds(&table(""), &["floor 1, in MAP.md: none"]);
}

#[test]
fn the_map_names_every_file_of_its_tables_and_none_that_is_gone() {
    assert_tidy(&rooms::rooms(file("ARCHITECTURE.md"), repository()));

    let paths = ["ant/src/lib.rs", "ant/src/leg.rs", "ant/src/leg/foot.rs", "ant/src/eye/mod.rs"];
    let files = paths.map(|path| File::new(format!("crates/{path}"), ""));
    let map = |row: &str| {
        let table = format!("### Rooms in `ant`\n\n| file | what |\n|---|---|\n{row}\n## Fleas\n");
        rooms::rooms(&File::new("MAP.md", format!("{table}| `flea.rs` | gone |\n")), &files)
    };
    assert_tidy(&map("| `leg.rs`, `eye/mod.rs` | limbs |"));
    assert_tidy(&map("| `leg.rs` | six; `eye/` has two |"));
    let findings = map("| `leg.rs`, `wing.rs` | limbs |");
    assert_finds(&findings, &["MAP.md:5: there is no `wing.rs`", "MAP.md:1: crates/ant/src/eye"]);
}

#[test]
fn every_package_inherits_lints_and_says_what_it_is() {
    let all = repository().iter().filter(|file| file.name() == "Cargo.toml");
    let members = all.filter(|file| file.path != "Cargo.toml" && !file.path.starts_with("fuzz/"));
    let members: Vec<_> = members.map(manifests::Manifest::read).collect();
    assert!(members.len() > manifests::crates(repository()).len(), "xtask is a member, too");
    assert_tidy(&manifests::manners(&members));

    let bare = File::new("crates/bee/Cargo.toml", "[package]\nname = \"gatewright-ant\"\n");
    let findings = manifests::manners(&[manifests::Manifest::read(&bare)]);
    assert_finds(&findings, &["lints", "no description", "folder bee, package ant"]);
}

#[test]
fn no_advisory_is_ignored() {
    assert_tidy(&manifests::advisories(file("deny.toml")));
    for untidy in ["", "[advisories]\nignore = [\"RUSTSEC-2026-0001\"]", "[bans]\nignore = []"] {
        let findings = manifests::advisories(&File::new("deny.toml", untidy));
        assert_finds(&findings, &["ignore = []"]);
    }
}

#[test]
fn the_default_build_stays_small() {
    let tree = ["tree", "--locked", "--edges", "normal,build", "--prefix", "none"];
    let output = Command::new(env!("CARGO")).current_dir(root()).args(tree).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_tidy(&manifests::package_count(&String::from_utf8_lossy(&output.stdout)));

    let packages = |count: usize| {
        let lines = (0..count).map(|n| format!("p{n} v1.0.0 (*)\np{n} v1.0.0\n"));
        manifests::package_count(&lines.collect::<String>())
    };
    assert_tidy(&packages(220));
    assert_finds(&packages(221), &["221 packages"]);
    assert_finds(&packages(0), &["nothing"]);
}

#[test]
fn files_have_at_most_800_lines() {
    assert_tidy(&text::long_files(repository()));
    let files = |lines: usize| {
        let text = "x\n".repeat(lines);
        ["a.rs", "tests/snapshots/a.rs", "a.pcap"].map(|path| File::new(path, text.clone()))
    };
    assert_tidy(&text::long_files(&files(800)));
    assert_finds(&text::long_files(&files(801)), &["a.rs: 801 lines"]);
}

#[test]
fn functions_have_at_most_70_lines_in_every_language() {
    assert_tidy(&text::long_functions(repository()));
    let files = |rounds: usize, more: &str| {
        let body = format!("{}{more}", "    x = 1;\n    if (x) {\n    }\n".repeat(rounds));
        [
            File::new("a.c", format!("static int f(int x) {{\n{body}}}\n")),
            File::new("A.java", format!("class A {{\n  int f() {{\n{body}  }}\n}}\n")),
            File::new("a.ts", format!("export function f() {{\n{body}}}\n")),
        ]
    };
    assert_tidy(&text::long_functions(&files(22, "    y();\n    y();\n")));
    let parts = ["a.c:1: 71 lines", "A.java:2: 71 lines", "a.ts:1: 71 lines"];
    assert_finds(&text::long_functions(&files(23, "")), &parts);
}

#[test]
fn no_note_to_oneself_is_left() {
    assert_tidy(&text::leftovers(repository()));
    let notes = [concat!("TO", "DO"), concat!("FIX", "ME")];
    let files = notes.map(|note| {
        File::new("a.rs", format!("// {note}: later\nlet x_{note} = {};\n", note.to_lowercase()))
    });
    assert_finds(&text::leftovers(&files), &["a.rs:1", "a.rs:1"]);
}

#[test]
fn no_merge_is_left_unfinished() {
    assert_tidy(&text::merge_marks(repository()));
    let marked = format!("a\n{0} HEAD\nb\n=======\nc\n{1} other\n", "<".repeat(7), ">".repeat(7));
    let findings = text::merge_marks(&[File::new("a.md", marked)]);
    assert_finds(&findings, &["a.md:2", "a.md:6"]);
    assert_tidy(&text::merge_marks(&[File::new("a.md", "Heading\n=======\n<<<<<<<<\n")]));
}

#[test]
fn no_path_of_one_machine_is_told() {
    assert_tidy(&text::machine_paths(repository()));
    let (root, shared) = (concat!("/ro", "ot/x"), concat!("../sha", "red/y"));
    let lines = format!("see {root}\nhttps://example.org{root}\n\"{shared}\"\nnet/{root}\n");
    let findings = text::machine_paths(&[File::new("a.md", lines)]);
    assert_finds(&findings, &["a.md:1", "a.md:3"]);
}

#[test]
fn an_rfc_is_cited_one_way() {
    assert_tidy(&text::citations(repository()));
    let good = "RFC 791 §3.1, RFC 4944 §5.3 and (RFC 768). RFC 8200 §A.2; rfc1071_section_3, \
                rfc-editor.org/rfc/rfc791, rfcs/rfc791.txt";
    assert_tidy(&text::citations(&[File::new("a.rs", good)]));
    // Each in pieces, so that this file is not among the findings.
    for tail in ["791", "-791", " 0791", " 791 section 3", " 791, section 3", " 791 § 3", "  791"]
    {
        let findings = text::citations(&[File::new("a.rs", format!("//! RFC{tail}."))]);
        assert_eq!(findings.len(), 1, "RFC{tail}");
    }
    for tail in ["791, §3", "791§3", "791 §§3"] {
        let findings = text::citations(&[File::new("a.rs", format!("//! RFC {tail}."))]);
        assert_eq!(findings.len(), 1, "RFC {tail}");
    }
}

#[test]
fn unsafe_code_stays_in_its_crates() {
    assert_tidy(&code::unsafe_code(repository()));
    let opened = concat!("#![forbid(unsafe_code)]\n#![expect(", "unsafe_code)]");
    let files = [
        File::new("crates/ant/src/lib.rs", "//! No words about unsafe."),
        File::new("crates/bee/src/main.rs", opened),
        File::new("crates/packet/src/lib.rs", opened),
    ];
    assert_finds(&code::unsafe_code(&files), &["ant/src/lib.rs: no", "bee/src/main.rs:2"]);
}

#[test]
fn no_rust_file_is_dead() {
    assert_tidy(&code::dead_files(repository()));
    let root = "mod a;\npub(crate) mod b;\n#[path = \"x/y.rs\"]\nmod z;\n";
    let files = [
        ("lib.rs", root),
        ("a.rs", "mod c;\n"),
        ("a/c.rs", ""),
        ("b/mod.rs", "mod d;\n"),
        ("b/d.rs", ""),
        ("c.rs", ""),
        ("x/y.rs", ""),
        ("dead.rs", "mod deader;"),
        ("dead/deader.rs", ""),
        ("bin/tool.rs", ""),
    ];
    let files = files.map(|(path, text)| File::new(format!("crates/ant/src/{path}"), text));
    let parts = ["src/c.rs", "src/dead.rs", "src/dead/deader.rs"];
    assert_finds(&code::dead_files(&files), &parts);
}

#[test]
fn a_type_name_means_one_thing() {
    assert_tidy(&shape::ambiguous_names(repository(), 10));
    let define = |file: &str, text: &str| File::new(format!("crates/{file}.rs"), text);
    let mut files = vec![
        define("ant/src/a", "pub struct Leg {\n"),
        define("ant/src/b", "pub(crate) enum Leg {\n    struct Leg\n}\n"),
        define("bee/src/c", "struct Leg;\nstruct Legs;\n"),
        define("bee/src/d", "struct Wing;\n#[cfg(test)]\nmod tests {\nstruct Leg;\n"),
        define("bee/tests/e", "struct Leg;\n"),
    ];
    assert_tidy(&shape::ambiguous_names(&files, 0));
    files.push(define("bee/src/f", "trait Leg<T> {\n"));
    assert_tidy(&shape::ambiguous_names(&files, 1));
    assert_finds(&shape::ambiguous_names(&files, 0), &["1 type names", "Leg: 4 definitions"]);
}

#[test]
fn a_circle_of_files_in_a_crate_is_short_and_on_the_map() {
    assert_tidy(&shape::file_circles(file("ARCHITECTURE.md"), repository(), 4));
    let files = [
        ("lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
        ("a.rs", "use crate::{\n    A,\n    b::{self, c::D as E},\n};\n"),
        ("b/mod.rs", "mod c;\npub(crate) use c::D;\n"),
        ("b/c.rs", "// use crate::e::E;\nfn f() { super::super::d::f(); }\n"),
        ("d.rs", "use crate::a::A;\n"),
        ("e.rs", "use crate::a::A;\n"),
    ];
    let files = files.map(|(path, text)| File::new(format!("crates/ant/src/{path}"), text));
    let row = "| `ant` | `a`, `b/c`, `d` |";
    let map =
        |rows: &str| File::new("MAP.md", format!("## Circles of files\n\n{rows}\n\n## Fleas\n"));
    assert_tidy(&shape::file_circles(&map(row), &files, 3));
    let long = "crates/ant: a circle of 3: a, b/c, d";
    assert_finds(&shape::file_circles(&map(""), &files, 2), &[long]);
    assert_finds(&shape::file_circles(&map(""), &files, 3), &["MAP.md: no row | `ant`"]);
    let other = format!("{row}\n| `ant` | `a`, `d`, `e` |");
    assert_finds(&shape::file_circles(&map(&other), &files, 3), &["no such circle: | `ant`"]);
}

#[test]
fn every_snapshot_has_its_test() {
    assert_tidy(&code::snapshots(repository()));
    let snapshot = |name: &str, source: &str| {
        File::new(
            format!("crates/ant/tests/snapshots/{name}"),
            format!("---\nsource: crates/ant/tests/{source}\n---\n"),
        )
    };
    let files = [
        File::new("crates/ant/tests/t.rs", "fn crawls() {}"),
        File::new("crates/ant/tests/cases/hill.toml", ""),
        snapshot("t__crawls.snap", "t.rs"),
        snapshot("t__crawls-2.snap", "t.rs"),
        snapshot("t__cases@hill.toml.snap", "t.rs"),
        snapshot("t__hill.snap", "t.rs"),
        snapshot("t__flies.snap", "t.rs"),
        snapshot("u__crawls.snap", "u.rs"),
        snapshot("t__crawls.snap.new", "t.rs"),
    ];
    let parts = ["no test in crates/ant/tests/t.rs", "u.rs` is gone", "snap.new: not an accepted"];
    assert_finds(&code::snapshots(&files), &parts);
}

#[test]
fn every_fuzz_target_has_a_corpus_that_a_test_replays() {
    assert_tidy(&code::fuzz_targets(repository()));
    let good = [
        ("fuzz/fuzz_targets/ant.rs", ""),
        ("fuzz/corpus/ant/seed", ""),
        ("fuzz/Cargo.toml", "path = \"fuzz_targets/ant.rs\"\n"),
        ("crates/ant/tests/t.rs", "\"/../../fuzz/corpus/ant\""),
    ];
    let files = |count| -> Vec<File> {
        good.iter().take(count).map(|&(path, text)| File::new(path, text)).collect()
    };
    assert_tidy(&code::fuzz_targets(&files(4)));
    assert_finds(&code::fuzz_targets(&files(3)), &["ant.rs: no test replays"]);
    let parts = ["not in fuzz/Cargo.toml", "no corpus", "no test replays"];
    assert_finds(&code::fuzz_targets(&files(1)), &parts);
}

#[test]
fn every_program_of_the_tests_is_set_up() {
    let packages = packages::parse(packages::LIST).expect("the list must be readable");
    assert_tidy(&code::test_programs(repository(), &packages));
    let asks = ["sh", "ghost"].map(|name| format!("needs.program({name:?})")).join("");
    let starts = format!("Command::new({:?})", "spirit");
    let test = File::new("crates/ant/tests/t.rs", format!("{asks}\n{starts}\n"));
    let parts = ["t.rs:1: `ghost`", "t.rs:2: `spirit`"];
    assert_finds(&code::test_programs(&[test], &packages), &parts);
}

#[test]
fn every_program_of_the_demo_is_set_up_for_it() {
    let packages = packages::of_demo().expect("the list must be readable");
    assert_tidy(&code::demo_programs(repository(), &packages));
    let all = packages::parse(packages::LIST).expect("the list must be readable");
    assert!(packages.len() < all.len() / 2, "the demo installs what only tests need");
    let starts = format!(".command({:?})\n.program({:?})", "ping", "tshark");
    let demo = File::new("crates/gatewright/src/verbs/demo/checks.rs", starts);
    assert_finds(&code::demo_programs(&[demo], &packages), &["checks.rs:2: `tshark`"]);
}

#[test]
fn every_target_of_the_makefile_is_a_verb() {
    let makefile = file("Makefile");
    let help = &file("xtask/src/main.rs").text;
    assert_tidy(&pages::targets_without_verb(makefile, help));
    let ghost = File::new("Makefile", "ghost: ; cargo xtask ghost\n.PHONY: ghost\n");
    assert_finds(&pages::targets_without_verb(&ghost, help), &["no verb `ghost`"]);
}

#[test]
fn the_pages_tell_commands_that_exist() {
    let makefile = file("Makefile");
    let told: Vec<&File> = repository().iter().filter(|file| file.extension() == "md").collect();
    assert!(!told.is_empty(), "no page found");
    assert_tidy(&pages::told_targets(&told, makefile));
    let lines = "Run `make ghost` or\n\n    make test\n\nmake haste\n```\n$ make spirit\n```\n";
    let page = File::new("a.md", lines);
    let parts = ["a.md:1: there is no `make ghost`", "a.md:7: there is no `make spirit`"];
    assert_finds(&pages::told_targets(&[&page], makefile), &parts);
}

#[test]
fn the_pages_tell_verbs_that_exist() {
    let list = file("crates/gatewright/src/verbs.rs");
    let told: Vec<&File> = repository().iter().filter(|file| file.extension() == "md").collect();
    assert_tidy(&pages::told_verbs(&told, list));
    let page = File::new("a.md", "`gatewright check x`, `gatewright fly`, `gatewright --json`\n");
    assert_finds(&pages::told_verbs(&[&page], list), &["a.md:1: there is no `gatewright fly`"]);
}

#[test]
fn the_tests_that_show_what_the_cse_withstands_exist() {
    let sources: Vec<&File> = repository().iter().filter(|file| file.extension() == "rs").collect();
    let faults = pages::section(file("SPECIFICATION.md"), "Faults that the CSE withstands");
    assert!(faults.lines().filter(|(_, line)| line.contains("| `")).count() > 20, "no table");
    assert_tidy(&pages::told_tests(&faults, &sources));
    let page = File::new(
        "a.md",
        "# A\n\n## B\n\n| f | `x_y` | `a_b`, `c_d`, `bench e` |\n\n## C\n| `e_f` |\n",
    );
    let source = File::new("a.rs", "fn a_b() {}");
    let findings = pages::told_tests(&pages::section(&page, "B"), &[&source]);
    assert_finds(&findings, &["a.md:5: there is no test `c_d`"]);
}

#[test]
fn the_readme_has_two_commands_and_integration_runs_the_second() {
    let (makefile, ci) = (file("Makefile"), file(".ci/run"));
    assert_tidy(&pages::two_commands(file("README.md"), makefile, ci));
    let good = File::new("README.md", "make demo\nmake test\n");
    assert_tidy(&pages::two_commands(&good, makefile, ci));
    let (bad, idle) = (File::new("README.md", "make test"), File::new(".ci/run", "cargo test"));
    let findings = pages::two_commands(&bad, &File::new("Makefile", "demo: ;\n"), &idle);
    assert_finds(&findings, &["does not tell `make demo`", "no target `test`", "does not run"]);
}
