//! The CSEBase (TS-0001 §9.6.3).

use super::Cse;
use crate::primitive::Release;
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::time::Timestamp;
use serde_json::{Map, json};
use std::borrow::Cow;

impl Cse {
    /// Creates the CSEBase, or updates a restored one from the configuration.
    pub(super) fn found_base(&mut self) {
        let resource_types: Vec<u16> =
            ResourceType::ALL.iter().map(|resource_type| resource_type.number()).collect();
        let mut attributes = Map::new();
        attributes.insert("csi".into(), json!(self.config.cse_id));
        attributes.insert("cst".into(), json!(self.config.cse_type.number()));
        attributes.insert("srt".into(), json!(resource_types));
        attributes.insert("srv".into(), json!(Release::SUPPORTED));
        attributes.insert("csz".into(), json!(["application/json", "application/cbor"]));
        if !self.config.points_of_access.is_empty() {
            attributes.insert("poa".into(), json!(self.config.points_of_access));
        }
        if let Some(root) = self.tree.root() {
            if let Some(announced) = self.tree.get(root).and_then(|base| base.attribute("at")) {
                attributes.insert("at".into(), announced.clone());
            }
            let unchanged = self.tree.get(root).is_some_and(|base| base.attributes == attributes);
            if !unchanged {
                self.change(root, |base| base.attributes = attributes);
            }
            return;
        }
        let seq = self.ledger.next_seq();
        let id = self.config.cse_id.trim_start_matches('/');
        self.put_in(Resource {
            seq,
            resource_type: ResourceType::CseBase,
            tag: Cow::Borrowed(ResourceType::CseBase.tag()),
            id: id.into(),
            name: self.config.name.as_str().into(),
            parent: None,
            parent_id: "".into(),
            created: self.now,
            modified: self.now,
            expires: Timestamp::MAX,
            state: 0,
            owner: self.config.cse_id.as_str().into(),
            sponsor: None,
            made_by: None,
            attributes,
            representation: None,
            size: 0,
            is_plain: false,
            family: None,
            stored_by: 0,
        });
    }
}
