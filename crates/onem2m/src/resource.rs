//! Resource: header, attributes and serialisation.

use crate::dense::DenseMap;
use crate::paged::PagedInstances;
use crate::resource_type::ResourceType;
use crate::stored::{Damage, InstanceHeader};
use crate::time::Timestamp;
use crate::tree::Slot;
use core::fmt::Write;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Mark in the text of each instance with labels.
pub(crate) const LABELS: &str = "\"lbl\":";

/// A resource in the tree.
#[expect(clippy::struct_field_names, reason = "resourceType is the attribute's name (TS-0001)")]
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// Number of the resource, never reused; its row in the store.
    pub(crate) seq: u64,
    pub(crate) resource_type: ResourceType,
    /// Short name with namespace; flexContainers and management objects bring their own.
    pub(crate) tag: Cow<'static, str>,
    /// `ri`.
    pub(crate) id: Arc<str>,
    /// `rn`.
    pub(crate) name: Arc<str>,
    pub(crate) parent: Option<Slot>,
    /// `pi`; empty for the CSEBase.
    pub(crate) parent_id: Arc<str>,
    pub(crate) created: Timestamp,
    pub(crate) modified: Timestamp,
    /// `et`; [`Timestamp::MAX`] for the CSEBase.
    pub(crate) expires: Timestamp,
    /// `st`, of the types that have one.
    pub(crate) state: u64,
    /// Its creator: the default holder of every right.
    pub(crate) owner: Arc<str>,
    /// Of an AE: the CSE that registered it by its own certificate, and may name it as originator.
    pub(crate) sponsor: Option<Arc<str>>,
    /// The peer that it counts toward, with all below it: of a child of the CSEBase that a peer made,
    /// and of what a peer made below those of this process.
    pub(crate) made_by: Option<Arc<str>>,
    /// Everything else, of types that are not instances.
    pub(crate) attributes: Map<String, Value>,
    /// The whole JSON text with its tag, of instances: they never change.
    pub(crate) representation: Option<Arc<str>>,
    /// `cs`, of instances: octets of content.
    pub(crate) size: u64,
    /// Of instances, whether they are known to have no attribute that keeps them in memory.
    pub(crate) is_plain: bool,
    pub(crate) family: Option<Box<Family>>,
    /// The number of the batch that stores its present state.
    pub(crate) stored_by: u64,
}

/// The children of a resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Family {
    /// By sequence number, so oldest first: every child that is not an instance.
    pub(crate) children: BTreeMap<u64, Slot>,
    /// By sequence number, so oldest first: the resident instances.
    pub(crate) instances: DenseMap<u64, Slot>,
    /// Those that are paged out, if there are any.
    pub(crate) paged: Option<Box<PagedInstances>>,
    pub(crate) names: HashMap<Arc<str>, Slot>,
    /// Those of the children that are subscriptions, but for those that lag behind.
    pub(crate) subscriptions: Vec<Slot>,
    /// Subscriptions that lag behind: they are notified later.
    pub(crate) lagging: Vec<Slot>,
    /// The child that is a schedule.
    pub(crate) schedule: Option<Slot>,
    /// Octets of content in the instances: `cbs`.
    pub(crate) octets: u64,
    /// When the instances of a time series were generated: no two at the same time.
    pub(crate) generated: BTreeSet<Timestamp>,
    /// Creation time of the latest instance.
    pub(crate) latest: Timestamp,
    /// Whether an instance was created before an earlier one, by a wall clock that was set back.
    pub(crate) is_disordered: bool,
}

impl Family {
    /// Number of the children that are subscriptions.
    pub(crate) const fn subscription_count(&self) -> usize {
        self.subscriptions.len() + self.lagging.len()
    }
}

/// Octets of memory for which a resource takes up one place more.
pub(crate) const PLACE_OCTETS: usize = 2_048;

/// Octets of memory of a label beside its text, if no other resource has it.
const LABEL_OCTETS: usize = 150;

/// Octets of the store that an instance with this size of content takes up at most, or else stays in
/// memory: half as much again for what is escaped, and 512 for the other attributes.
pub(crate) fn row_octets(size: u64) -> usize {
    row_octets_of(1, size, size % 2)
}

/// [`row_octets`] of so many instances together, with the sum of their sizes, and how many of these
/// are odd.
pub(crate) fn row_octets_of(count: usize, sizes: u64, odd_sizes: u64) -> usize {
    let octets = sizes.saturating_add(sizes.saturating_sub(odd_sizes) / 2);
    usize::try_from(octets).unwrap_or(usize::MAX).saturating_add(count.saturating_mul(512))
}

/// Octets of memory of attributes.
fn memory_octets(attributes: &Map<String, Value>) -> usize {
    attributes.iter().map(|(name, value)| member_octets(name, value)).sum()
}

/// Octets of memory of one member of an object.
fn member_octets(name: &str, value: &Value) -> usize {
    /// Of its entry in the map, beside name and value.
    const ENTRY: usize = 32;
    ENTRY + name.len() + value_octets(value)
}

/// Octets of memory of a value.
fn value_octets(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(value_octets).sum(),
        Value::Object(members) => memory_octets(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + inner
}

/// The labels of an instance, in its text.
#[derive(Deserialize)]
struct Labelled {
    #[serde(default)]
    lbl: Option<Vec<Value>>,
}

impl Resource {
    /// An attribute that is not part of the header.
    pub(crate) fn attribute(&self, name: &str) -> Option<&Value> {
        self.attributes.get(name)
    }

    /// An attribute that is text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.attribute(name).and_then(Value::as_str)
    }

    /// An attribute that is a number.
    pub(crate) fn uint(&self, name: &str) -> Option<u64> {
        self.attribute(name).and_then(Value::as_u64)
    }

    /// An attribute that is a flag; absent is false.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.attribute(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The texts of a list attribute; none if it is absent.
    pub(crate) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.attribute(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    }

    /// Octets of the attributes' names and texts, as a measure of their JSON text.
    pub(crate) fn text_octets(&self) -> usize {
        fn octets_of(value: &Value) -> usize {
            // Quotes, a comma or a number.
            const BESIDE: usize = 8;
            let inner: usize = match value {
                Value::String(text) => text.len(),
                Value::Array(values) => values.iter().map(octets_of).sum(),
                Value::Object(members) => {
                    members.iter().map(|(name, value)| name.len() + octets_of(value)).sum()
                }
                Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            };
            inner + BESIDE
        }
        self.attributes.iter().map(|(name, value)| name.len() + octets_of(value)).sum()
    }

    /// Places that it takes up of those that the tree and its branch have: one, and one more for each
    /// [`PLACE_OCTETS`] of its text, its attributes and its labels' index.
    pub(crate) fn places(&self) -> usize {
        let text = self.representation.as_ref().map_or(0, |text| text.len());
        let mut octets = text + memory_octets(&self.attributes);
        self.each_label(|label| octets += label.len() + LABEL_OCTETS);
        1 + octets / PLACE_OCTETS
    }

    /// Octets of the store that it takes up, approximately; those of an instance are the same
    /// whether its text is in memory or not.
    pub(crate) fn stored_octets(&self) -> usize {
        let text = self.representation.as_ref().map_or(0, |text| text.len());
        row_octets(self.size).max(text) + memory_octets(&self.attributes)
    }

    /// Places that it takes up in addition once it has these values.
    pub(crate) fn further_places(&self, given: &Map<String, Value>) -> usize {
        let octets_of = |name: &String, value: &Value| {
            let labels = if name == "lbl" { value.as_array().map_or(0, Vec::len) } else { 0 };
            member_octets(name, value) + labels * LABEL_OCTETS
        };
        let after: usize = given.iter().map(|(name, value)| octets_of(name, value)).sum();
        let replaced = given.keys().filter_map(|name| self.attributes.get_key_value(name));
        let before: usize = replaced.map(|(name, value)| octets_of(name, value)).sum();
        after.saturating_sub(before) / PLACE_OCTETS
    }

    /// Calls `each` with every label.
    pub(crate) fn each_label(&self, mut each: impl FnMut(&str)) {
        let Some(text) = &self.representation else {
            self.texts("lbl").for_each(each);
            return;
        };
        // Few instances have labels, and none of those is without this.
        if self.is_plain || !text.contains(LABELS) {
            return;
        }
        let labelled: Option<Labelled> = serde_json::from_str(self.inner(text)).ok();
        let labels = labelled.and_then(|it| it.lbl).unwrap_or_default();
        labels.iter().filter_map(Value::as_str).for_each(&mut each);
    }

    /// `cni`.
    pub(crate) fn instance_count(&self) -> u64 {
        let paged = |family: &Family| family.paged.as_ref().map_or(0, |paged| paged.len());
        let count = self.family.as_ref().map_or(0, |it| it.instances.len() + paged(it));
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// `cbs`.
    pub(crate) fn instance_octets(&self) -> u64 {
        self.family.as_ref().map_or(0, |family| family.octets)
    }

    /// Whether instances are counted below this one.
    fn counts_instances(&self) -> bool {
        match self.resource_type {
            ResourceType::Container | ResourceType::TimeSeries => true,
            ResourceType::FlexContainer => self.keeps_history(),
            _ => false,
        }
    }

    /// Whether a flexContainer keeps an instance of each of its states.
    pub(crate) fn keeps_history(&self) -> bool {
        let bounded = ["mni", "mbs", "mia"].iter().any(|name| self.attributes.contains_key(*name));
        self.attribute("fcied").and_then(Value::as_bool).unwrap_or(bounded)
    }

    /// When it was generated, of instances of a time series.
    pub(crate) fn generated(&self) -> Option<Timestamp> {
        if self.resource_type != ResourceType::TimeSeriesInstance {
            return None;
        }
        self.to_object().get("dgt").and_then(Value::as_str).and_then(Timestamp::parse)
    }

    /// Every attribute, header and all, as one JSON object.
    pub(crate) fn to_object(&self) -> Map<String, Value> {
        if let Some(text) = &self.representation {
            let inner: Option<Map<String, Value>> = serde_json::from_str(self.inner(text)).ok();
            return inner.unwrap_or_default();
        }
        let mut object = self.attributes.clone();
        object.insert("ri".into(), Value::from(&*self.id));
        object.insert("rn".into(), Value::from(&*self.name));
        object.insert("pi".into(), Value::from(&*self.parent_id));
        object.insert("ty".into(), Value::from(self.resource_type.number()));
        object.insert("ct".into(), Value::from(self.created.to_string()));
        object.insert("lt".into(), Value::from(self.modified.to_string()));
        if self.resource_type.expires() {
            object.insert("et".into(), Value::from(self.expires.to_string()));
        }
        if self.resource_type.has_state_tag() {
            object.insert("st".into(), Value::from(self.state));
        }
        if self.counts_instances() {
            object.insert("cni".into(), Value::from(self.instance_count()));
            object.insert("cbs".into(), Value::from(self.instance_octets()));
        }
        object
    }

    /// The JSON text with the tag: `{"m2m:cnt":{…}}`.
    pub(crate) fn to_text(&self) -> Arc<str> {
        if let Some(text) = &self.representation {
            return Arc::clone(text);
        }
        wrap(&self.tag, Value::Object(self.to_object())).into()
    }

    /// Every attribute as the text of one JSON object; what is kept as text stays as it is, so that
    /// a number keeps its digits.
    pub(crate) fn attributes_text(&self) -> Cow<'_, str> {
        match &self.representation {
            Some(text) => Cow::Borrowed(self.inner(text)),
            None => Cow::Owned(Value::Object(self.to_object()).to_string()),
        }
    }

    /// Writes into an instance's text when it expires.
    pub(crate) fn write_expiry(&mut self) {
        const NAME: &str = "\"et\":\"";
        let Some(text) = &self.representation else { return };
        if self.resource_type != ResourceType::ContentInstance {
            let mut object = self.to_object();
            object.insert("et".into(), Value::from(self.expires.to_string()));
            self.representation = Some(wrap(&self.tag, Value::Object(object)).into());
            return;
        }
        // The header stands before all that was given, and no name in it has a quotation mark.
        let Some((before, after)) = text.split_once(NAME) else { return };
        let Some((_, rest)) = after.split_once('"') else { return };
        self.representation = Some(format!("{before}{NAME}{}\"{rest}", self.expires).into());
    }

    /// The JSON text without the tag.
    pub(crate) fn inner<'text>(&self, text: &'text str) -> &'text str {
        // `{"` tag `":` … `}`
        text.get(self.tag.len() + 4..text.len().saturating_sub(1)).unwrap_or("{}")
    }

    /// The stored part: the text, and owner, sponsor and peer where they matter.
    pub(crate) fn to_record(&self) -> Arc<str> {
        if let Some(text) = &self.representation {
            return Arc::clone(text);
        }
        let mut text = String::with_capacity(512);
        text.push_str("{\"");
        text.push_str(&self.tag);
        text.push_str("\":");
        text.push_str(&Value::Object(self.to_object()).to_string());
        text.push_str(",\"_o\":");
        push_json_text(&mut text, &self.owner);
        if let Some(sponsor) = &self.sponsor {
            text.push_str(",\"_s\":");
            push_json_text(&mut text, sponsor);
        }
        if let Some(peer) = &self.made_by {
            text.push_str(",\"_p\":");
            push_json_text(&mut text, peer);
        }
        text.push('}');
        text.into()
    }

    /// Reads what [`Self::to_record`] wrote; the parent's slot is still to be found.
    ///
    /// # Errors
    ///
    /// What is wrong with the row.
    pub(crate) fn from_record(seq: u64, body: &Arc<str>) -> Result<Self, Damage> {
        if InstanceHeader::is_in(body) {
            return Self::instance_from_record(seq, body);
        }
        let mut outer: Map<String, Value> = serde_json::from_str(body)?;
        let mut aside = |name| outer.remove(name).and_then(|it| it.as_str().map(Arc::from));
        let (owner, sponsor, made_by) = (aside("_o"), aside("_s"), aside("_p"));
        let Some((tag, Value::Object(mut attributes))) = outer.into_iter().next() else {
            return Err(Damage::Member("its object of attributes"));
        };
        let mut text = |name| match attributes.remove(name) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(Damage::Member(name)),
        };
        let (id, name, parent_id) = (text("ri")?, text("rn")?, text("pi")?);
        let mut time = |name| Timestamp::parse(&text(name)?).ok_or(Damage::Member(name));
        let (created, modified) = (time("ct")?, time("lt")?);
        let expires = time("et").unwrap_or(Timestamp::MAX);
        let mut uint = |name: &str| attributes.remove(name).and_then(|number| number.as_u64());
        let resource_type = uint("ty").and_then(|number| u16::try_from(number).ok());
        let resource_type =
            resource_type.and_then(ResourceType::from_number).ok_or(Damage::Member("ty"))?;
        let state = uint("st").unwrap_or(0);
        uint("cni");
        uint("cbs");
        let size = attributes.get("cs").and_then(Value::as_u64).unwrap_or(0);
        let representation = resource_type.is_instance().then(|| Arc::clone(body));
        if representation.is_some() {
            attributes = Map::new();
        }
        Ok(Self {
            seq,
            resource_type,
            tag: if resource_type.tag() == tag {
                Cow::Borrowed(resource_type.tag())
            } else {
                Cow::Owned(tag)
            },
            id: id.into(),
            name: name.into(),
            parent: None,
            parent_id: parent_id.into(),
            created,
            modified,
            expires,
            state,
            owner: owner.unwrap_or_default(),
            sponsor,
            made_by,
            attributes,
            representation,
            size,
            is_plain: false,
            family: None,
            stored_by: 0,
        })
    }

    /// The same, of a contentInstance, of which only the header is kept apart.
    fn instance_from_record(seq: u64, body: &Arc<str>) -> Result<Self, Damage> {
        let header = InstanceHeader::read(body)?;
        let missing = Damage::Member;
        Ok(Self {
            seq,
            resource_type: ResourceType::ContentInstance,
            tag: Cow::Borrowed(ResourceType::ContentInstance.tag()),
            id: header.id.ok_or(missing("ri"))?.into(),
            name: header.name.ok_or(missing("rn"))?.into(),
            parent: None,
            parent_id: header.parent_id.ok_or(missing("pi"))?.into(),
            created: header.created.ok_or(missing("ct"))?,
            modified: header.modified.ok_or(missing("lt"))?,
            expires: header.expires.unwrap_or(Timestamp::MAX),
            state: header.state,
            owner: Arc::default(),
            sponsor: None,
            made_by: None,
            attributes: Map::new(),
            representation: Some(Arc::clone(body)),
            size: header.size,
            is_plain: false,
            family: None,
            stored_by: 0,
        })
    }
}

/// The JSON text with the tag, of those of these attributes that `is_wanted` only.
pub(crate) fn some_attributes(
    tag: &str,
    attributes: &str,
    mut is_wanted: impl FnMut(&str) -> bool,
) -> String {
    let all: BTreeMap<String, &RawValue> = serde_json::from_str(attributes).unwrap_or_default();
    let mut text = String::with_capacity(64);
    for (name, value) in all.iter().filter(|(name, _)| is_wanted(name)) {
        text.push(if text.is_empty() { '{' } else { ',' });
        push_json_text(&mut text, name);
        text.push(':');
        text.push_str(value.get());
    }
    text.push_str(if text.is_empty() { "{}" } else { "}" });
    wrap(tag, &text)
}

/// `{"TAG":VALUE}` as text.
pub(crate) fn wrap(tag: &str, value: impl core::fmt::Display) -> String {
    let mut text = String::with_capacity(256);
    // Tags are names of the specification or were checked when they came in.
    let _ = write!(text, "{{\"{tag}\":{value}}}");
    text
}

/// Appends `value` to `text` as a JSON string.
pub(crate) fn push_json_text(text: &mut String, value: &str) {
    // Octets that stand for themselves are copied in runs: a notification's content in its row has a
    // quotation mark every few octets.
    text.reserve(value.len() + 2);
    text.push('"');
    let mut rest = value;
    loop {
        let (run, behind) = rest.split_at_checked(plain_run(rest)).unwrap_or((rest, ""));
        text.push_str(run);
        let mut characters = behind.chars();
        let Some(special) = characters.next() else { break };
        push_escape(text, special);
        rest = characters.as_str();
    }
    text.push('"');
}

/// Octets at the front that stand for themselves in JSON text.
fn plain_run(text: &str) -> usize {
    // Eight at a time: runs are short where JSON text is written as text.
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let mut whole = 0;
    for word in words {
        let marks = special_octets(u64::from_le_bytes(*word));
        if marks != 0 {
            return whole + usize::try_from(marks.trailing_zeros() / 8).unwrap_or(0);
        }
        whole += 8;
    }
    let is_special = |octet: &u8| *octet < 0x20 || matches!(octet, b'"' | b'\\');
    whole + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// The highest bit of the first octet, from the lowest on, that JSON text has to escape: below 0x20, a
/// quotation mark or a backslash. Bits of later octets may be set, too; none if there is no such octet.
const fn special_octets(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGHEST: u64 = ONES * 0x80;
    // An octet below `least` borrows from its highest bit, and so may one behind it.
    const fn below(word: u64, least: u64) -> u64 {
        word.wrapping_sub(ONES * least) & !word
    }
    let controls = below(word, 0x20);
    let quotation = below(word ^ (ONES * 0x22), 1);
    let backslash = below(word ^ (ONES * 0x5c), 1);
    (controls | quotation | backslash) & HIGHEST
}

/// Appends the escape of a character that JSON text has none of (RFC 8259 §7).
fn push_escape(text: &mut String, character: char) {
    let short = match character {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{8}' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\u{c}' => "\\f",
        '\r' => "\\r",
        other => {
            // A string takes whatever is written to it.
            let _ = write!(text, "\\u{:04x}", u32::from(other));
            return;
        }
    };
    text.push_str(short);
}

/// Appends `number` to `text` in decimal digits, or in hexadecimal ones: the formatting machinery
/// costs more than all else of a short name.
pub(crate) fn push_number<const RADIX: u64>(text: &mut String, number: u64) {
    let mut rest = number;
    // As many as 2⁶⁴ has in decimal.
    let mut digits = [[0; 2]; 10];
    let mut length = 0;
    let digit = |digit: u8| match digit {
        10.. if RADIX > 10 => b'a' - 10 + digit,
        _ => b'0' + digit,
    };
    for pair in digits.iter_mut().rev() {
        // Two at a time: half the divisions.
        let two = u8::try_from(rest % (RADIX * RADIX)).unwrap_or(0);
        let radix = if RADIX == 16 { 16 } else { 10 };
        *pair = [digit(two / radix), digit(two % radix)];
        length += 2;
        rest /= RADIX * RADIX;
        if rest == 0 {
            break;
        }
    }
    let digits = digits.as_flattened();
    let written = digits.get(digits.len() - length..).unwrap_or_default();
    let written = match written {
        [b'0', rest @ ..] => rest,
        all => all,
    };
    text.push_str(core::str::from_utf8(written).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_as_the_json_library_writes_them() {
        let controls: String = (0..=0xa0_u32).filter_map(char::from_u32).collect();
        for value in ["", "plain", "\"", "a\\\"b\"", "é\n\u{2028}x\r", &controls] {
            // At each place among eight octets.
            for before in 0..9 {
                let value = format!("{}{value}", "\u{7f}".repeat(before));
                let mut text = String::new();
                push_json_text(&mut text, &value);
                assert_eq!(text, Value::from(value).to_string());
            }
        }
    }

    #[test]
    fn numbers_as_the_standard_library_writes_them() {
        for number in [0, 1, 9, 10, 15, 16, 99, 100, 255, 256, 4_096, 12_345, u64::MAX] {
            let (mut decimal, mut hexadecimal) = (String::new(), String::new());
            push_number::<10>(&mut decimal, number);
            push_number::<16>(&mut hexadecimal, number);
            assert_eq!((decimal, hexadecimal), (number.to_string(), format!("{number:x}")));
        }
    }
}
