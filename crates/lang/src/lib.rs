//! The gateway language's front end: text to a typed program and findings, a pure function.
//!
//! [`ir`] is what the back ends read: `translate` runs it, `emit` writes it as C and Java.
#![forbid(unsafe_code)]

pub mod ir;
