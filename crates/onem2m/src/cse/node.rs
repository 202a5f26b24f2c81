//! Nodes (TS-0001 §9.6.18): the AEs on a node (hostedAELinks), kept consistent with the AEs'
//! nodeLinks.

use super::{Cse, Target};
use crate::resource_type::ResourceType;
use crate::tree::Slot;
use serde_json::{Value, json};

impl Cse {
    /// The nodeLink of an AE, as given.
    pub(super) fn node_of(&self, entity: Slot) -> Option<String> {
        self.tree.get(entity)?.text("nl").map(str::to_owned)
    }

    /// Adds an AE to the node that it names now, and removes it from the node `before`.
    pub(super) fn move_entity(&mut self, entity: Slot, before: Option<&str>) {
        let now = self.node_of(entity);
        if now.as_deref() == before {
            return;
        }
        let Some(id) = self.tree.get(entity).map(|entity| entity.id.to_string()) else {
            return;
        };
        if let Some(node) = before.and_then(|node| self.local_node(node)) {
            self.strike_entity(node, &id);
        }
        if let Some(node) = now.and_then(|node| self.local_node(&node)) {
            self.change(node, |node| {
                let list = node.attributes.entry("hael").or_insert_with(|| json!([]));
                if let Value::Array(list) = list
                    && !list.iter().any(|known| known.as_str() == Some(&id))
                {
                    list.push(json!(id));
                }
            });
        }
    }

    /// Removes the links between an AE and its node before one of them is deleted.
    pub(super) fn part_from_node(&mut self, slot: Slot) {
        let Some(resource) = self.tree.get(slot) else {
            return;
        };
        match resource.resource_type {
            ResourceType::ApplicationEntity => {
                let (id, node) = (resource.id.to_string(), self.node_of(slot));
                if let Some(node) = node.and_then(|node| self.local_node(&node)) {
                    self.strike_entity(node, &id);
                }
            }
            ResourceType::Node => {
                let entities: Vec<Slot> =
                    resource.texts("hael").filter_map(|id| self.tree.by_id(id)).collect();
                for entity in entities {
                    let named = self.node_of(entity).and_then(|node| self.local_node(&node));
                    if named == Some(slot) {
                        self.change(entity, |entity| {
                            entity.attributes.remove("nl");
                        });
                    }
                }
            }
            _ => {}
        }
    }

    fn strike_entity(&mut self, node: Slot, id: &str) {
        self.change(node, |node| {
            if let Some(Value::Array(list)) = node.attributes.get_mut("hael") {
                list.retain(|known| known.as_str() != Some(id));
                if list.is_empty() {
                    node.attributes.remove("hael");
                }
            }
        });
    }

    /// The node of this CSE with this identifier.
    fn local_node(&self, id: &str) -> Option<Slot> {
        let Target::Resource(slot) = self.resolve_local(id)? else {
            return None;
        };
        self.tree.get(slot).filter(|it| it.resource_type == ResourceType::Node).map(|_| slot)
    }
}
