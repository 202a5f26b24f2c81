//! Application protocol data units (APDUs): the association ones, and the envelope of all others.
//!
//! | octets | field |
//! |---|---|
//! | 2 | choice: `E200` AARQ, `E300` AARE, `E400` RLRQ, `E500` RLRE, `E600` ABRT, `E700` PRST |
//! | 2 | length of what follows |
//!
//! Decoding borrows: an [`Apdu`] points into the octets it was read from.

use crate::code::{AttributeId, ConfigId, SystemId};
use crate::data::DataApdu;
use crate::mder::{Element, List, Malformed, MderWriter, Reader, TooLong};

/// Octets of choice and length.
pub const HEADER_LEN: usize = 4;

/// Octets of the longest APDU that an agent may send: 63 KiB. From memory, *unverified*; the
/// specialisations set lower limits of their own.
pub const APDU_LEN_MAX: usize = 63 * 1024;

/// The association protocol's version (bit 0: version 1).
pub const ASSOCIATION_VERSION: u32 = 0x8000_0000;
/// Data protocol ISO/IEEE 11073-20601.
pub const PROTOCOL_20601: u16 = 20_601;
/// 20601's version (bit 0: version 1).
pub const PROTOCOL_VERSION: u32 = 0x8000_0000;
/// Medical device encoding rules.
pub const ENCODING_MDER: u16 = 0x8000;
/// The nomenclature's version (bit 0: version 1).
pub const NOMENCLATURE_VERSION: u32 = 0x8000_0000;
/// System type: manager.
pub const SYSTEM_MANAGER: u32 = 0x8000_0000;
/// System type: agent.
pub const SYSTEM_AGENT: u32 = 0x0080_0000;
/// Functional unit: this association is a test; what it reports is test data.
pub const UNIT_TEST_ASSOCIATION: u32 = 0x2000_0000;
/// Data request mode: the agent reports by its own decision.
pub const DATA_AGENT_INITIATED: u16 = 0x0001;

const AARQ: u16 = 0xE200;
const AARE: u16 = 0xE300;
const RLRQ: u16 = 0xE400;
const RLRE: u16 = 0xE500;
const ABRT: u16 = 0xE600;
const PRST: u16 = 0xE700;

/// Whether `choice` begins an APDU of 20601.
pub const fn is_choice(choice: u16) -> bool {
    matches!(choice, AARQ | AARE | RLRQ | RLRE | ABRT | PRST)
}

/// Whether an APDU is an association request, well-formed or not.
pub fn is_association_request(apdu: &[u8]) -> bool {
    apdu.starts_with(&AARQ.to_be_bytes())
}

/// Whether an APDU is an abort.
pub fn is_abort(apdu: &[u8]) -> bool {
    apdu.starts_with(&ABRT.to_be_bytes())
}

/// One APDU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Apdu<'a> {
    /// Association request of an agent.
    Aarq(Aarq<'a>),
    /// Association response of a manager.
    Aare(Aare<'a>),
    /// Release request.
    Rlrq(ReleaseReason),
    /// Release response.
    Rlre(ReleaseReason),
    /// Abort.
    Abrt(AbortReason),
    /// Presentation APDU: all messages within an association.
    Prst(DataApdu<'a>),
}

impl<'a> Apdu<'a> {
    /// Decodes exactly one APDU.
    ///
    /// # Errors
    ///
    /// [`Malformed`] with the cause. Octets after it are an error too.
    pub fn decode(octets: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(octets);
        let choice = reader.u16()?;
        let mut body = Reader::new(reader.octet_string()?);
        reader.finish()?;
        let apdu = match choice {
            AARQ => Self::Aarq(Aarq::take(&mut body)?),
            AARE => Self::Aare(Aare::take(&mut body)?),
            RLRQ => Self::Rlrq(ReleaseReason(body.u16()?)),
            RLRE => Self::Rlre(ReleaseReason(body.u16()?)),
            ABRT => Self::Abrt(AbortReason(body.u16()?)),
            PRST => Self::Prst(DataApdu::decode(body.octet_string()?)?),
            choice => return Err(Malformed::UnknownChoice { choice }),
        };
        body.finish()?;
        Ok(apdu)
    }

    /// Encodes the APDU.
    ///
    /// # Errors
    ///
    /// [`TooLong`] if it does not fit the 16-bit lengths.
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let mut writer = MderWriter::new();
        writer.u16(match self {
            Self::Aarq(_) => AARQ,
            Self::Aare(_) => AARE,
            Self::Rlrq(_) => RLRQ,
            Self::Rlre(_) => RLRE,
            Self::Abrt(_) => ABRT,
            Self::Prst(_) => PRST,
        });
        writer.sized(|writer| match self {
            Self::Aarq(aarq) => aarq.put(writer),
            Self::Aare(aare) => aare.put(writer),
            Self::Rlrq(ReleaseReason(reason)) | Self::Rlre(ReleaseReason(reason)) => {
                writer.u16(*reason);
            }
            Self::Abrt(AbortReason(reason)) => writer.u16(*reason),
            Self::Prst(data) => writer.sized(|writer| data.put(writer)),
        });
        writer.finish()
    }
}

/// Why an association is released.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReleaseReason(pub u16);

impl ReleaseReason {
    /// Nothing more to do.
    pub const NORMAL: Self = Self(0);
    /// The agent has no configuration left to offer.
    pub const NO_MORE_CONFIGURATIONS: Self = Self(1);
    /// The agent's configuration has changed.
    pub const CONFIGURATION_CHANGED: Self = Self(2);
}

/// Why an association is aborted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct AbortReason(pub u16);

impl AbortReason {
    /// No reason given.
    pub const UNDEFINED: Self = Self(0);
    /// A message was too long.
    pub const BUFFER_OVERFLOW: Self = Self(1);
    /// A response timed out.
    pub const RESPONSE_TIMEOUT: Self = Self(2);
    /// The configuration or its response timed out.
    pub const CONFIGURATION_TIMEOUT: Self = Self(3);
}

/// Result of an association request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct AssociateResult(pub u16);

impl AssociateResult {
    /// Associated, and the configuration is known.
    pub const ACCEPTED: Self = Self(0);
    /// Rejected permanently.
    pub const REJECTED_PERMANENT: Self = Self(1);
    /// Rejected for now.
    pub const REJECTED_TRANSIENT: Self = Self(2);
    /// Associated; the agent shall send its configuration.
    pub const ACCEPTED_UNKNOWN_CONFIG: Self = Self(3);
    /// The agent offers no data protocol that this manager supports.
    pub const NO_COMMON_PROTOCOL: Self = Self(4);
    /// A protocol parameter is not supported.
    pub const NO_COMMON_PARAMETER: Self = Self(5);
    /// Rejected for an unknown reason.
    pub const REJECTED_UNKNOWN: Self = Self(6);
    /// This agent is not authorised.
    pub const REJECTED_UNAUTHORIZED: Self = Self(7);
    /// Another version of the association protocol.
    pub const UNSUPPORTED_VERSION: Self = Self(8);

    /// Whether the agent is associated now.
    pub const fn is_accepted(self) -> bool {
        matches!(self, Self::ACCEPTED | Self::ACCEPTED_UNKNOWN_CONFIG)
    }
}

/// An association request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Aarq<'a> {
    /// Versions of the association protocol, as bits.
    pub version: u32,
    /// The agent's data protocols.
    pub protocols: List<'a, Protocol<'a>>,
}

impl<'a> Aarq<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { version: reader.u32()?, protocols: reader.list()? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u32(self.version);
        self.protocols.put(writer);
    }

    /// The first offer of ISO/IEEE 11073-20601, if there is one.
    pub fn offer(&self) -> Option<&'a [u8]> {
        self.protocols.iter().find(|protocol| protocol.id == PROTOCOL_20601).map(|found| found.info)
    }
}

/// An association response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Aare<'a> {
    /// The result.
    pub result: AssociateResult,
    /// The data protocol chosen.
    pub protocol: Protocol<'a>,
}

impl<'a> Aare<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { result: AssociateResult(reader.u16()?), protocol: Protocol::take(reader)? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.result.0);
        self.protocol.put(writer);
    }
}

/// A data protocol and its parameters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Protocol<'a> {
    /// Its number: [`PROTOCOL_20601`] is supported; 0xFFFF is a manufacturer's own.
    pub id: u16,
    /// Its parameters: an [`AssociationInformation`] for 20601.
    pub info: &'a [u8],
}

impl<'a> Element<'a> for Protocol<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { id: reader.u16()?, info: reader.octet_string()? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.id);
        writer.octet_string(self.info);
    }
}

/// Data request modes that an agent supports.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DataRequestModes {
    /// Modes, as bits.
    pub flags: u16,
    /// Agent-initiated requests at once.
    pub agent_count: u8,
    /// Manager-initiated requests at once.
    pub manager_count: u8,
}

/// The parameters of 20601 in an association (PhdAssociationInformation).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AssociationInformation<'a> {
    /// Versions of 20601, as bits.
    pub protocol_version: u32,
    /// Encoding rules, as bits.
    pub encoding_rules: u16,
    /// Versions of the nomenclature, as bits.
    pub nomenclature_version: u32,
    /// Functional units: unidirectional, test associations.
    pub functional_units: u32,
    /// Manager or agent.
    pub system_type: u32,
    /// Its system-id.
    pub system_id: SystemId,
    /// The configuration that the agent offers; 0 from a manager.
    pub config_id: ConfigId,
    /// Supported data request modes.
    pub data_request: DataRequestModes,
    /// Options.
    pub options: List<'a, Attribute<'a>>,
}

impl<'a> AssociationInformation<'a> {
    /// Parameters of an agent.
    pub fn agent(system_id: SystemId, config_id: ConfigId) -> Self {
        let data_request =
            DataRequestModes { flags: DATA_AGENT_INITIATED, agent_count: 1, manager_count: 0 };
        Self {
            protocol_version: PROTOCOL_VERSION,
            encoding_rules: ENCODING_MDER,
            nomenclature_version: NOMENCLATURE_VERSION,
            functional_units: 0,
            system_type: SYSTEM_AGENT,
            system_id,
            config_id,
            data_request,
            options: List::default(),
        }
    }

    /// Parameters of a manager.
    pub fn manager(system_id: SystemId) -> Self {
        Self {
            system_type: SYSTEM_MANAGER,
            data_request: DataRequestModes::default(),
            ..Self::agent(system_id, ConfigId::MANAGER)
        }
    }

    /// Decodes the parameters of a [`Protocol`].
    ///
    /// # Errors
    ///
    /// [`Malformed`] with the cause.
    pub fn decode(octets: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(octets);
        let information = Self {
            protocol_version: reader.u32()?,
            encoding_rules: reader.u16()?,
            nomenclature_version: reader.u32()?,
            functional_units: reader.u32()?,
            system_type: reader.u32()?,
            system_id: SystemId::from_octets(reader.octet_string()?)?,
            config_id: ConfigId(reader.u16()?),
            data_request: DataRequestModes {
                flags: reader.u16()?,
                agent_count: reader.u8()?,
                manager_count: reader.u8()?,
            },
            options: reader.list()?,
        };
        reader.finish()?;
        Ok(information)
    }

    /// Encodes the parameters of a [`Protocol`].
    ///
    /// # Errors
    ///
    /// [`TooLong`] if the options are.
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let mut writer = MderWriter::new();
        writer.u32(self.protocol_version);
        writer.u16(self.encoding_rules);
        writer.u32(self.nomenclature_version);
        writer.u32(self.functional_units);
        writer.u32(self.system_type);
        writer.octet_string(&self.system_id.0);
        writer.u16(self.config_id.0);
        writer.u16(self.data_request.flags);
        writer.u8(self.data_request.agent_count);
        writer.u8(self.data_request.manager_count);
        self.options.put(&mut writer);
        writer.finish()
    }
}

/// An attribute and its value (AVA-Type).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attribute<'a> {
    /// The attribute's code.
    pub id: AttributeId,
    /// Its value, encoded as the attribute's type requires.
    pub value: &'a [u8],
}

impl<'a> Element<'a> for Attribute<'a> {
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self { id: AttributeId(reader.u16()?), value: reader.octet_string()? })
    }

    fn put(&self, writer: &mut MderWriter) {
        writer.u16(self.id.0);
        writer.octet_string(self.value);
    }
}

/// The value of the first attribute `id` in `attributes`.
pub fn find<'a>(attributes: List<'a, Attribute<'a>>, id: AttributeId) -> Option<&'a [u8]> {
    attributes.iter().find(|attribute| attribute.id == id).map(|found| found.value)
}
