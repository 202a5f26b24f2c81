//! Groups (TS-0001 §9.6.13, §10.2.7): their members, and fan-out of requests.

use super::access::{Originator, Right};
use super::subscription::check_batch;
use super::{Cse, Done, Recipient, Refusal, RequestContext, RequestRelation, denied, not_allowed};
use crate::answer_octets::{Reservation, ReservedOctets};
use crate::primitive::{Operation, Request, Response};
use crate::resource::push_json_text;
use crate::resource_type::ResourceType;
use crate::status::Status;
use crate::tree::Slot;
use core::fmt::Write;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};

/// Steps that asking a member takes beside those for its content's octets, one each.
const MEMBER_STEPS: u64 = 1_000;
/// Levels of nested groups that one request reaches.
pub(super) const NESTED_MAX: usize = 4;
/// m2m:consistencyStrategy: leave out a member of another type (the default).
const LEAVE_OUT: u64 = 1;
/// m2m:consistencyStrategy: refuse the group.
const REFUSE: u64 = 2;
/// m2m:resourceType of a group whose members are of any type.
const MIXED: u64 = 0;

/// The last number of m2m:resourceType (TS-0004 §6.3.4.2.1).
const RESOURCE_TYPE_MAX: u64 = 66;
/// Difference between the numbers of an announced variant and its original.
const ANNOUNCED: u64 = 10_000;
/// m2m:memberType of the oldest instances of containers.
const OLDEST: u64 = 20_001;
/// m2m:memberType of the latest instances of containers.
const LATEST: u64 = 20_002;

/// A fan-out without all answers yet.
#[derive(Debug)]
pub(super) struct Fan {
    pub(super) asker: RequestContext,
    members: Vec<(String, Option<Response>)>,
    missing: usize,
    /// Octets of their answers.
    octets: usize,
    /// Those are reserved, unless this process asks.
    reserved: Option<ReservedOctets>,
    /// Members that the request reaches, those of nested groups included; of the outermost fan-out.
    reached: usize,
    /// What each member is asked.
    request: Request,
    /// Members that have been asked: the first ones.
    begun: usize,
}

/// Fan-outs in progress.
pub(super) type Fans = BTreeMap<u64, Fan>;

impl Cse {
    /// Checks a group's members and records the result in its attributes.
    pub(super) fn prepare_group(
        &self,
        attributes: &mut Map<String, Value>,
        from: &Originator<'_>,
    ) -> Result<(), Refusal> {
        check_group(attributes)?;
        let resource_type = attributes.get("mt").and_then(Value::as_u64).unwrap_or(MIXED);
        let strategy = attributes.get("csy").and_then(Value::as_u64).unwrap_or(LEAVE_OUT);
        let most = attributes.get("mnm").and_then(Value::as_u64).unwrap_or(0);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut members: Vec<String> = Vec::new();
        let mut known = HashSet::new();
        let given = attributes.get("mid").and_then(Value::as_array).into_iter().flatten();
        for member in given.filter_map(Value::as_str) {
            // Two spellings of one address are one member.
            if known.insert(self.member_of(member)) {
                members.push(member.to_owned());
            }
        }
        if members.len() > most.min(self.config.limits.group_members) {
            return Err(Refusal::new(
                Status::MaxNumberOfMemberExceeded,
                format!("{} members are more than mnm or this CSE allows", members.len()),
            ));
        }
        let (mut all_known, mut mixed) = (true, resource_type == MIXED);
        let mut kept = Vec::new();
        for member in members {
            let found = self.member_kind(&member, from)?;
            all_known &= found.is_some();
            let fits = resource_type == MIXED
                || found.is_none_or(|found| u64::from(found.number()) == resource_type);
            match (fits, strategy) {
                (true, _) => kept.push(member),
                (false, LEAVE_OUT) => {}
                (false, REFUSE) => {
                    return Err(Refusal::new(
                        Status::GroupMemberTypeInconsistent,
                        "a member is of another type",
                    ));
                }
                (false, _) => {
                    mixed = true;
                    kept.push(member);
                }
            }
        }
        attributes.insert("cnm".into(), json!(kept.len()));
        attributes.insert("mid".into(), json!(kept));
        attributes.insert("mt".into(), json!(if mixed { MIXED } else { resource_type }));
        attributes.insert("mtv".into(), json!(all_known));
        Ok(())
    }

    /// Identity of a member: a resource here and the path below it, or the address itself.
    fn member_of<'address>(&self, member: &'address str) -> (Option<u64>, &'address str) {
        let number = |slot: Slot| self.tree.get(slot).map(|resource| resource.seq);
        match self.resolve_local(member) {
            Some(super::Target::Resource(slot)) => (number(slot), ""),
            Some(super::Target::FanOut(group, "")) => (number(group), "fopt"),
            _ => (None, member),
        }
    }

    /// The type of a member on this CSE; the type of a remote one shows in its response.
    fn member_kind(
        &self,
        member: &str,
        from: &Originator<'_>,
    ) -> Result<Option<ResourceType>, Refusal> {
        use crate::address::Address;
        let here = matches!(
            Address::parse(member, &self.config.cse_id, &self.config.provider),
            Address::Here(_)
        );
        if !here {
            return Ok(None);
        }
        let slot = match self.resolve_local(member) {
            Some(super::Target::Resource(slot)) => slot,
            // The fan-out point of another group: its members show themselves.
            Some(super::Target::FanOut(..)) => return Ok(None),
            _ => return Err(super::not_found("a member does not exist")),
        };
        if !self.allows(from, Right::Retrieve, slot, None) {
            return Err(Refusal::new(
                Status::ReceiverHasNoPrivilege,
                "a member may not be retrieved by the originator",
            ));
        }
        Ok(Some(self.resource(slot)?.resource_type))
    }

    /// Sends a request to every member of a group; the response contains all of theirs.
    pub(super) fn fan_out(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &Originator<'_>,
        (group, rest): (Slot, &str),
    ) -> Result<Option<Done>, Refusal> {
        if request.operation == Operation::Notify {
            return self.notify_group(asker, request, from, (group, rest));
        }
        self.demand_fan_out(request.operation, from, group, request.resource_type)?;
        // A group that is a member here leaves the notifications to the outer one.
        if asker.depth == 0
            && let Some(subscription) = self.for_members(request, group)
        {
            return self.subscribe_members(asker, subscription, from, (group, rest));
        }
        self.spread(asker, request, (group, rest))
    }

    /// Sends a request to every member of a group.
    pub(super) fn spread(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        (group, rest): (Slot, &str),
    ) -> Result<Option<Done>, Refusal> {
        let members: Vec<String> = self.resource(group)?.texts("mid").map(str::to_owned).collect();
        let outermost = asker.fan.and_then(|number| self.fans.get_mut(&number));
        let reached = outermost.map_or(members.len(), |outermost| {
            outermost.reached = outermost.reached.saturating_add(members.len());
            outermost.reached
        });
        if asker.depth >= NESTED_MAX || reached > self.config.limits.group_members {
            return Err(Refusal::new(
                Status::NotAcceptable,
                "the request would reach more members than are asked at once",
            ));
        }
        let number = self.ledger.next_seq();
        let targets = members
            .into_iter()
            .map(|member| if rest.is_empty() { member } else { format!("{member}/{rest}") });
        let members: Vec<(String, Option<Response>)> =
            targets.map(|target| (target, None)).collect();
        // No octets yet: there is room for them.
        let reserved = self.reserve(asker, 0)?;
        let missing = members.len();
        let (asker, request) = (asker.clone(), request.clone());
        let fan = Fan { asker, missing, octets: 0, reserved, reached, members, request, begun: 0 };
        self.fans.insert(number, fan);
        if missing == 0 {
            return Ok(self.finish_fan(number).map(|(_, done)| done));
        }
        self.ask_members(number);
        Ok(None)
    }

    /// Asks members of a fan-out until all are asked or the slice of this step is spent: a large
    /// content for many must not have all others wait. The rest is asked at later ticks.
    fn ask_members(&mut self, number: u64) {
        while let Some(fan) = self.fans.get_mut(&number)
            && let Some((target, _)) = fan.members.get(fan.begun)
        {
            let (at, request, asker) = (fan.begun, &fan.request, &fan.asker);
            let mut onward = request.clone();
            onward.id = format!("{}-{at}", request.id);
            onward.group_request.get_or_insert_with(|| request.id.as_str().into());
            onward.to.clone_from(target);
            let group = request.to.clone();
            let asker = RequestContext {
                whom: Recipient::Member(number, at),
                id: onward.id.as_str().into(),
                depth: asker.depth + 1,
                fan: asker.fan.or(Some(number)),
                ..asker.clone()
            };
            fan.begun += 1;
            let is_last = fan.begun == fan.members.len();
            let asked = self.asked_part(&onward, &onward.to, RequestRelation::Member, &group);
            let octets = onward.content.as_ref().map_or(0, |content| content.len());
            let steps = MEMBER_STEPS + u64::try_from(octets).unwrap_or(u64::MAX);
            self.serve(&RequestContext { asked, ..asker.clone() }, &onward);
            if self.searches.is_spent_by(steps) && !is_last && !asker.is_repeated {
                self.spreading.push_back(number);
                return;
            }
        }
    }

    /// Asks further members of the fan-out whose turn it is.
    pub(super) fn pursue_fans(&mut self) {
        if let Some(number) = self.spreading.pop_front() {
            self.ask_members(number);
        }
    }

    /// Checks the members' policies (macp) for a fan-out, or else the group's.
    fn demand_fan_out(
        &self,
        operation: Operation,
        from: &Originator<'_>,
        group: Slot,
        child: Option<ResourceType>,
    ) -> Result<(), Refusal> {
        let right = match operation {
            Operation::Create => Right::Create,
            Operation::Retrieve => Right::Retrieve,
            Operation::Update => Right::Update,
            Operation::Delete => Right::Delete,
            Operation::Notify => {
                return Err(not_allowed("notifications are not fanned out here"));
            }
        };
        let resource = self.resource(group)?;
        let mut policies = resource.texts("macp").peekable();
        if policies.peek().is_none() {
            return self.demand(from, right, group, child);
        }
        let almighty = self.config.admin.as_deref() == Some(&**from);
        if almighty || self.any_policy_grants(policies, from, right, resource.resource_type, child)
        {
            return Ok(());
        }
        Err(denied())
    }

    /// Takes a member's answer; the last one completes the group's answer.
    pub(super) fn member_answered(&mut self, number: u64, at: usize, response: Response) {
        let Some(fan) = self.fans.get_mut(&number) else {
            return;
        };
        if let Some((_, None)) = fan.members.get(at) {
            // Its octets are the fan-out's from now on.
            let response = Response { reservation: Reservation::default(), ..response };
            let octets = response.content.as_ref().map_or(0, |content| content.len());
            let sum = fan.octets.saturating_add(octets);
            let limits = &self.config.limits;
            let taken = if sum > limits.answer_octets {
                Err(None)
            } else {
                let reserved = fan.reserved.as_mut().filter(|_| octets > 0);
                reserved.map_or(Ok(()), |reserved| reserved.reserve(sum, limits)).map_err(Some)
            };
            let refusal = match taken {
                Ok(()) => None,
                Err(Some(full)) => Some(self.no_room_for_answer(full)),
                Err(None) => {
                    self.counters.fan_octets_full += 1;
                    let words = "the answers of all members are too large together";
                    Some(Refusal::new(Status::NotAcceptable, words))
                }
            };
            self.note_member(number, at, (sum, response), refusal);
        }
        let is_complete = self.fans.get(&number).is_some_and(|fan| fan.missing == 0);
        if is_complete && let Some((asker, done)) = self.finish_fan(number) {
            self.answer(&asker, Ok(done));
        }
    }

    /// Notes a member's answer, with the octets of all so far, or the refusal in its place.
    fn note_member(
        &mut self,
        number: u64,
        at: usize,
        (sum, response): (usize, Response),
        refusal: Option<Refusal>,
    ) {
        let Some(fan) = self.fans.get_mut(&number) else { return };
        let Some((_, answer)) = fan.members.get_mut(at) else { return };
        fan.missing -= 1;
        *answer = Some(if let Some(refusal) = refusal {
            Response::refusing(&refusal, response.id, response.release)
        } else {
            fan.octets = sum;
            response
        });
    }

    fn finish_fan(&mut self, number: u64) -> Option<(RequestContext, Done)> {
        let fan = self.fans.remove(&number)?;
        let mut text = String::from("{\"m2m:agr\":{\"m2m:rsp\":[");
        for (at, (target, response)) in fan.members.iter().enumerate() {
            let Some(response) = response else {
                continue;
            };
            if at > 0 {
                text.push(',');
            }
            // Contents are put in as they are: numbers stay digit for digit.
            let _ = write!(text, "{{\"rsc\":{},\"rqi\":", response.status.number());
            push_json_text(&mut text, &response.id);
            text.push_str(",\"to\":");
            push_json_text(&mut text, target);
            let _ = write!(text, ",\"rvi\":\"{}\"", response.release.text());
            if let Some(content) = &response.content {
                let _ = write!(text, ",\"pc\":{content}");
            }
            text.push('}');
        }
        text.push_str("]}}");
        let mut reserved = fan.reserved;
        if let Some(reserved) = &mut reserved {
            reserved.settle(text.len());
        }
        let reservation = reserved.map(Reservation::from).unwrap_or_default();
        Some((fan.asker, Done { reservation, ..Done::with(Status::Ok, text) }))
    }
}

/// Checks a group's memberType and notifyAggregation.
///
/// # Errors
///
/// 4000 if the type is no m2m:memberType (TS-0004 §6.3.4.2.11), or the aggregation is no
/// m2m:batchNotify.
pub(super) fn check_group(attributes: &Map<String, Value>) -> Result<(), Refusal> {
    let resource_type = attributes.get("mt").and_then(Value::as_u64);
    if !resource_type.is_none_or(is_member_type) {
        return Err(Refusal::bad("mt is 0 (mixed) or the number of a resource type"));
    }
    check_batch(attributes.get("nar"), "nar")
}

/// Whether a number is one of m2m:memberType: mixed, a resource type or its announced variant, the
/// oldest or the latest instance. Members at other CSEs may be of types that this one does not host.
const fn is_member_type(number: u64) -> bool {
    matches!(number, MIXED | 1..=RESOURCE_TYPE_MAX | OLDEST | LATEST)
        || (number > ANNOUNCED && number - ANNOUNCED <= RESOURCE_TYPE_MAX)
}
