//! The IP counter of the EZgate paper (its Figs. 6 and 7): counts the IP packets of one link.
//!
//! `cargo run --example ip_counter -- eth0`, as root.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use gatewright_gateway::{Planes, Setup};
use gatewright_stack::{At, Attachment, Place, tap};
use gatewright_wire::EtherType;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut setup = Setup::new(1);
    setup.link("lan", &std::env::args().nth(1).ok_or("name an interface")?);
    let gateway = Planes::open(&setup)?;
    let mut count = 0;
    let counter = tap(move |batch| {
        count += batch.len();
        println!("current packet count: {count}");
    });
    gateway.attach(Attachment::new(At::EtherType(EtherType::IPV4), Place::Tap), counter)?;
    loop {
        std::thread::park();
    }
}
