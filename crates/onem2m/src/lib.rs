//! A oneM2M CSE (common services entity) as a state machine without I/O.
//!
//! [`Cse`] takes requests and responses ([`Input`]) and returns [`Output`]: batches of records to
//! store, answers to send, requests to send. It opens no socket, reads no clock and draws no
//! randomness: time is an argument.
//!
//! **Nothing is said before it is stored.** A request that changes the tree is carried out in
//! memory at once and gives a numbered [`Batch`]; its answer, its notifications, and every answer
//! that has seen its effect come out only after [`Input::Committed`] with that number. If the
//! batch could not be stored, [`Input::Failed`] takes it back, and everything built upon it.
//! The stored rows, handed to [`Cse::open`], make the same tree again.
//!
//! | module | holds |
//! |---|---|
//! | [`primitive`] | requests and responses, JSON and CBOR |
//! | [`filter`] | filter criteria |
//! | [`geometry`] | places on the earth, and how they lie to each other |
//! | [`status`], [`fate`] | response status codes and refusals; what an answer means for who asked |
//! | [`resource_type`] | resource types |
//! | [`limits`] | bounds and counters |
//! | `answer_octets` | octets of answers that are not read yet |
//! | [`counters!`] | how counters are declared |
//! | [`audit`] | what an audit log is told |
//! | `schema` | attributes of each resource type |
//! | `schedule`, `prefix` | times that recur; addresses that begin alike |
//! | `unique` | repeated names in JSON and CBOR |
//! | `clock` | the clock that only goes on, and the wall clock, which may be wrong |
//! | `tree`, `resource` | the tree and what it is made of |
//! | `stored` | stored rows as they are read back |
//! | `paged` | instances whose text is in the store only |
//! | `record_block`, `name_hash` | their records as rows of a store; hashes of their names |
//! | [`cse`] | the machine, one file for each kind of request |
//! | [`mqtt`] | a client of MQTT as a machine of its own, and its topics |
//! | [`coap`] | CoAP: its message layer as a machine of its own, and primitives as its messages |
#![forbid(unsafe_code)]

pub mod address;
mod answer_octets;
pub mod audit;
mod clock;
pub mod coap;
mod counters;
pub mod cse;
mod dense;
pub mod fate;
pub mod filter;
pub mod geometry;
mod identity;
mod labels;
pub mod limits;
pub mod mqtt;
mod name_hash;
mod paged;
mod places;
mod prefix;
pub mod primitive;
mod record_block;
mod record_run;
mod release;
mod resource;
pub mod resource_type;
mod schedule;
mod schema;
mod serialisation;
pub mod status;
mod stored;
pub mod time;
mod tree;
mod unique;

pub use answer_octets::{Reservation, SMALL_OCTETS};
pub use clock::{ClockDoubt, Now};
pub use cse::{
    AccessGrant, AccessGround, Batch, Call, CallId, Cse, CseConfig, CseType, DEVICE_QUEUE,
    DeviceCall, Gather, Input, OutboxMessage, Output, ReadError, ReadId, ReadRow, RefusedMessage,
    RefusedRegistration, Registrar, StoredItem, Token, Unreachable, device_address,
};
pub use fate::Fate;
pub use filter::Filter;
pub use identity::CseIdentity;
pub use limits::{Counters, Limits};
pub use name_hash::NameKey;
pub use prefix::network;
pub use primitive::{
    Operation, PartialContent, Release, Request, Response, ResponseType, Serialisation,
};
pub use record_block::{PresentInstances, RecordBlock};
pub use resource_type::ResourceType;
pub use status::{Meaning, Refusal, Status};
pub use stored::{Damage, NoBase, Unreadable};
pub use time::Timestamp;
pub use tree::RowChange;
