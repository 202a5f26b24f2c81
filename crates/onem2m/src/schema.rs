//! Attributes of each resource type (TS-0001 §9.6, TS-0004 §7.4): short name, form, presence at
//! creation, presence at update.

use crate::geometry::Geometry;
use crate::limits::Limits;
use crate::resource_type::ResourceType;
use crate::status::Refusal;
use crate::time::Timestamp;
use serde_json::{Map, Value};

/// Form of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    Text,
    Uint,
    Flag,
    Time,
    Texts,
    Uints,
    Object,
    Objects,
    /// m2m:geoCoordinates.
    Location,
    /// m2m:geoCoordinates, or the text that a management object has under the same name.
    Place,
    /// m2m:serializations: media types of contents.
    Serialisations,
    /// Left to the resource type's own rules.
    Any,
}

/// Presence of an attribute in a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Presence {
    Never,
    May,
    Must,
}

/// One attribute of a resource type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute {
    pub(crate) name: &'static str,
    form: Form,
    create: Presence,
    update: Presence,
}

/// May be given at both times.
const fn free(name: &'static str, form: Form) -> Attribute {
    Attribute { name, form, create: Presence::May, update: Presence::May }
}

/// Must be given at creation, may be changed.
const fn must(name: &'static str, form: Form) -> Attribute {
    Attribute { name, form, create: Presence::Must, update: Presence::May }
}

/// May be given at creation only.
const fn once(name: &'static str, form: Form) -> Attribute {
    Attribute { name, form, create: Presence::May, update: Presence::Never }
}

/// Must be given at creation, and stays.
const fn fixed(name: &'static str, form: Form) -> Attribute {
    Attribute { name, form, create: Presence::Must, update: Presence::Never }
}

/// Given by the CSE alone.
const fn ours(name: &'static str, form: Form) -> Attribute {
    Attribute { name, form, create: Presence::Never, update: Presence::Never }
}

use Form::{
    Any, Flag, Location, Object, Objects, Place, Serialisations, Text, Texts, Time, Uint, Uints,
};

/// Attributes of every resource type. The header (`ri`, `pi`, `ct`, `lt`, `ty`, `st`) is never
/// given.
const UNIVERSAL: &[Attribute] = &[
    ours("ri", Text),
    ours("pi", Text),
    ours("ct", Time),
    ours("lt", Time),
    ours("ty", Uint),
    ours("st", Uint),
    once("rn", Text),
    free("et", Time),
    free("lbl", Texts),
    free("at", Texts),
    free("aa", Texts),
    free("ast", Uint),
    free("daci", Texts),
    free("cstn", Text),
    once("cr", Any),
    free("loc", Location),
];

/// Attributes of types that name their own access control policies; the others follow their parent.
const POLICIES: Attribute = free("acpi", Texts);

const ACCESS_CONTROL_POLICY: &[Attribute] = &[
    must("pv", Object),
    must("pvs", Object),
    free("adri", Texts),
    free("apri", Texts),
    free("airi", Texts),
];

const APPLICATION_ENTITY: &[Attribute] = &[
    fixed("api", Text),
    must("rr", Flag),
    must("srv", Texts),
    ours("aei", Text),
    free("apn", Text),
    free("poa", Texts),
    free("or", Text),
    free("nl", Text),
    free("csz", Serialisations),
    free("scp", Texts),
    free("ape", Objects),
    free("tren", Flag),
    free("trps", Flag),
    free("regs", Text),
];

const CONTAINER: &[Attribute] = &[
    free("mni", Uint),
    free("mbs", Uint),
    free("mia", Uint),
    free("or", Text),
    free("disr", Flag),
    ours("cni", Uint),
    ours("cbs", Uint),
    ours("li", Text),
];

const CONTENT_INSTANCE: &[Attribute] = &[
    once("con", Any),
    once("cnf", Text),
    once("or", Text),
    once("conr", Objects),
    once("dgt", Time),
    once("dcnt", Uint),
    ours("cs", Uint),
];

const CSE_BASE: &[Attribute] = &[
    ours("csi", Text),
    ours("cst", Uint),
    ours("srt", Uints),
    ours("srv", Texts),
    ours("csz", Texts),
    ours("poa", Texts),
    ours("nl", Text),
    ours("ctm", Time),
];

const GROUP: &[Attribute] = &[
    once("mt", Uint),
    must("mnm", Uint),
    must("mid", Texts),
    once("csy", Uint),
    once("spty", Any),
    free("macp", Texts),
    free("gn", Text),
    free("nar", Object),
    ours("cnm", Uint),
    ours("mtv", Flag),
    ours("ssi", Flag),
];

const MANAGEMENT_OBJECT: &[Attribute] = &[
    fixed("mgd", Uint),
    once("obis", Texts),
    once("obps", Texts),
    once("mgs", Text),
    free("dc", Text),
    free("cmlk", Objects),
    // [deviceInfo] says where the device is, in words (TS-0004 Annex D).
    free("loc", Place),
];

const NODE: &[Attribute] = &[
    must("ni", Text),
    free("hcl", Text),
    free("hael", Texts),
    free("hsl", Texts),
    free("nty", Uint),
    free("mgca", Texts),
    ours("nid", Text),
];

const POLLING_CHANNEL: &[Attribute] = &[free("rqag", Flag)];

const REMOTE_CSE: &[Attribute] = &[
    fixed("cb", Text),
    must("rr", Flag),
    must("srv", Texts),
    once("csi", Text),
    once("cst", Uint),
    free("poa", Texts),
    free("dcse", Texts),
    free("nl", Text),
    free("csz", Serialisations),
    free("mei", Text),
    free("tri", Text),
    free("trn", Uint),
    free("ape", Objects),
    free("egid", Text),
    free("ici", Text),
    free("spi", Text),
    free("tren", Flag),
];

const REQUEST: &[Attribute] = &[];

const SCHEDULE: &[Attribute] = &[must("se", Object), free("nco", Flag)];

const SUBSCRIPTION: &[Attribute] = &[
    must("nu", Texts),
    free("enc", Object),
    free("nct", Uint),
    free("exc", Uint),
    free("bn", Object),
    free("ln", Flag),
    free("nec", Uint),
    free("pn", Uint),
    once("su", Text),
    free("nfu", Text),
    free("gpi", Text),
    free("nsp", Uint),
    free("rl", Object),
    once("psn", Uint),
    free("nse", Flag),
    ours("nsi", Objects),
    free("acrs", Texts),
];

const FLEX_CONTAINER: &[Attribute] = &[
    fixed("cnd", Text),
    free("or", Text),
    free("nl", Text),
    free("mni", Uint),
    free("mbs", Uint),
    free("mia", Uint),
    free("fcied", Flag),
    free("dgt", Time),
    ours("cs", Uint),
    ours("cni", Uint),
    ours("cbs", Uint),
];

const FLEX_CONTAINER_INSTANCE: &[Attribute] = &[ours("cs", Uint)];

const TIME_SERIES: &[Attribute] = &[
    free("mni", Uint),
    free("mbs", Uint),
    free("mia", Uint),
    free("pei", Uint),
    free("peid", Uint),
    free("mdd", Flag),
    free("mdn", Uint),
    free("mdt", Uint),
    once("cnf", Text),
    free("or", Text),
    ours("mdc", Uint),
    ours("mdlt", Texts),
    ours("cni", Uint),
    ours("cbs", Uint),
];

const TIME_SERIES_INSTANCE: &[Attribute] =
    &[fixed("con", Any), fixed("dgt", Time), once("snr", Uint), ours("cs", Uint)];

const fn table(resource_type: ResourceType) -> &'static [Attribute] {
    match resource_type {
        ResourceType::AccessControlPolicy => ACCESS_CONTROL_POLICY,
        ResourceType::ApplicationEntity => APPLICATION_ENTITY,
        ResourceType::Container => CONTAINER,
        ResourceType::ContentInstance => CONTENT_INSTANCE,
        ResourceType::CseBase => CSE_BASE,
        ResourceType::Group => GROUP,
        ResourceType::ManagementObject => MANAGEMENT_OBJECT,
        ResourceType::Node => NODE,
        ResourceType::PollingChannel => POLLING_CHANNEL,
        ResourceType::RemoteCse => REMOTE_CSE,
        ResourceType::Request => REQUEST,
        ResourceType::Schedule => SCHEDULE,
        ResourceType::Subscription => SUBSCRIPTION,
        ResourceType::FlexContainer => FLEX_CONTAINER,
        ResourceType::FlexContainerInstance => FLEX_CONTAINER_INSTANCE,
        ResourceType::TimeSeries => TIME_SERIES,
        ResourceType::TimeSeriesInstance => TIME_SERIES_INSTANCE,
        ResourceType::AccessControlPolicyAnnc
        | ResourceType::ApplicationEntityAnnc
        | ResourceType::ContainerAnnc
        | ResourceType::ContentInstanceAnnc
        | ResourceType::CseBaseAnnc
        | ResourceType::GroupAnnc
        | ResourceType::ManagementObjectAnnc
        | ResourceType::NodeAnnc
        | ResourceType::FlexContainerAnnc
        | ResourceType::TimeSeriesAnnc
        | ResourceType::TimeSeriesInstanceAnnc => ANNOUNCED,
    }
}

/// Attributes of announced variants, beside those of their originals.
const ANNOUNCED: &[Attribute] = &[fixed("lnk", Text)];

/// Whether an attribute is announced with every resource of this type that is (TS-0001 §9.6,
/// MA).
pub(crate) fn is_always_announced(resource_type: ResourceType, name: &str) -> bool {
    match name {
        "lbl" | "et" | "acpi" | "ast" => true,
        "pv" | "pvs" | "adri" | "apri" | "airi" => {
            resource_type == ResourceType::AccessControlPolicy
        }
        "srv" => matches!(resource_type, ResourceType::ApplicationEntity | ResourceType::CseBase),
        "cnd" => resource_type == ResourceType::FlexContainer,
        "ni" => resource_type == ResourceType::Node,
        "mgd" | "mgs" => resource_type == ResourceType::ManagementObject,
        _ => false,
    }
}

/// Whether an attribute may be announced (TS-0001 §9.6, OA): what the resource is made of and
/// what is not counted by the CSE that hosts it.
pub(crate) fn may_be_announced(resource_type: ResourceType, name: &str) -> bool {
    let counted = ["cni", "cbs", "cs", "st", "mdc", "mdlt", "mdd", "fcied", "cnm"];
    if is_always_announced(resource_type, name) || counted.contains(&name) {
        return is_always_announced(resource_type, name);
    }
    if UNIVERSAL.iter().any(|attribute| attribute.name == name) {
        return matches!(name, "loc" | "daci");
    }
    table(resource_type).iter().any(|attribute| attribute.name == name) || is_open(resource_type)
}

/// Leaves names out of announcedAttribute whose attributes are never announced; whether none is left
/// of those given, and so the attribute neither.
pub(crate) fn retain_announceable(
    resource_type: ResourceType,
    given: &mut Map<String, Value>,
) -> bool {
    let Some(Value::Array(names)) = given.get_mut("aa") else {
        return false;
    };
    let before = names.len();
    names.retain(|name| name.as_str().is_some_and(|name| may_be_announced(resource_type, name)));
    let is_empty = names.is_empty() && before > 0;
    if is_empty {
        given.remove("aa");
    }
    is_empty
}

/// Whether resources of this type may name access control policies of their own.
pub(crate) const fn has_policies(resource_type: ResourceType) -> bool {
    let resource_type = match resource_type.original() {
        Some(original) => original,
        None => resource_type,
    };
    !(resource_type.is_instance()
        || matches!(
            resource_type,
            ResourceType::AccessControlPolicy | ResourceType::PollingChannel
        ))
}

fn attribute(resource_type: ResourceType, name: &str) -> Option<Attribute> {
    if name == POLICIES.name && has_policies(resource_type) {
        return Some(POLICIES);
    }
    let own = table(resource_type).iter().chain(UNIVERSAL).find(|attribute| attribute.name == name);
    // An announced variant has what its original has, as that says.
    let of_original = || {
        let told =
            table(resource_type.original()?).iter().find(|attribute| attribute.name == name)?;
        Some(free(told.name, told.form))
    };
    own.copied().or_else(of_original)
}

/// Whether the core specification gives this type an attribute of this name.
pub(crate) fn is_core(resource_type: ResourceType, name: &str) -> bool {
    attribute(resource_type, name).is_some()
}

/// Whether resources of this type may have an attribute of this name.
pub(crate) fn may_have(resource_type: ResourceType, name: &str) -> bool {
    is_core(resource_type, name)
        || is_open(resource_type)
        || resource_type == ResourceType::FlexContainerInstance
}

/// Whether the core specification gives any type hosted here an attribute of this name.
pub(crate) fn is_attribute(name: &str) -> bool {
    ResourceType::ALL.iter().any(|&resource_type| is_core(resource_type, name))
}

/// Types whose attributes are named by a definition outside the core specification.
const fn is_open(resource_type: ResourceType) -> bool {
    matches!(
        resource_type,
        ResourceType::FlexContainer
            | ResourceType::ManagementObject
            | ResourceType::FlexContainerAnnc
            | ResourceType::ManagementObjectAnnc
    )
}

/// Checks the attributes that a creation gives.
///
/// # Errors
///
/// 4000 for an attribute that the type does not have, that only the CSE gives, that is missing
/// or that has the wrong form.
pub(crate) fn check_create(
    resource_type: ResourceType,
    given: &Map<String, Value>,
    limits: &Limits,
) -> Result<(), Refusal> {
    for (name, value) in given {
        // By null an update removes an attribute; only the creator is asked for so at creation
        // (TS-0001 §9.6.1.3.2).
        if value.is_null() && name != "cr" {
            return Err(null_given(name));
        }
        let Some(attribute) = attribute(resource_type, name) else {
            if is_open(resource_type) {
                continue;
            }
            return Err(Refusal::bad(format!("{} has no attribute {name}", label(resource_type))));
        };
        if attribute.create == Presence::Never {
            return Err(Refusal::bad(format!("attribute {name} is not given at creation")));
        }
        check_form(attribute, value, limits)?;
    }
    for attribute in table(resource_type) {
        if attribute.create == Presence::Must && !given.contains_key(attribute.name) {
            return Err(Refusal::bad(format!("mandatory attribute {} is missing", attribute.name)));
        }
    }
    Ok(())
}

/// The refusal of a creation that gives an attribute as null.
pub(crate) fn null_given(name: &str) -> Refusal {
    Refusal::bad(format!("attribute {name} is null: a creation leaves it out"))
}

/// Checks the attributes that an update gives; null removes one that is not mandatory.
///
/// # Errors
///
/// 4000 as for [`check_create`].
pub(crate) fn check_update(
    resource_type: ResourceType,
    given: &Map<String, Value>,
    limits: &Limits,
) -> Result<(), Refusal> {
    for (name, value) in given {
        let Some(attribute) = attribute(resource_type, name) else {
            if is_open(resource_type) {
                continue;
            }
            return Err(Refusal::bad(format!("{} has no attribute {name}", label(resource_type))));
        };
        if attribute.update == Presence::Never {
            return Err(Refusal::bad(format!("attribute {name} cannot be changed")));
        }
        if value.is_null() {
            if attribute.create == Presence::Must {
                return Err(Refusal::bad(format!("attribute {name} cannot be removed")));
            }
            continue;
        }
        check_form(attribute, value, limits)?;
    }
    Ok(())
}

const fn label(resource_type: ResourceType) -> &'static str {
    if resource_type.tag().is_empty() { resource_type.prefix() } else { resource_type.tag() }
}

fn check_form(attribute: Attribute, value: &Value, limits: &Limits) -> Result<(), Refusal> {
    let fits = match attribute.form {
        Any => true,
        Text => value.is_string(),
        Uint => value.is_u64(),
        Flag => value.is_boolean(),
        Time => value.as_str().and_then(Timestamp::parse).is_some(),
        Object => value.is_object(),
        // It has words of its own for what is wrong.
        Location => Geometry::read_location(value).map(|_| true)?,
        Place => value.is_string() || Geometry::read_location(value).map(|_| true)?,
        Texts => all(value, limits, Value::is_string),
        Uints => all(value, limits, Value::is_u64),
        Objects => all(value, limits, Value::is_object),
        Serialisations => all(value, limits, |it| it.as_str().is_some_and(is_serialisation)),
    };
    if fits {
        return Ok(());
    }
    let (name, wanted) = (attribute.name, wanted(attribute.form));
    Err(Refusal::bad(format!("attribute {name} has the wrong form: {wanted} is expected")))
}

/// A form in words.
const fn wanted(form: Form) -> &'static str {
    match form {
        Any => "a value",
        Text => "a text",
        Uint => "a whole number",
        Flag => "true or false",
        Time => "a time, as \"20300101T000000\"",
        Object => "an object",
        Location => "a location",
        Place => "a text or a location",
        Texts => "a list of texts",
        Uints => "a list of whole numbers",
        Objects => "a list of objects",
        Serialisations => "a list of media types",
    }
}

/// Whether a text is a media type that contents may have (TS-0004 §6.7), supported here or not.
fn is_serialisation(media: &str) -> bool {
    let syntax =
        media.strip_prefix("application/").and_then(|own| match own.strip_prefix("vnd.onem2m-") {
            None => Some(own),
            Some(own) => own.split_once('+').map(|(_, syntax)| syntax),
        });
    syntax.is_some_and(|syntax| matches!(syntax, "xml" | "json" | "cbor"))
}

fn all(value: &Value, limits: &Limits, fits: impl Fn(&Value) -> bool) -> bool {
    value.as_array().is_some_and(|list| list.len() <= limits.list_entries && list.iter().all(fits))
}

/// contentInfo (TS-0004, m2m:contentInfo): a media type, an encoding (0 to 2), and optionally
/// a security format (0 to 7).
pub(crate) fn check_content_info(info: Option<&str>) -> Result<(), Refusal> {
    let Some(info) = info else {
        return Ok(());
    };
    let mut parts = info.split(':');
    let media = parts.next().unwrap_or_default();
    let (main, sub) = media.split_once('/').unwrap_or_default();
    let encoding = parts.next().is_none_or(|part| matches!(part, "0" | "1" | "2"));
    let security = parts
        .next()
        .is_none_or(|part| part.len() == 1 && part.bytes().all(|o| (b'0'..=b'7').contains(&o)));
    if main.is_empty() || sub.is_empty() || !encoding || !security || parts.next().is_some() {
        return Err(Refusal::bad("cnf is TYPE/SUBTYPE, optionally :ENCODING and :SECURITY"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;
    use serde_json::json;

    fn create(resource_type: ResourceType, given: &Value) -> Result<(), Status> {
        check_create(resource_type, given.as_object().unwrap(), &Limits::default())
            .map_err(|refusal| refusal.status)
    }

    fn update(resource_type: ResourceType, given: &Value) -> Result<(), Status> {
        check_update(resource_type, given.as_object().unwrap(), &Limits::default())
            .map_err(|refusal| refusal.status)
    }

    #[test]
    fn presence_and_form_are_checked_at_creation() {
        let ae = ResourceType::ApplicationEntity;
        assert_eq!(create(ae, &json!({"api": "Nx", "rr": true, "srv": ["4"]})), Ok(()));
        for wrong in [
            json!({"rr": true, "srv": ["4"]}),
            json!({"api": "Nx", "rr": "yes", "srv": ["4"]}),
            json!({"api": "Nx", "rr": true, "srv": "4"}),
            json!({"api": "Nx", "rr": true, "srv": ["4"], "aei": "Cx"}),
            json!({"api": "Nx", "rr": true, "srv": ["4"], "mni": 3}),
            json!({"api": "Nx", "rr": true, "srv": ["4"], "ri": "x"}),
            json!({"api": "Nx", "rr": true, "srv": ["4"], "et": "tomorrow"}),
        ] {
            assert_eq!(create(ae, &wrong), Err(Status::BadRequest), "{wrong}");
        }
        assert_eq!(create(ResourceType::Container, &json!({"mni": -1})), Err(Status::BadRequest));
    }

    #[test]
    fn an_update_removes_with_null_what_is_not_mandatory() {
        assert_eq!(update(ResourceType::Container, &json!({"mni": null, "lbl": ["x"]})), Ok(()));
        assert_eq!(
            update(ResourceType::ApplicationEntity, &json!({"rr": null})),
            Err(Status::BadRequest)
        );
        assert_eq!(update(ResourceType::Container, &json!({"rn": "x"})), Err(Status::BadRequest));
        assert_eq!(update(ResourceType::Container, &json!({"cni": 1})), Err(Status::BadRequest));
    }

    #[test]
    fn open_types_take_any_name() {
        assert_eq!(
            create(ResourceType::FlexContainer, &json!({"cnd": "x.y", "oxySn": 96})),
            Ok(())
        );
        assert_eq!(
            create(ResourceType::FlexContainer, &json!({"oxySn": 96})),
            Err(Status::BadRequest)
        );
    }

    #[test]
    fn content_info() {
        for good in ["text/plain:0", "application/json", "application/cbor:1:3"] {
            assert!(check_content_info(Some(good)).is_ok(), "{good}");
        }
        for bad in ["", "text", "text/", "text/plain:3", "text/plain:0:8", "a/b:0:1:2", "/b"] {
            assert!(check_content_info(Some(bad)).is_err(), "{bad}");
        }
    }
}
