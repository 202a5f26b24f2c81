//! Configuration of a CSE: its identity, admitted entities and limits.

use super::Registrar;
use crate::audit::Audit;
use crate::identity::CseIdentity;
use crate::limits::Limits;

/// Node type of the CSE (m2m:cseTypeID).
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
    /// The number in primitives.
    pub const fn number(self) -> u8 {
        match self {
            Self::Infrastructure => 1,
            Self::Middle => 2,
            Self::Application => 3,
        }
    }
}

/// Configuration of a CSE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CseConfig {
    /// Node type.
    pub cse_type: CseType,
    /// CSE-ID with its leading slash, `/id-in`.
    pub cse_id: String,
    /// Name of the CSEBase, `cse-in`.
    pub name: String,
    /// Identifier of the service provider with its two slashes, `//example.com`.
    pub provider: String,
    /// The administrator, an originator with every right; none by default.
    pub admin: Option<String>,
    /// URLs of the CSE.
    pub points_of_access: Vec<String>,
    /// Patterns of AE-IDs that may register; `*` matches any characters.
    pub admitted_entities: Vec<String>,
    /// Patterns of CSE-IDs that may register.
    pub admitted_cses: Vec<String>,
    /// Patterns of AE-IDs that such a CSE may register here by its own certificate, for other
    /// entities.
    pub sponsored_entities: Vec<String>,
    /// AEs registered without a certificate that such a CSE takes over, as `/id-mn/Cphd-*`: the
    /// CSE-ID, and a pattern of AE-IDs of this CSE.
    pub adopted_entities: Vec<String>,
    /// Patterns of names directly below the CSEBase that only the surrounding process gives, and
    /// registered CSEs by their certificates.
    pub reserved_names: Vec<String>,
    /// Patterns of AE-IDs that only the surrounding process registers, and registered CSEs by their
    /// certificates.
    pub reserved_entities: Vec<String>,
    /// CSEs below those registered here, as `/id-mn/id-leaf`: the registered CSE that forwards
    /// requests, and the CSE below it.
    pub cses_beyond: Vec<String>,
    /// Originators that may retrieve the CSEBase and discover below it without being registered;
    /// the policies of found resources apply.
    pub base_readers: Vec<String>,
    /// The registrar of this CSE.
    pub registrar: Option<Registrar>,
    /// Limits.
    pub limits: Limits,
    /// Whether each request is logged, and what happens if that fails.
    pub audit: Audit,
}

impl CseConfig {
    /// The CSE's identity.
    pub fn identity(&self) -> CseIdentity {
        CseIdentity { cse_id: self.cse_id.clone(), name: self.name.clone() }
    }

    /// A CSE that admits any AE and no other CSE, without an administrator. It accepts devices from
    /// CSEs admitted later.
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
            reserved_names: Vec::new(),
            reserved_entities: Vec::new(),
            cses_beyond: Vec::new(),
            base_readers: Vec::new(),
            registrar: None,
            limits: Limits::default(),
            audit: Audit::Off,
        }
    }
}
