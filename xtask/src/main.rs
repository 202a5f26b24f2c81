//! The project's automation, behind the `Makefile`: `cargo xtask VERB`.
fn main() {}
