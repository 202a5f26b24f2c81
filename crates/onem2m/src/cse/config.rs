//! Who a CSE is, whom it admits, and its bounds.

use super::Registrar;
use crate::audit::Audit;
use crate::limits::Limits;

/// What kind of node the CSE serves (m2m:cseTypeID).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CseType {
    /// 1: the infrastructure node's, the root of a service provider's tree.
    Infrastructure,
    /// 2: a middle node's, such as a gateway.
    Middle,
    /// 3: an application service node's.
    Application,
}

impl CseType {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::Infrastructure => 1,
            Self::Middle => 2,
            Self::Application => 3,
        }
    }
}

/// Who a CSE is and whom it admits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    /// What kind of node it serves.
    pub cse_type: CseType,
    /// CSE-ID with its leading slash, `/id-in`.
    pub cse_id: String,
    /// Name of the CSEBase, `cse-in`.
    pub name: String,
    /// Identifier of the service provider with its two slashes, `//example.com`.
    pub provider: String,
    /// The originator that may do everything; none by default.
    pub admin: Option<String>,
    /// Where the CSE can be reached: URLs.
    pub points_of_access: Vec<String>,
    /// Patterns of AE-IDs that may register; `*` stands for any characters.
    pub admitted_entities: Vec<String>,
    /// Patterns of CSE-IDs that may register.
    pub admitted_cses: Vec<String>,
    /// Patterns of AE-IDs that such a CSE may register here by its own certificate, for others.
    pub sponsored_entities: Vec<String>,
    /// Whose AEs that came without a certificate such a CSE takes over, as `/id-mn/Cphd-*`: its
    /// CSE-ID, and a pattern of AE-IDs of this CSE.
    pub adopted_entities: Vec<String>,
    /// The CSEs that are beyond those registered here, as `/id-mn/id-leaf`: the one that is here and
    /// sends on what the other asks, and the other.
    pub cses_beyond: Vec<String>,
    /// The CSE that this one registers at.
    pub registrar: Option<Registrar>,
    /// Bounds.
    pub limits: Limits,
    /// Whether each request is noted, and what becomes of one that cannot be.
    pub audit: Audit,
}

impl Config {
    /// A CSE that admits any AE and no other CSE, without an administrator. From the CSEs that it
    /// may come to admit it takes devices.
    pub fn new(cse_type: CseType, cse_id: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            cse_type,
            cse_id: cse_id.into(),
            name: name.into(),
            provider: "//gatewright.invalid".to_owned(),
            admin: None,
            points_of_access: Vec::new(),
            admitted_entities: vec!["C*".to_owned(), "S*".to_owned()],
            admitted_cses: Vec::new(),
            sponsored_entities: vec!["Cphd-*".to_owned()],
            adopted_entities: Vec::new(),
            cses_beyond: Vec::new(),
            registrar: None,
            limits: Limits::default(),
            audit: Audit::Off,
        }
    }
}
