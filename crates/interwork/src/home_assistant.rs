//! Devices as Home Assistant finds them over MQTT: what is published so that each quantity of a device
//! becomes an entity there.
//!
//! By the documentation of Home Assistant ("MQTT", section "MQTT Discovery"; "MQTT Sensor"; "Sensor",
//! section "Device class"):
//!
//! - An entity is announced by a retained JSON object at `PREFIX/COMPONENT/OBJECT_ID/config`, whose
//!   OBJECT_ID has the characters `[a-zA-Z0-9_-]`. An entity of a device has a `unique_id`.
//! - A `sensor` takes its state from `state_topic`. A `device_class` allows certain units only.
//! - An entity is unavailable while its `availability_topic` says `offline`, which the last will of the
//!   connection says when the connection is lost.
//!
//! An [`Announcer`] is pure: readings go in, publications come out.

use crate::mapping::{Mapping, ValueSource};
use gatewright_health::code::SystemId;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};

/// Devices that are announced; further ones are counted.
const DEVICES_MAX: usize = 1_000;
/// Entities of one device; further ones are counted.
const ENTITIES_MAX: usize = 32;
/// Publications that wait; further ones are counted.
const WAITING_MAX: usize = 1_024;
/// Characters of a state (Home Assistant, "State and state object").
const STATE_MAX: usize = 255;
/// Octets of an entity's key.
const KEY_MAX: usize = 64;

/// Where devices are announced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AnnouncerSettings {
    /// Prefix of announcements: `homeassistant` unless Home Assistant was told otherwise.
    pub prefix: String,
    /// First level of the topics of states, and of the gateway's availability.
    pub topic: String,
    /// Version of this program.
    pub version: String,
}

/// Something to be published.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Publication {
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: String,
    /// Whether the broker keeps it for later subscribers.
    pub retain: bool,
}

/// A reading as it was delivered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeliveredReading {
    /// The device.
    pub system_id: SystemId,
    /// Its kind.
    pub kind: &'static str,
    /// Name of the container.
    pub container: String,
    /// The content of the instance.
    pub content: Value,
}

/// What was not published, by cause.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AnnouncerCounters {
    /// Devices and quantities beyond the limits.
    pub full: u64,
    /// Readings without a value that a state can be.
    pub unstated: u64,
    /// Publications that gave way to later ones.
    pub dropped: u64,
}

/// A quantity of a device.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Entity {
    /// Its name for people.
    name: String,
    /// Its unit in the form of Home Assistant; empty if it has none.
    unit: String,
    /// Its device class.
    class: Option<&'static str>,
    /// Whether its values are numbers.
    is_number: bool,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct AnnouncedDevice {
    kind: &'static str,
    is_associated: bool,
    entities: BTreeMap<String, Entity>,
}

/// Announces devices and publishes their readings.
#[derive(Debug)]
pub struct Announcer {
    settings: AnnouncerSettings,
    /// Names of members: value, unit, name of the quantity.
    members: [String; 3],
    devices: BTreeMap<SystemId, AnnouncedDevice>,
    outputs: VecDeque<Publication>,
    /// What was not published.
    pub counters: AnnouncerCounters,
}

impl Announcer {
    /// Announces by these settings what this mapping makes of readings.
    pub fn new(settings: AnnouncerSettings, mapping: &Mapping) -> Self {
        let member = |source| {
            let field = mapping.fields.iter().find(|field| field.source == source);
            field.map(|field| field.name.clone()).unwrap_or_default()
        };
        let members = [ValueSource::Value, ValueSource::Unit, ValueSource::Name].map(member);
        let (devices, outputs) = (BTreeMap::new(), VecDeque::new());
        Self { settings, members, devices, outputs, counters: AnnouncerCounters::default() }
    }

    /// The gateway's availability: `false` is the last will of the connection.
    pub fn status(&self, is_online: bool) -> Publication {
        let payload = if is_online { ONLINE } else { OFFLINE };
        Publication { topic: self.status_topic(), payload: payload.to_owned(), retain: true }
    }

    /// A connection has begun: everything that is known is announced again.
    pub fn connected(&mut self) {
        self.outputs.clear();
        let status = self.status(true);
        self.outputs.push_back(status);
        let devices: Vec<_> = self.devices.keys().copied().collect();
        for system_id in devices {
            self.announce_device(system_id);
        }
    }

    /// The connection has ended: what waits is not published any more.
    pub fn disconnected(&mut self) {
        self.count_dropped(self.outputs.len());
        self.outputs.clear();
    }

    /// The connection is to end: the gateway is said to be away.
    pub fn leaving(&mut self) {
        self.disconnected();
        let status = self.status(false);
        self.outputs.push_back(status);
    }

    /// A device has associated, or is gone.
    pub fn associated(&mut self, system_id: SystemId, kind: &'static str, is_associated: bool) {
        let is_known = self.devices.contains_key(&system_id);
        if !is_known && !is_associated {
            return;
        }
        let Some(device) = self.device(system_id, kind) else { return };
        let changes = device.is_associated != is_associated;
        device.is_associated = is_associated;
        if !is_known {
            self.announce_device(system_id);
        } else if changes {
            let state = self.association_state(system_id, is_associated);
            self.push(state);
        }
    }

    /// A reading was delivered.
    pub fn heard(&mut self, reading: &DeliveredReading) {
        let [value, unit, name] = self.members.clone();
        let text = |member: &str| reading.content.get(member).and_then(Value::as_str);
        let Some(state) = reading.content.get(&value).and_then(state_of) else {
            self.counters.unstated += 1;
            return;
        };
        let is_number = state.parse::<f64>().is_ok_and(f64::is_finite);
        let (key, entity) = described(&reading.container, text(&name), text(&unit), is_number);
        let system_id = reading.system_id;
        if !self.devices.contains_key(&system_id) {
            // Its association began before announcements were wanted, or was dropped.
            self.associated(system_id, reading.kind, true);
        }
        let Some(device) = self.devices.get_mut(&system_id) else { return };
        match device.entities.get(&key) {
            // A number that once was none, such as "not a number", is no state of its entity.
            Some(known) if known.is_number && !is_number => {
                self.counters.unstated += 1;
                return;
            }
            Some(known) if *known == entity => {}
            None if device.entities.len() >= ENTITIES_MAX => {
                self.counters.full += 1;
                return;
            }
            _ => {
                device.entities.insert(key.clone(), entity.clone());
                let announced = self.announcement(system_id, &key, &entity);
                self.push(announced);
            }
        }
        let topic = self.state_topic(system_id, &key);
        self.push(Publication { topic, payload: state, retain: false });
    }

    /// The next publication.
    pub fn poll_output(&mut self) -> Option<Publication> {
        self.outputs.pop_front()
    }

    /// The device, if there is room for it.
    fn device(&mut self, system_id: SystemId, kind: &'static str) -> Option<&mut AnnouncedDevice> {
        if self.devices.len() >= DEVICES_MAX && !self.devices.contains_key(&system_id) {
            self.counters.full += 1;
            return None;
        }
        let device = self.devices.entry(system_id).or_default();
        device.kind = kind;
        Some(device)
    }

    /// Announces a device with everything that is known of it; nothing of it waits yet.
    fn announce_device(&mut self, system_id: SystemId) {
        let Some(device) = self.devices.get(&system_id).cloned() else { return };
        let topic = self.state_topic(system_id, ASSOCIATED);
        let document = json!({
            "name": "Connected",
            "unique_id": object_id(system_id, ASSOCIATED),
            "state_topic": topic,
            "device_class": "connectivity",
            "entity_category": "diagnostic",
        });
        let publication =
            self.config("binary_sensor", (system_id, device.kind), (ASSOCIATED, document));
        self.outputs.push_back(publication);
        let state = self.association_state(system_id, device.is_associated);
        self.outputs.push_back(state);
        for (key, entity) in &device.entities {
            let announced = self.announcement(system_id, key, entity);
            self.outputs.push_back(announced);
        }
    }

    fn association_state(&self, system_id: SystemId, is_associated: bool) -> Publication {
        let payload = if is_associated { "ON" } else { "OFF" };
        let topic = self.state_topic(system_id, ASSOCIATED);
        Publication { topic, payload: payload.to_owned(), retain: true }
    }

    /// The announcement of a sensor.
    fn announcement(&self, system_id: SystemId, key: &str, entity: &Entity) -> Publication {
        let mut document = json!({
            "name": entity.name,
            "unique_id": object_id(system_id, key),
            "state_topic": self.state_topic(system_id, key),
        });
        if let Some(members) = document.as_object_mut() {
            let mut put = |name: &str, value: &str| members.insert(name.to_owned(), json!(value));
            if entity.is_number {
                put("state_class", "measurement");
            }
            if !entity.unit.is_empty() {
                put("unit_of_measurement", &entity.unit);
            }
            if let Some(class) = entity.class {
                put("device_class", class);
            }
        }
        let kind = self.devices.get(&system_id).map_or("", |device| device.kind);
        self.config("sensor", (system_id, kind), (key, document))
    }

    /// An announcement with what all have: availability, device, origin.
    fn config(
        &self,
        component: &str,
        (system_id, kind): (SystemId, &str),
        (key, mut document): (&str, Value),
    ) -> Publication {
        let device = json!({
            "identifiers": [format!("gatewright_{system_id}")],
            "name": format!("{} {system_id}", words(kind)),
            "model": words(kind),
            "serial_number": system_id.to_string(),
        });
        let origin = json!({ "name": "Gatewright", "sw_version": self.settings.version });
        if let Some(members) = document.as_object_mut() {
            let all = [("availability_topic", json!(self.status_topic())), ("device", device)];
            let all = all.into_iter().chain([("origin", origin)]);
            members.extend(all.map(|(name, value)| (name.to_owned(), value)));
        }
        let AnnouncerSettings { prefix, .. } = &self.settings;
        let topic = format!("{prefix}/{component}/{}/config", object_id(system_id, key));
        Publication { topic, payload: document.to_string(), retain: true }
    }

    fn status_topic(&self) -> String {
        format!("{}/status", self.settings.topic)
    }

    fn state_topic(&self, system_id: SystemId, key: &str) -> String {
        format!("{}/{system_id}/{key}", self.settings.topic)
    }

    /// Adds a publication to those that wait. From [`WAITING_MAX`] on states are dropped, and a retained
    /// publication replaces the last that waits for its topic: no more wait than there are topics.
    fn push(&mut self, publication: Publication) {
        if self.outputs.len() < WAITING_MAX {
            return self.outputs.push_back(publication);
        }
        let topic = &publication.topic;
        let waiting = self.outputs.iter_mut().rev().find(|it| it.retain && it.topic == *topic);
        match waiting {
            _ if !publication.retain => self.count_dropped(1),
            Some(waiting) => {
                *waiting = publication;
                self.count_dropped(1);
            }
            None => self.outputs.push_back(publication),
        }
    }

    fn count_dropped(&mut self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.counters.dropped = self.counters.dropped.saturating_add(count);
    }
}

const ONLINE: &str = "online";
const OFFLINE: &str = "offline";
/// The key of the entity that says whether a device is associated.
const ASSOCIATED: &str = "associated";

/// The key and the description of a quantity.
fn described(
    container: &str,
    name: Option<&str>,
    unit: Option<&str>,
    is_number: bool,
) -> (String, Entity) {
    let key = key_of(name.unwrap_or(container));
    let unit = unit.unwrap_or_default();
    let (unit, class) = UNITS
        .iter()
        .find(|(ucum, ..)| *ucum == unit)
        .map_or((unit, None), |(_, shown, class)| (*shown, *class));
    // A concentration of anything else has no class.
    let is_glucose = name.is_some_and(|name| name.starts_with("MDC_CONC_GLU"));
    let class = class.filter(|class| *class != GLUCOSE || is_glucose);
    let known = name.and_then(|name| NAMES.iter().find(|(known, _)| *known == name));
    let shown = known.map_or_else(|| words(container), |(_, shown)| (*shown).to_owned());
    let unit = if is_number { unit.to_owned() } else { String::new() };
    let class = class.filter(|_| is_number);
    (key, Entity { name: shown, unit, class, is_number })
}

/// The state of a value: a text or a number, as it is written.
fn state_of(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let is_state = !text.is_empty() && !text.contains(char::is_control);
    is_state.then(|| text.chars().take(STATE_MAX).collect())
}

/// A name as a level of a topic and as a part of an identifier.
fn key_of(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    name.chars().take(KEY_MAX).map(plain).collect::<String>().to_ascii_lowercase()
}

fn object_id(system_id: SystemId, key: &str) -> String {
    format!("gatewright_{system_id}_{key}")
}

/// A name as words that begin with a capital.
fn words(name: &str) -> String {
    let mut letters = name.chars().map(|letter| if letter == '-' { ' ' } else { letter });
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).filter(|letter| !letter.is_control()).collect()
}

/// The device class of concentrations of glucose.
const GLUCOSE: &str = "blood_glucose_concentration";

/// Units in UCUM, the same as Home Assistant writes them, and the device class that allows them.
const UNITS: &[(&str, &str, Option<&str>)] = &[
    ("%", "%", None),
    ("{beat}/min", "bpm", None),
    ("{breaths}/min", "breaths/min", None),
    ("Cel", "°C", Some("temperature")),
    ("[degF]", "°F", Some("temperature")),
    ("mm[Hg]", "mmHg", Some("pressure")),
    ("kPa", "kPa", Some("pressure")),
    ("hPa", "hPa", Some("pressure")),
    ("kg", "kg", Some("weight")),
    ("g", "g", Some("weight")),
    ("mg", "mg", Some("weight")),
    ("[lb_av]", "lb", Some("weight")),
    ("m", "m", Some("distance")),
    ("cm", "cm", Some("distance")),
    ("[ft_i]", "ft", Some("distance")),
    ("[in_i]", "in", Some("distance")),
    ("kg/m2", "kg/m²", None),
    ("mg/dL", "mg/dL", Some(GLUCOSE)),
    ("mmol/L", "mmol/L", Some(GLUCOSE)),
    ("s", "s", Some("duration")),
    ("min", "min", Some("duration")),
    ("h", "h", Some("duration")),
    ("{steps}", "steps", None),
    ("{INR}", "", None),
    ("1", "", None),
];

/// Names for people of quantities that a container's name does not tell apart.
const NAMES: &[(&str, &str)] = &[
    ("MDC_PULS_OXIM_SAT_O2", "Oxygen saturation"),
    ("MDC_PULS_OXIM_PULS_RATE", "Pulse rate"),
    ("MDC_PULS_RATE_NON_INV", "Pulse rate"),
    ("MDC_PRESS_BLD_NONINV_SYS", "Systolic blood pressure"),
    ("MDC_PRESS_BLD_NONINV_DIA", "Diastolic blood pressure"),
    ("MDC_PRESS_BLD_NONINV_MEAN", "Mean blood pressure"),
];

impl DeliveredReading {
    /// A reading of a device from the request that creates it: the container is the last step of its
    /// target. `None` if the request creates no instance with content.
    pub fn of_request(
        (system_id, kind): (SystemId, &'static str),
        to: &str,
        content: &str,
    ) -> Option<Self> {
        let mut content: Map<String, Value> = serde_json::from_str(content).ok()?;
        let content = content.get_mut("m2m:cin")?.get_mut("con")?.take();
        let container = to.rsplit('/').next()?.to_owned();
        content.is_object().then_some(Self { system_id, kind, container, content })
    }
}

#[cfg(test)]
mod tests;
