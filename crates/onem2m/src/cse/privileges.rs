//! Form of access control rules (m2m:setOfAcrs, TS-0001 §9.6.2).
//!
//! Every condition of a rule restricts it. A condition that is not understood would be left out, and
//! the rule would grant more than it says: such a rule is not stored, and one in the store grants
//! nothing.

use super::Refusal;
use super::access::ALL_RIGHTS;
use crate::prefix::Prefix;
use crate::schedule::Schedule;
use crate::status::Status;
use serde_json::{Map, Value};

/// Members of a rule.
const OF_RULE: &[&str] = &["acor", "acop", "acod", "acco", "aca", "acaf"];
/// Members of a context.
const OF_CONTEXT: &[&str] = &["actw", "acip"];
/// Members of object details.
const OF_DETAIL: &[&str] = &["ty", "chty"];

/// Whether all conditions of a rule are ones that are checked when it is applied.
pub(super) fn is_understood(rule: &Value) -> bool {
    let has_only = |value: &Value, known: &[&str]| {
        value.as_object().is_some_and(|members| stranger(members, known).is_none())
    };
    has_only(rule, OF_RULE)
        && rule.get("acaf").is_none_or(|flag| flag == &Value::Bool(false))
        && rule.get("acco").is_none_or(|contexts| {
            let contexts = contexts.as_array();
            contexts.is_some_and(|list| list.iter().all(|one| has_only(one, OF_CONTEXT)))
        })
}

/// Whether a value is object details in which each member has its form.
pub(super) fn is_detail(detail: &Value) -> bool {
    detail.as_object().is_some_and(|detail| {
        !detail.is_empty()
            && detail.iter().all(|(name, value)| match name.as_str() {
                "ty" => value.is_u64(),
                "chty" => value.as_array().is_some_and(|list| list.iter().all(Value::is_u64)),
                _ => false,
            })
    })
}

/// Checks a given set of privileges (m2m:setOfAcrs).
///
/// # Errors
///
/// 4000 if a rule lacks its originators or operations, or if a member of the set, of a rule or of an
/// object in it is unknown or has another form. 5001 for contexts that are not supported (places,
/// users), for rules for authenticated originators only, and for single attributes in
/// self-privileges: a rule that cannot be evaluated must not be stored.
pub(super) fn check_privileges(
    set: &Value,
    is_self: bool,
    entries_max: usize,
) -> Result<(), Refusal> {
    let set = set.as_object().ok_or_else(|| Refusal::bad("privileges are an object with acr"))?;
    if let Some(name) = stranger(set, &["acr"]) {
        return Err(Refusal::bad(format!("privileges have no member {name}, but acr")));
    }
    let rules = match set.get("acr") {
        None => return Ok(()),
        Some(rules) => rules.as_array().ok_or_else(|| Refusal::bad("acr is a list"))?,
    };
    if rules.len() > entries_max {
        return Err(Refusal::bad(format!("{} rules are too many", rules.len())));
    }
    rules.iter().try_for_each(|rule| check_rule(rule, is_self, entries_max))
}

/// Checks one rule (m2m:accessControlRule).
fn check_rule(rule: &Value, is_self: bool, entries_max: usize) -> Result<(), Refusal> {
    let rule = rule.as_object().ok_or_else(|| Refusal::bad("a rule is an object"))?;
    if let Some(name) = stranger(rule, OF_RULE) {
        let place = match name {
            name if OF_CONTEXT.contains(&name) => "; it belongs into acco",
            name if OF_DETAIL.contains(&name) => "; it belongs into acod",
            _ => ": it has acor, acop, acod, acco, aca",
        };
        return Err(Refusal::bad(format!("a rule has no member {name}{place}")));
    }
    let originators = rule.get("acor").and_then(Value::as_array);
    if originators.is_none_or(|list| list.len() > entries_max || !list.iter().all(Value::is_string))
    {
        return Err(Refusal::bad("a rule has a list of originators, acor"));
    }
    let operations = rule.get("acop").and_then(Value::as_u64);
    if operations.is_none_or(|bits| bits > ALL_RIGHTS) {
        return Err(Refusal::bad("a rule has operations, acop, from 0 to 63"));
    }
    match rule.get("aca") {
        Some(_) if is_self => {
            return Err(not_offered("rules for single attributes of a policy"));
        }
        Some(names) if !is_list_of(names, entries_max, |name| !name.is_empty()) => {
            return Err(Refusal::bad("aca is a list of attributes"));
        }
        _ => {}
    }
    match rule.get("acaf") {
        None | Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) => {
            return Err(not_offered("rules for authenticated originators only, acaf,"));
        }
        Some(_) => return Err(Refusal::bad("acaf is true or false")),
    }
    if let Some(details) = rule.get("acod") {
        check_details(details, entries_max)?;
    }
    rule.get("acco").map_or(Ok(()), |contexts| check_contexts(contexts, entries_max))
}

/// Checks the object details of a rule (m2m:accessControlObjectDetails), one or a list of them.
fn check_details(details: &Value, entries_max: usize) -> Result<(), Refusal> {
    let one = core::slice::from_ref(details);
    let details = details.as_array().map_or(one, Vec::as_slice);
    if !(1..=entries_max).contains(&details.len()) {
        return Err(Refusal::bad("acod is a list of object details"));
    }
    for detail in details {
        let members = detail.as_object().ok_or_else(|| Refusal::bad("acod has objects"))?;
        if let Some(name) = stranger(members, OF_DETAIL) {
            return Err(Refusal::bad(format!("acod has no member {name}: it has ty, chty")));
        }
        let children = members.get("chty").and_then(Value::as_array);
        if !is_detail(detail) || children.is_some_and(|list| list.len() > entries_max) {
            let why = "acod has a resource type, ty, or a list of types of children, chty";
            return Err(Refusal::bad(why));
        }
    }
    Ok(())
}

/// Checks the contexts of a rule (m2m:accessControlContexts): time windows, addresses.
fn check_contexts(contexts: &Value, entries_max: usize) -> Result<(), Refusal> {
    let contexts = contexts.as_array().filter(|list| (1..=entries_max).contains(&list.len()));
    for context in contexts.ok_or_else(|| Refusal::bad("acco is a list of contexts"))? {
        let context = context.as_object().ok_or_else(|| Refusal::bad("a context is an object"))?;
        if context.is_empty() {
            return Err(Refusal::bad("a context has time windows, actw, or addresses, acip"));
        }
        for (name, value) in context {
            match name.as_str() {
                "actw" if is_list_of(value, entries_max, |it| Schedule::parse(it).is_some()) => {}
                "actw" => {
                    return Err(Refusal::bad(
                        "actw is a list of time windows: second minute hour day month weekday year",
                    ));
                }
                "acip" => check_addresses(value, entries_max)?,
                "aclr" => return Err(not_offered("contexts of places, aclr,")),
                "acui" => return Err(not_offered("contexts of users, acui,")),
                _ => {
                    let why = format!("acco has no member {name}: it has actw, acip");
                    return Err(Refusal::bad(why));
                }
            }
        }
    }
    Ok(())
}

/// Checks m2m:accessControlIpAddresses: addresses of one family or of both.
fn check_addresses(addresses: &Value, entries_max: usize) -> Result<(), Refusal> {
    let families = addresses.as_object().filter(|it| !it.is_empty());
    if let Some(name) = families.and_then(|it| stranger(it, &["ipv4", "ipv6"])) {
        return Err(Refusal::bad(format!("acip has no member {name}: it has ipv4, ipv6")));
    }
    let fits = families.is_some_and(|families| {
        families.iter().all(|(name, list)| match name.as_str() {
            "ipv4" => is_list_of(list, entries_max, |it| Prefix::parse_v4(it).is_some()),
            "ipv6" => is_list_of(list, entries_max, |it| Prefix::parse_v6(it).is_some()),
            _ => false,
        })
    });
    if fits {
        return Ok(());
    }
    Err(Refusal::bad("acip has lists of addresses, ipv4 and ipv6, perhaps with /LENGTH"))
}

/// The first member that is none of the known ones.
fn stranger<'name>(members: &'name Map<String, Value>, known: &[&str]) -> Option<&'name str> {
    members.keys().map(String::as_str).find(|name| !known.contains(name))
}

/// Whether a value is a list of texts in this form, within the limit.
fn is_list_of(value: &Value, entries_max: usize, fits: impl Fn(&str) -> bool) -> bool {
    value.as_array().is_some_and(|list| {
        (1..=entries_max).contains(&list.len())
            && list.iter().all(|entry| entry.as_str().is_some_and(&fits))
    })
}

fn not_offered(what: &str) -> Refusal {
    Refusal::new(Status::NotImplemented, format!("{what} are not offered"))
}
