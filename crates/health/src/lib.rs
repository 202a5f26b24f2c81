//! Personal health devices: ISO/IEEE 11073-20601 managers and agents without I/O.
//!
//! An *agent* is a device that measures (an oximeter, a scale, a medication dispenser); a
//! *manager* collects. They associate, agree on a configuration, and then the agent reports.
//! This crate opens no socket and reads no clock: octets and time are arguments.
//!
//! | module | what it is |
//! |---|---|
//! | [`mder`] | The encoding rules: a cursor, lists walked once, a writer. |
//! | [`decimal`] | SFLOAT and FLOAT, decimal to the end. |
//! | [`code`], [`time`] | The nomenclature's codes and the devices' clocks. |
//! | [`apdu`], [`data`], [`report`] | Every APDU, read in place. |
//! | [`configuration`], [`specialisation`], [`kind`] | What an agent is made of; the kinds known by name. |
//! | [`convert`], [`store`] | From octets to observations, live and from a device's store. |
//! | [`association`] | The association machine as two tables, numbered as in the standard. |
//! | [`manager`], [`agent`] | The two sides of an association, sans-IO. |
//! | [`numbers`] | Numbers of reports that wrap, as numbers that grow. |
//! | [`operation`] | What a manager asks of a device. |
//! | [`roster`] | Which device talks through which connection. |
//! | [`simulate`] | Devices with readings from a seed, correct or sloppy. |
//! | [`digest`] | A number by which octets are known again. |
//! | [`frame`] | Where an APDU ends in a TCP stream. |
#![forbid(unsafe_code)]

pub mod agent;
pub mod apdu;
pub mod association;
pub mod code;
pub mod configuration;
pub mod convert;
pub mod data;
pub mod decimal;
pub mod digest;
pub mod frame;
pub mod kind;
pub mod manager;
pub mod mder;
pub mod numbers;
pub mod operation;
pub mod report;
pub mod roster;
pub mod simulate;
pub mod specialisation;
pub mod store;
pub mod time;
