//! Recreates devices' resources at a CSE above that has lost them: its answer to a reading is that
//! the parent does not exist. They are created from the local resources; the reading was kept.

use super::{Above, Shared};
use crate::engine::wall;
use crate::queue_set::QueueSet;
use gatewright_onem2m::{DEVICE_QUEUE, Operation, Request, ResourceType};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::sync::watch;

/// The name of the AE with this AE-ID; a device's AE-ID has a C in front.
pub(super) fn entity_of(originator: &str) -> Option<&str> {
    originator.strip_prefix('C').filter(|name| !name.is_empty())
}

/// Recreates resources for queues whose receiver lacks them, until `stop` is set.
pub(super) async fn serve(
    shared: Arc<Shared>,
    queues: Arc<QueueSet>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let queue = tokio::select! {
            queue = queues.next() => queue,
            _ = stop.changed() => return,
        };
        let entity = queue.strip_prefix(DEVICE_QUEUE).and_then(entity_of);
        let above = shared.above();
        if let (Some(entity), Some(above)) = (entity, above) {
            // One after the other: a CSE that has just begun is not to be flooded.
            shared.make_places_again(&above, entity).await;
        }
    }
}

impl Shared {
    /// Creates the AE and the containers of a device at the CSE above from the local ones.
    pub(super) async fn make_places_again(&self, above: &Above, entity: &str) {
        let micros = wall().as_micros();
        let own = self.engine.cse_id();
        let to = format!("{}/{entity}", self.base);
        let mut request = Request::new(Operation::Retrieve, to, own, format!("{entity}-{micros}"));
        // 4: with the attributes of the children (m2m:resultContent).
        for (name, value) in [("rcn", "4"), ("lvl", "1"), ("ty", "3")] {
            // Known parameters with values that they take.
            let _ = request.set(name, value);
        }
        let Some(answer) = self.engine.ask(request).await else { return };
        let content = answer.content.as_deref().unwrap_or_default();
        let content: Value = serde_json::from_str(content).unwrap_or_default();
        let Some(found) = content.get(ResourceType::ApplicationEntity.tag()) else { return };
        for (number, (parent, kind, content)) in places(found).into_iter().enumerate() {
            let to = if parent { self.base.clone() } else { format!("{}/{entity}", self.base) };
            let id = format!("{entity}-{micros}-{number}");
            let make = Request::new(Operation::Create, to, format!("C{entity}"), id);
            let make = self.moved(above, &make.creating(kind, content));
            let made = self.send_one(above, &make).await;
            if !made.is_some_and(|status| status.fate().is_stored()) {
                // Its next message is tried again, and asks for this again.
                return;
            }
        }
        self.count(|counters| counters.places_again += 1);
    }
}

/// Creations for an AE and its containers, from the AE with its children: whether the parent is the
/// CSEBase, the type, the content.
fn places(entity: &Value) -> Vec<(bool, ResourceType, String)> {
    let some = |from: &Value, names: &[&str]| -> Map<String, Value> {
        let member = |name: &&str| Some(((*name).to_owned(), from.get(*name)?.clone()));
        names.iter().filter_map(member).collect()
    };
    let mut attributes = some(entity, &["rn", "api", "apn", "srv", "lbl"]);
    // Nobody reaches a device from there but through its gateway.
    attributes.insert("rr".to_owned(), json!(false));
    let (ae, cnt) = (ResourceType::ApplicationEntity, ResourceType::Container);
    let mut places = vec![(true, ae, json!({ ae.tag(): attributes }).to_string())];
    let containers = entity.get(cnt.tag()).and_then(Value::as_array);
    places.extend(containers.into_iter().flatten().map(|container| {
        let attributes = some(container, &["rn", "mni", "lbl"]);
        (false, cnt, json!({ cnt.tag(): attributes }).to_string())
    }));
    places
}
