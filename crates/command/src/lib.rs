//! The command line of a program that runs gateways.
//!
//! A [`CommandLine`] says a program's name and components, [`verbs!`] its verbs. Those that every gateway has are
//! in [`verbs`], a file each; what they share is the [`Face`](face::Face) towards the user and the
//! [`Exit`](exit::Exit) codes.
#![forbid(unsafe_code)]

mod data_plane;
pub mod description;
pub mod exit;
pub mod face;
mod lines;
pub mod new_file;
mod notify;
mod program;
pub mod signals;
pub mod socket;
pub mod verbs;

pub use program::{CheckPrograms, CommandLine, Verbs, command, main};
