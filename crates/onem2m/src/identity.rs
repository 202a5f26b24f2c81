//! By what a CSE is known, as configured and as its database has it.

use crate::resource_type::ResourceType;
use core::fmt;
use serde_json::Value;

/// Identity of a CSE: resources, rights and other CSEs refer to it by both names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CseIdentity {
    /// CSE-ID with its leading slash, `/id-in`.
    pub cse_id: String,
    /// Name of the CSEBase, `cse-in`.
    pub name: String,
}

impl fmt::Display for CseIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with the base {}", self.cse_id, self.name)
    }
}

impl CseIdentity {
    /// The identity in the stored row of a CSEBase; `None` if it is the row of another resource.
    pub fn of_row(body: &str) -> Option<Self> {
        if !body.starts_with(BASE_ROW) {
            return None;
        }
        let row: Value = serde_json::from_str(body).ok()?;
        let base = row.get(ResourceType::CseBase.tag())?;
        let text = |name: &str| base.get(name)?.as_str().map(str::to_owned);
        Some(Self { cse_id: text("csi")?, name: text("rn")? })
    }
}

/// The beginning of a CSEBase's row.
const BASE_ROW: &str = "{\"m2m:cb\":";
