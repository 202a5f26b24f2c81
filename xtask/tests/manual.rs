//! The manual has every page once, and no dead link; each check can fail.
#![allow(clippy::expect_used, reason = "a test may fail loudly")]

use xtask::manual::{dead_links, order};
use xtask::root;
use xtask::tidy::{File, files};

fn repository() -> Vec<File> {
    files(&root()).expect("the repository must be readable")
}

fn example(summary: &str, page: &str) -> [File; 4] {
    [
        File::new("docs/SUMMARY.md", summary),
        File::new("docs/one.md", page),
        File::new("docs/deep/two.md", "# Two words, and a `mark`\n[one](../one.md)\n"),
        File::new("examples/a.toml", ""),
    ]
}

const SUMMARY: &str = "- [one](one.md)\n    - [two](deep/two.md)\n";

#[test]
fn every_page_is_in_the_manual_once() {
    assert_eq!(order(&repository()), Vec::<String>::new());

    assert_eq!(order(&example(SUMMARY, "")), Vec::<String>::new());
    let found = order(&example("- [one](one.md)\n- [one](one.md)\n- [no](no.md)\n", "")).join("\n");
    for part in ["SUMMARY.md:2: docs/one.md", "SUMMARY.md:3: there is no", "docs/deep/two.md: is"] {
        assert!(found.contains(part), "`{part}` is not in:\n{found}");
    }
    assert_eq!(order(&[]).len(), 1);
}

#[test]
fn no_link_of_the_manual_is_dead() {
    assert_eq!(dead_links(&repository()), Vec::<String>::new());

    let good = "# One\n[a](deep/two.md#two-words-and-a-mark) [b](#one) [c](../examples/a.toml) \
                [d](../examples)\n```\n[code](none.md)\n```\n[e](https://example.org/x.md)\n";
    assert_eq!(dead_links(&example(SUMMARY, good)), Vec::<String>::new());
    let bad = "[a](none.md)\n[b](deep/two.md#three)\n";
    let found = dead_links(&example(SUMMARY, bad)).join("\n");
    for part in
        ["docs/one.md:1: there is no docs/none.md", "docs/one.md:2: docs/deep/two.md has no"]
    {
        assert!(found.contains(part), "`{part}` is not in:\n{found}");
    }
}
