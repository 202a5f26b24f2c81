//! Discovery (TS-0001 §10.2.6), and the match of a resource with filter criteria.

use super::access::{Originator, Right};
use super::{Cse, Done, Refusal, RequestContext};
use crate::filter::{Combine, Filter, LabelsQuery, Steps, matches_wildcard};
use crate::geometry::Geometry;
use crate::paged::{InstanceRecord, PagedInstances};
use crate::primitive::Request;
use crate::resource::{LABELS, Resource};
use crate::resource_type::ResourceType;
use crate::stored::attributes_of;
use crate::tree::Slot;
use serde_json::{Map, Value};
use std::sync::Arc;

impl Cse {
    pub(super) fn discover(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &Originator<'_>,
        slot: Slot,
    ) -> Result<Option<Done>, Refusal> {
        self.demand(from, Right::Discover, slot, None)?;
        self.ledger.see_all();
        let rcn = request.result_content.unwrap_or(11);
        // What shows attributes needs the right to retrieve; references need that to discover.
        let right = if matches!(rcn, 4 | 5 | 8) { Right::Retrieve } else { Right::Discover };
        if right == Right::Retrieve {
            self.demand(from, Right::Retrieve, slot, None)?;
        }
        self.search(asker, request, from, (slot, right), rcn)
    }

    /// Whether a resource meets the conditions: several values of one criterion are alternatives,
    /// and different criteria combine as the filter says. Expensive conditions are paid for in
    /// `steps`.
    ///
    /// Content counts only if `from` may retrieve the resource: otherwise the criteria would reveal
    /// a reading, digit by digit, to an originator that may only discover it.
    pub(super) fn matches(
        &self,
        filter: &Filter,
        from: &Originator<'_>,
        slot: Slot,
        steps: &mut Steps,
    ) -> Result<bool, Refusal> {
        let Some(resource) = self.tree.get(slot) else {
            return Ok(false);
        };
        let mut verdicts = Verdicts::default();
        judge_header(filter, resource, &mut verdicts);
        judge_own_labels(filter, resource, &mut verdicts, steps)?;
        self.judge_relatives(filter, from, slot, &mut verdicts, steps)?;
        let may_retrieve = || self.allows(from, Right::Retrieve, slot, None);
        self.judge_inside(filter, resource, may_retrieve, &mut verdicts, steps)?;
        Ok(verdicts.combine(filter.operation))
    }

    /// Checks the criteria on what only an originator that may retrieve the resource sees, and the
    /// queries on its labels.
    fn judge_inside(
        &self,
        filter: &Filter,
        resource: &Resource,
        may_retrieve: impl FnOnce() -> bool,
        verdicts: &mut Verdicts,
        steps: &mut Steps,
    ) -> Result<(), Refusal> {
        let inside = filter.attributes.len()
            + usize::from(!filter.content_types.is_empty())
            + usize::from(filter.place.is_given())
            + usize::from(!filter.content_queries.is_empty());
        let is_hidden = inside > 0 && !may_retrieve();
        if is_hidden {
            verdicts.all += inside;
        } else {
            judge_attributes(filter, resource, verdicts, steps)?;
        }
        if !verdicts.are_lost(filter.operation) {
            judge_labels(filter, resource, verdicts, steps)?;
        }
        if is_hidden {
            return Ok(());
        }
        if filter.place.is_given() && !verdicts.are_lost(filter.operation) {
            verdicts.add(is_placed(filter, resource, steps)?);
        }
        if !filter.content_queries.is_empty() && !verdicts.are_lost(filter.operation) {
            verdicts.add(self.has_content(filter, resource, steps)?);
        }
        Ok(())
    }

    /// Whether an instance that is paged out meets the conditions, none of which is about its
    /// relatives, by its text. Its rights are its container's.
    pub(super) fn matches_text(
        &self,
        filter: &Filter,
        from: &Originator<'_>,
        (container, record, text): (Slot, &InstanceRecord, Arc<str>),
        steps: &mut Steps,
    ) -> Result<bool, Refusal> {
        let mut instance = record.to_header();
        instance.parent = Some(container);
        instance.representation = Some(text);
        let mut verdicts = Verdicts::default();
        judge_header(filter, &instance, &mut verdicts);
        judge_own_labels(filter, &instance, &mut verdicts, steps)?;
        let may_retrieve = || self.allows(from, Right::Retrieve, container, None);
        self.judge_inside(filter, &instance, may_retrieve, &mut verdicts, steps)?;
        Ok(verdicts.combine(filter.operation))
    }

    /// Whether an instance that is paged out meets the conditions; `None` if its text decides.
    pub(super) fn matches_paged(
        filter: &Filter,
        record: &InstanceRecord,
        steps: &mut Steps,
    ) -> Result<Option<bool>, Refusal> {
        let header = record.to_header();
        let mut verdicts = Verdicts::default();
        judge_header(filter, &header, &mut verdicts);
        if verdicts.are_lost(filter.operation) {
            return Ok(Some(false));
        }
        let is_of_text = !(filter.attributes.is_empty()
            && filter.content_types.is_empty()
            && filter.content_queries.is_empty());
        if is_of_text || is_of_relatives(filter) {
            return Ok(None);
        }
        // It has neither labels nor a location.
        if !filter.labels.is_empty() {
            verdicts.add(false);
        }
        judge_labels(filter, &header, &mut verdicts, steps)?;
        if filter.place.is_given() {
            verdicts.add(false);
        }
        Ok(Some(verdicts.combine(filter.operation)))
    }

    /// Limit of steps for the criteria of one request.
    pub(super) const fn steps(&self) -> Steps {
        Steps::new(self.config.limits.filter_steps)
    }

    fn has_content(
        &self,
        filter: &Filter,
        resource: &Resource,
        steps: &mut Steps,
    ) -> Result<bool, Refusal> {
        let series = resource.parent.and_then(|parent| self.tree.get(parent));
        let Some(content) = json_content(resource, series, steps)? else {
            return Ok(false);
        };
        for query in &filter.content_queries {
            steps.spend(query.cost(&content))?;
            if query.holds(&content) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks the criteria on the parent and the children, as far as `from` may see them.
    fn judge_relatives(
        &self,
        filter: &Filter,
        from: &Originator<'_>,
        slot: Slot,
        verdicts: &mut Verdicts,
        steps: &mut Steps,
    ) -> Result<(), Refusal> {
        let of_children = usize::from(!filter.child_types.is_empty())
            + usize::from(!filter.child_labels.is_empty())
            + filter.child_attributes.len();
        let paged = self.tree.paged_of(slot).map_or(0, PagedInstances::len);
        if of_children > 0 {
            let children = self.tree.children(slot).count().saturating_add(paged);
            let children = children.saturating_mul(of_children);
            // One family is walked at once: the budget of the whole request bounds it.
            for _ in 0..children {
                steps.spend(RELATIVE)?;
            }
        }
        let sees = |right, slot, fits: &dyn Fn(&Resource) -> bool| {
            self.tree.get(slot).is_some_and(fits) && self.allows(from, right, slot, None)
        };
        let a_child = |right, fits: &dyn Fn(&Resource) -> bool| {
            self.tree.children(slot).any(|child| sees(right, child, fits))
        };
        let parent = self.tree.get(slot).and_then(|resource| resource.parent);
        let the_parent = |right, fits: &dyn Fn(&Resource) -> bool| {
            parent.is_some_and(|parent| sees(right, parent, fits))
        };
        if !filter.child_types.is_empty() {
            let fits = |child: &Resource| is_one_of(child.resource_type, &filter.child_types);
            // The rights of an instance are its container's.
            let is_paged = paged > 0
                && is_one_of(ResourceType::ContentInstance, &filter.child_types)
                && self.allows(from, Right::Discover, slot, None);
            verdicts.add(is_paged || a_child(Right::Discover, &fits));
        }
        if !filter.parent_types.is_empty() {
            let fits = |parent: &Resource| is_one_of(parent.resource_type, &filter.parent_types);
            verdicts.add(the_parent(Right::Discover, &fits));
        }
        if !filter.child_labels.is_empty() {
            let fits = |child: &Resource| carries_one(child, &filter.child_labels);
            verdicts.add(a_child(Right::Discover, &fits));
        }
        if !filter.parent_labels.is_empty() {
            let fits = |parent: &Resource| carries_one(parent, &filter.parent_labels);
            verdicts.add(the_parent(Right::Discover, &fits));
        }
        if paged > 0 && !filter.child_attributes.is_empty() {
            return Err(self.lacks_all(slot));
        }
        verdicts.add_attributes(&filter.child_attributes, |wanted| {
            a_child(Right::Retrieve, &|child| has_value(&child.to_object(), wanted))
        });
        verdicts.add_attributes(&filter.parent_attributes, |wanted| {
            the_parent(Right::Retrieve, &|parent| has_value(&parent.to_object(), wanted))
        });
        Ok(())
    }
}

/// Number of conditions, and of those that hold.
#[derive(Default)]
struct Verdicts {
    all: usize,
    held: usize,
}

impl Verdicts {
    const fn add(&mut self, holds: bool) {
        self.all += 1;
        self.held += if holds { 1 } else { 0 };
    }

    /// Adds a range from `least` to below `end`; no condition if neither is given.
    fn add_range<T: PartialOrd>(&mut self, least: Option<T>, value: Option<T>, end: Option<T>) {
        if least.is_none() && end.is_none() {
            return;
        }
        self.add(value.is_some_and(|value| {
            least.is_none_or(|least| least <= value) && end.is_none_or(|end| value < end)
        }));
    }

    /// Adds values of attributes: several of one attribute are alternatives.
    fn add_attributes(
        &mut self,
        wanted: &[(String, String)],
        holds: impl Fn(&(String, String)) -> bool,
    ) {
        for (at, (name, _)) in wanted.iter().enumerate() {
            if !wanted.iter().take(at).any(|(before, _)| before == name) {
                self.add(wanted.iter().any(|pair| pair.0 == *name && holds(pair)));
            }
        }
    }

    /// Whether the remaining conditions cannot change a failure.
    const fn are_lost(&self, operation: Combine) -> bool {
        matches!(operation, Combine::And) && self.held < self.all
    }

    const fn combine(&self, operation: Combine) -> bool {
        match operation {
            Combine::And => self.held == self.all,
            Combine::Or => self.held > 0 || self.all == 0,
            Combine::Xor => self.held % 2 == 1 || self.all == 0,
        }
    }
}

/// Checks times, the state tag and the size: both bounds of each are one condition (TS-0004
/// §7.3.3.17.1 to 4 and 7).
fn judge_header(filter: &Filter, resource: &Resource, verdicts: &mut Verdicts) {
    let state = resource.resource_type.has_state_tag().then_some(resource.state);
    let size = resource.resource_type.is_instance().then_some(resource.size);
    let created = Some(resource.created);
    let modified = Some(resource.modified);
    let expires = Some(resource.expires);
    verdicts.add_range(filter.created_after, created, filter.created_before);
    verdicts.add_range(filter.modified_since, modified, filter.unmodified_since);
    verdicts.add_range(filter.expire_after, expires, filter.expire_before);
    verdicts.add_range(filter.state_bigger, state, filter.state_smaller);
    verdicts.add_range(filter.size_above, size, filter.size_below);
    if !filter.resource_types.is_empty() {
        verdicts.add(is_one_of(resource.resource_type, &filter.resource_types));
    }
}

/// Whether a criterion is about the parent or the children.
const fn is_of_relatives(filter: &Filter) -> bool {
    !(filter.parent_types.is_empty()
        && filter.parent_labels.is_empty()
        && filter.parent_attributes.is_empty()
        && filter.child_types.is_empty()
        && filter.child_labels.is_empty()
        && filter.child_attributes.is_empty())
}

/// Whether the stored text of an instance and its record decide on a match. Its expirationTime may
/// have moved since it was stored.
pub(super) fn is_of_own_text(filter: &Filter) -> bool {
    !is_of_relatives(filter) && filter.attributes.iter().all(|(name, _)| name != "et")
}

fn judge_own_labels(
    filter: &Filter,
    resource: &Resource,
    verdicts: &mut Verdicts,
    steps: &mut Steps,
) -> Result<(), Refusal> {
    if !filter.labels.is_empty() {
        steps.spend(label_cost(resource))?;
        verdicts.add(carries_one(resource, &filter.labels));
    }
    Ok(())
}

fn judge_attributes(
    filter: &Filter,
    resource: &Resource,
    verdicts: &mut Verdicts,
    steps: &mut Steps,
) -> Result<(), Refusal> {
    if filter.content_types.is_empty() && filter.attributes.is_empty() {
        return Ok(());
    }
    let octets = resource.representation.as_ref().map_or(READ_OCTETS, |text| text.len());
    steps.spend(count(octets / READ_STEP))?;
    let is_wanted =
        |name: &str| name == "cnf" || filter.attributes.iter().any(|(wanted, _)| wanted == name);
    let object = match &resource.representation {
        Some(text) => attributes_of(resource.inner(text), is_wanted),
        None => resource.to_object(),
    };
    if !filter.content_types.is_empty() {
        let info = object.get("cnf").and_then(Value::as_str);
        verdicts.add(info.is_some_and(|info| {
            let media = info.split(':').next().unwrap_or(info);
            filter.content_types.iter().any(|wanted| wanted == info || wanted == media)
        }));
    }
    verdicts.add_attributes(&filter.attributes, |wanted| has_value(&object, wanted));
    Ok(())
}

/// Steps for reading a resource's labels.
fn label_cost(resource: &Resource) -> u64 {
    match &resource.representation {
        Some(text) if text.contains(LABELS) => count(text.len() / READ_STEP),
        _ => 1,
    }
}

fn judge_labels(
    filter: &Filter,
    resource: &Resource,
    verdicts: &mut Verdicts,
    steps: &mut Steps,
) -> Result<(), Refusal> {
    if filter.labels_queries.is_empty() {
        return Ok(());
    }
    let labels = match read(resource, steps)? {
        Some(mut object) => object.remove("lbl"),
        None => resource.attribute("lbl").cloned(),
    };
    let labels = labels.as_ref().and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
    let comparisons: usize = filter.labels_queries.iter().map(LabelsQuery::comparisons).sum();
    steps.spend(count(comparisons.saturating_mul(labels.len() + 1)))?;
    let each = || labels.iter().filter_map(Value::as_str);
    verdicts.add(filter.labels_queries.iter().any(|query| query.holds(each())));
    Ok(())
}

/// Whether a resource has a location that meets the geo-query.
fn is_placed(filter: &Filter, resource: &Resource, steps: &mut Steps) -> Result<bool, Refusal> {
    let parsed = match &resource.representation {
        Some(text) if !text.contains("\"loc\":") => return Ok(false),
        _ => read(resource, steps)?,
    };
    let location = match &parsed {
        Some(object) => object.get("loc"),
        None => resource.attribute("loc"),
    };
    let Some(location) = location else {
        return Ok(false);
    };
    let text = location.get("crd").and_then(Value::as_str).unwrap_or_default();
    steps.spend(count(text.len() / READ_STEP))?;
    // What was stored before locations were looked at may be none.
    Geometry::read_location(location).map_or(Ok(false), |it| filter.place.holds(&it, steps))
}

/// The attributes of an instance, parsed from its text.
fn read(resource: &Resource, steps: &mut Steps) -> Result<Option<Map<String, Value>>, Refusal> {
    let Some(text) = &resource.representation else {
        return Ok(None);
    };
    steps.spend(count(text.len() / READ_STEP))?;
    Ok(Some(resource.to_object()))
}

/// The content of an instance, if it is JSON: a structured value, or text that contentInfo (of a
/// time series, that of the series) says is JSON, as it is and in the clear.
fn json_content(
    resource: &Resource,
    parent: Option<&Resource>,
    steps: &mut Steps,
) -> Result<Option<Value>, Refusal> {
    if !matches!(
        resource.resource_type,
        ResourceType::ContentInstance | ResourceType::TimeSeriesInstance
    ) {
        return Ok(None);
    }
    let Some(mut object) = read(resource, steps)? else {
        return Ok(None);
    };
    let text = match object.remove("con") {
        Some(Value::String(text)) => text,
        structured => return Ok(structured),
    };
    let info = match resource.resource_type {
        ResourceType::ContentInstance => object.get("cnf").and_then(Value::as_str),
        _ => parent.and_then(|series| series.text("cnf")),
    };
    if !info.is_some_and(says_json) {
        return Ok(None);
    }
    steps.spend(count(text.len() / READ_STEP))?;
    Ok(serde_json::from_str(&text).ok())
}

/// m2m:contentInfo: a media type of JSON (RFC 6839 §3.1), neither encoded nor encrypted.
fn says_json(info: &str) -> bool {
    let (media, rest) = info.split_once(':').unwrap_or((info, ""));
    let media = media.split(';').next().unwrap_or_default().trim();
    (media == "application/json" || media.ends_with("+json")) && matches!(rest, "" | "0" | "0:0")
}

/// A count as steps.
fn count(things: usize) -> u64 {
    u64::try_from(things).unwrap_or(u64::MAX)
}

/// Steps for one child of a resource.
const RELATIVE: u64 = 100;
/// Octets of JSON that the attributes of other types count for.
const READ_OCTETS: usize = 512;
/// Octets of JSON parsed per step.
const READ_STEP: usize = 4;

fn is_one_of(resource_type: ResourceType, numbers: &[u16]) -> bool {
    numbers.contains(&resource_type.number())
}

fn carries_one(resource: &Resource, wanted: &[String]) -> bool {
    let mut carries = false;
    resource.each_label(|label| carries |= wanted.iter().any(|wanted| wanted == label));
    carries
}

fn has_value(object: &Map<String, Value>, (name, pattern): &(String, String)) -> bool {
    let holds = |value: &Value| match value {
        Value::String(text) => matches_wildcard(pattern, text),
        Value::Number(number) => matches_wildcard(pattern, &number.to_string()),
        Value::Bool(truth) => *pattern == truth.to_string(),
        _ => false,
    };
    match object.get(name) {
        Some(Value::Array(list)) => list.iter().any(holds),
        Some(value) => holds(value),
        None => false,
    }
}
