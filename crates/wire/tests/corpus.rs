//! The corpus of the fuzz target `wire`, whole, cut short and damaged at every octet, breaks no reader.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod walk;

#[test]
fn the_fuzz_corpus_is_read_or_refused() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/wire");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|f| f.unwrap().path()).collect();
    assert!(files.len() >= 20, "{} files", files.len());
    for file in files {
        let octets = std::fs::read(&file).unwrap();
        for end in 0..=octets.len() {
            walk::walk(octets.get(..end).unwrap());
        }
        for at in 0..octets.len() {
            for value in [0x00, 0x7f, 0xff] {
                let mut damaged = octets.clone();
                *damaged.get_mut(at).unwrap() = value;
                walk::walk(&damaged);
            }
        }
    }
}
