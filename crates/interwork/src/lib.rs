//! Mapping of personal health devices (IEEE 11073) to oneM2M resources and back: pure functions
//! over tables.
//!
//! A device becomes an AE, an object a container, an observation a contentInstance with a unique
//! name. A user's command becomes GET, SET or ACTION, and its result the response. The rules are in
//! a [`Mapping`], which is data.
//!
//! | module | what it is |
//! |---|---|
//! | [`mapping`] | The tables, with defaults for the known kinds of device. |
//! | [`device`] | Device and objects as AE and containers. |
//! | [`instance`] | Observations as contentInstances. |
//! | [`plan`] | Reports of one layout to request primitives, by a plan compiled once. |
//! | [`coap_plan`] | The same as whole CoAP requests, for the data plane. |
//! | [`session`] | One association: its records become readings. |
//! | [`repeats`] | Reports without a time that a device sends once more. |
//! | [`stored`] | Readings as they stand in a CSE, read back. |
//! | [`fhir`] | FHIR resources after the HL7 guide for personal health devices. |
//! | [`home_assistant`] | Devices as entities of Home Assistant, over MQTT. |
//! | [`command`] | The way back: requests as operations, answers as results. |
#![forbid(unsafe_code)]

pub mod coap_plan;
pub mod command;
pub mod device;
pub mod fhir;
pub mod home_assistant;
pub mod instance;
mod json;
pub mod mapping;
pub mod plan;
pub mod repeats;
pub mod session;
pub mod stored;
mod template;

pub use coap_plan::{CoapPlan, CoapWriter};
pub use device::Device;
pub use instance::{Instances, ReadingName, ReportArrival, ReportIdentity};
pub use mapping::Mapping;
pub use plan::ReportPlan;
pub use repeats::Repeats;
pub use session::DeviceAssociation;
