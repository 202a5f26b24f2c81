//! Devices as AEs, and their objects as containers.

use crate::command::told;
use crate::instance::primitive_head;
use crate::json::Json;
use crate::mapping::{Mapping, Rule};
use crate::template::Template;
use gatewright_health::code::{
    AttributeId, Handle, ObjectClass, SystemId, Type, UnitCode, attribute, class,
};
use gatewright_health::configuration::{Configuration, Object};
use gatewright_health::kind;
use gatewright_onem2m::{Operation, Request, ResourceType, Timestamp};

/// Name of the container for users' commands to a device.
pub const COMMANDS: &str = "commands";
/// Name of the container for their results.
pub const RESULTS: &str = "results";
/// Name of the container for a device's attributes.
pub const ABOUT: &str = "about";
/// Prefix of the label with an AE's kind of device.
const KIND_LABEL: &str = "kind:";
/// Instances in a device's attribute container: one for each association.
const ABOUT_MAX: u64 = 16;

/// A device as resources: names and addresses, built once for each association.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Device {
    system_id: SystemId,
    epoch: u64,
    /// The kind of device, if it is known yet.
    kind: Option<&'static str>,
    /// Address of the AE, below the CSEBase.
    address: String,
    /// AE-ID stem.
    originator: String,
    /// Prefix of its readings' names, and the epoch after it.
    name_head: [String; 2],
    /// The measuring objects, by handle.
    places: Vec<ObjectContainer>,
}

/// A measuring object as a container.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectContainer {
    /// The object's handle.
    pub handle: Handle,
    /// The quantity it measures.
    pub kind: Type,
    /// The more precise quantity, if the device reports one.
    pub metric: Option<Type>,
    /// Its class.
    pub class: ObjectClass,
    /// Its unit.
    pub unit: Option<UnitCode>,
    /// Further properties of the measurement: modality, place.
    pub supplemental: Vec<Type>,
    /// Address of the container.
    pub address: String,
    /// Name of the container.
    pub name: String,
    /// Position of the rule in the mapping.
    rule: Option<usize>,
    /// Start of the primitive that creates an instance.
    pub(crate) primitive: String,
    /// The content of its instances; one for each value of a compound.
    pub(crate) templates: Vec<Template>,
}

impl Device {
    /// Creates a device associated under `base`, the address of the CSEBase (`cse-mn`, or
    /// `/id-in/cse-in` for another CSE). `epoch` distinguishes its associations: the caller's
    /// choice, growing and never used twice for one device.
    pub fn new(
        mapping: &Mapping,
        base: &str,
        system_id: SystemId,
        epoch: u64,
        configuration: &Configuration,
    ) -> Self {
        let name = format!("{}{system_id}", mapping.entity_prefix);
        let address = format!("{base}/{name}");
        let originator = format!("C{name}");
        let measuring: Vec<&Object> =
            configuration.objects().iter().filter(|object| measures(object.class)).collect();
        let wanted = |object: &Object| {
            let fits = |rule: &Rule| rule.when.fits(object.kind, object.class, object.unit);
            mapping.rules.iter().position(fits)
        };
        let plain = |rule: Option<usize>| {
            let rule = rule.and_then(|place| mapping.rules.get(place));
            rule.map_or("", |rule| rule.container.as_str())
        };
        let places = measuring
            .iter()
            .map(|object| {
                let rule = wanted(object);
                let plain_name = plain(rule);
                let alike = |other: &&&Object| plain(wanted(other)) == plain_name;
                let is_alone = measuring.iter().filter(alike).count() == 1;
                let name = match plain_name {
                    "" => format!("object-{}", object.handle),
                    name if is_alone && name != "object" => name.to_owned(),
                    name => format!("{name}-{}", object.handle),
                };
                let address = format!("{address}/{name}");
                ObjectContainer {
                    handle: object.handle,
                    kind: object.kind,
                    metric: object.metric,
                    class: object.class,
                    unit: object.unit,
                    supplemental: object.supplemental.clone(),
                    primitive: primitive_head(&address, &originator),
                    templates: templates(mapping, object),
                    address,
                    name,
                    rule,
                }
            })
            .collect();
        Self {
            system_id,
            epoch,
            kind: kind::of_configuration(configuration.id()),
            originator,
            name_head: [format!("{system_id}-"), format!("{epoch}-")],
            address,
            places,
        }
    }

    /// The device's system-id.
    pub const fn system_id(&self) -> SystemId {
        self.system_id
    }

    /// Epoch of this association.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The kind of device; [`UNKNOWN`](kind::UNKNOWN) until it is known.
    pub fn kind(&self) -> &'static str {
        self.kind.unwrap_or(kind::UNKNOWN)
    }

    /// Whether its kind is known, as it is at once from the number of a standard configuration. A
    /// device with an extended configuration has to be asked, see [`hear`](Self::hear).
    pub const fn is_kind_known(&self) -> bool {
        self.kind.is_some()
    }

    /// Sets the kind from an earlier association.
    pub fn set_kind(&mut self, kind: &'static str) {
        self.kind = self.kind.or(Some(kind));
    }

    /// Sets the kind from the attributes of the device's MDS, unless it is known from its
    /// configuration.
    pub fn hear(&mut self, attributes: &[(AttributeId, Vec<u8>)]) {
        let list = attributes.iter().find(|(id, _)| *id == attribute::SPECIALISATIONS);
        let told = list.and_then(|(_, octets)| kind::of_specialisations(octets));
        self.set_kind(told.unwrap_or(kind::UNKNOWN));
    }

    /// The request that sets the kind in its AE's labels, if the present `labels` name another one;
    /// other labels stay. Also `None` while the kind is unknown.
    pub fn follow(&self, labels: &[&str]) -> Option<Request> {
        let kind = self.kind.filter(|kind| *kind != kind::UNKNOWN)?;
        if self::kind(labels) == Some(kind) {
            return None;
        }
        let mut content = String::new();
        Json::new(&mut content).object(|json| {
            json.key(ResourceType::ApplicationEntity.tag()).object(|json| {
                json.text("apn", kind);
                json.key("lbl").array(|json| {
                    for label in labels.iter().filter(|label| !label.starts_with(KIND_LABEL)) {
                        json.string(label);
                    }
                    json.shown(format_args!("{KIND_LABEL}{kind}"));
                });
            });
        });
        let id = format!("{}-{}-kind", self.system_id, self.epoch);
        let request = Request::new(Operation::Update, &*self.address, &*self.originator, id);
        Some(request.with_content(content))
    }

    /// Address of the AE.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The AE-ID stem: originator of this device's readings.
    pub fn originator(&self) -> &str {
        &self.originator
    }

    pub(crate) fn name_head(&self) -> (&str, &str) {
        let [system, epoch] = &self.name_head;
        (system, epoch)
    }

    /// The measuring objects, by handle.
    pub fn places(&self) -> &[ObjectContainer] {
        &self.places
    }

    /// The container of the object `handle`.
    pub fn place(&self, handle: Handle) -> Option<&ObjectContainer> {
        let place = self.places.binary_search_by_key(&handle, |place| place.handle).ok()?;
        self.places.get(place)
    }

    /// The requests that create the AE and its containers, in this order. Each may be answered
    /// *created* or *conflict*, and both mean that the resource exists; see
    /// [`outcome`](crate::outcome).
    pub fn registration(&self, mapping: &Mapping) -> Vec<Request> {
        let base = self.address.rsplit_once('/').map_or("", |(base, _)| base);
        let mut requests = vec![self.create(0, base, ResourceType::ApplicationEntity, |json| {
            json.text("rn", self.address.rsplit('/').next().unwrap_or_default());
            json.text("api", &mapping.app_id);
            json.text("apn", self.kind());
            json.key("rr").raw(false);
            json.key("srv").array(|json| {
                json.string("3");
                json.string("4");
            });
            json.key("lbl").array(|json| {
                json.shown(format_args!("system-id:{}", self.system_id));
                json.shown(format_args!("{KIND_LABEL}{}", self.kind()));
            });
        })];
        for (number, place) in (1..).zip(&self.places) {
            requests.push(self.create(number, &self.address, ResourceType::Container, |json| {
                place.attributes(mapping, json);
            }));
        }
        let most = mapping.instances_max;
        let more = [(COMMANDS, most), (RESULTS, most), (ABOUT, ABOUT_MAX)];
        for (number, (name, most)) in (self.places.len() + 1..).zip(more) {
            requests.push(self.create(number, &self.address, ResourceType::Container, |json| {
                json.text("rn", name);
                json.key("mni").raw(most);
            }));
        }
        requests
    }

    /// The request that stores the device's attributes for users: once for each association.
    pub fn about(
        &self,
        mapping: &Mapping,
        attributes: &[(AttributeId, Vec<u8>)],
        received: Timestamp,
    ) -> Request {
        let mut text = String::new();
        Json::new(&mut text).object(|json| {
            json.key(ResourceType::ContentInstance.tag()).object(|json| {
                json.text("rn", &format!("{}-{}-{ABOUT}", self.system_id, self.epoch));
                json.text("cnf", "application/json:0");
                json.key("con").object(|json| {
                    json.key("received").shown(received);
                    told(json, mapping, attributes);
                });
            });
        });
        let to = format!("{}/{ABOUT}", self.address);
        let id = format!("{}-{}-{ABOUT}", self.system_id, self.epoch);
        Request::new(Operation::Create, to, &self.originator, id)
            .creating(ResourceType::ContentInstance, text)
    }

    fn create(
        &self,
        number: usize,
        parent: &str,
        kind: ResourceType,
        attributes: impl FnOnce(&mut Json<'_>),
    ) -> Request {
        let mut content = String::new();
        Json::new(&mut content).object(|json| {
            json.key(kind.tag()).object(attributes);
        });
        let id = format!("{}-{}-new-{number}", self.system_id, self.epoch);
        Request::new(Operation::Create, parent, &self.originator, id).creating(kind, content)
    }
}

impl ObjectContainer {
    /// A container for reading only: nothing is created there.
    pub(crate) fn bare(
        mapping: &Mapping,
        (handle, kind, class, unit): (Handle, Type, ObjectClass, Option<UnitCode>),
        supplemental: Vec<Type>,
        (name, address): (&str, &str),
    ) -> Self {
        Self {
            handle,
            kind,
            metric: None,
            class,
            unit,
            supplemental,
            address: address.to_owned(),
            name: name.to_owned(),
            rule: mapping.rules.iter().position(|rule| rule.when.fits(kind, class, unit)),
            primitive: String::new(),
            templates: Vec::new(),
        }
    }

    /// The mapping rule of this container.
    pub fn rule<'mapping>(&self, mapping: &'mapping Mapping) -> Option<&'mapping Rule> {
        self.rule.and_then(|place| mapping.rules.get(place))
    }

    fn attributes(&self, mapping: &Mapping, json: &mut Json<'_>) {
        let rule = self.rule(mapping);
        json.text("rn", &self.name);
        json.key("mni")
            .raw(rule.and_then(|rule| rule.instances_max).unwrap_or(mapping.instances_max));
        json.key("lbl").array(|json| {
            json.shown(format_args!("mdc:{}", self.kind));
            json.shown(format_args!("handle:{}", self.handle));
            if let Some(name) = self.kind.name() {
                json.string(name);
            }
            if let Some(metric) = self.metric {
                json.shown(format_args!("metric:{metric}"));
            }
            if let Some(unit) = self.unit {
                json.shown(format_args!("unit:{unit}"));
            }
            json.shown(format_args!("class:{}", self.class));
            for more in &self.supplemental {
                json.shown(format_args!("supplemental:{more}"));
            }
            for label in rule.into_iter().flat_map(|rule| &rule.labels) {
                json.string(label);
            }
        });
    }
}

/// Templates of an object's instances: one, or one for each value of its compound.
fn templates(mapping: &Mapping, object: &Object) -> Vec<Template> {
    let template = |kind| Template::new(&mapping.fields, object, kind);
    match object.components.as_slice() {
        [] => vec![template(object.metric.unwrap_or(object.kind))],
        codes => codes.iter().map(|code| template(Type { code: *code, ..object.kind })).collect(),
    }
}

/// Whether objects of this class measure.
const fn measures(object: ObjectClass) -> bool {
    matches!(object, class::NUMERIC | class::ENUMERATION | class::SAMPLE_ARRAY)
}

/// System-id of the device whose AE has these labels; `None` if it is no device's AE.
pub fn system_id(labels: &[&str]) -> Option<SystemId> {
    let digits = label(labels, "system-id:")?;
    let fits = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = fits.then(|| u64::from_str_radix(digits, 16).ok()).flatten()?;
    Some(SystemId(number.to_be_bytes()))
}

/// Kind of the device whose AE has these labels.
pub fn kind<'label>(labels: &[&'label str]) -> Option<&'label str> {
    label(labels, KIND_LABEL)
}

/// The rest of the label that begins with `name`.
pub(crate) fn label<'label>(labels: &[&'label str], name: &str) -> Option<&'label str> {
    labels.iter().find_map(|label| label.strip_prefix(name))
}
