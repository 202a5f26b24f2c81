//! Kinds of device by name, each identified by the number of its specialisation standard or by its
//! code in a device's list of specialisations.
//!
//! A standard configuration's number tells which standard defines it: those of ISO/IEEE 11073-104zz
//! are zz00 to zz99. The number of an extended configuration is the manufacturer's own. Such a
//! device reports its kind in its System-Type-Spec-List.

use crate::code::ConfigId;
use crate::mder::Reader;
use crate::specialisation;

/// Name of an unknown kind of device.
pub const UNKNOWN: &str = "device";

/// Standard configurations of one specialisation: zz00 to zz99.
const CONFIGURATIONS_OF_ONE: u16 = 100;

/// A kind of device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeviceKind {
    /// Its name, one word.
    pub name: &'static str,
    /// The last two digits of its standard, ISO/IEEE 11073-104zz.
    pub standard: Option<u16>,
    /// Its code as a device specialisation (partition 8), `MDC_DEV_SPEC_PROFILE_…`.
    pub profile: u16,
}

const fn kind(name: &'static str, standard: u16, profile: u16) -> DeviceKind {
    DeviceKind { name, standard: Some(standard), profile }
}

/// Every named kind. The codes are from the table in the HL7 implementation guide for personal
/// health devices; those of urine analyser and power status monitor are from the nomenclature in a
/// manager of the guide's authors.
pub const KINDS: [DeviceKind; 20] = [
    kind("oximeter", 4, 4_100),
    kind("ecg", 6, 4_102),
    kind("blood-pressure", 7, 4_103),
    kind("thermometer", 8, 4_104),
    DeviceKind { name: "respiration-rate", standard: None, profile: 4_109 },
    kind("scale", 15, 4_111),
    kind("glucose", 17, 4_113),
    kind("inr", 18, 4_114),
    kind("insulin-pump", 19, 4_115),
    kind("body-composition", 20, 4_116),
    kind("peak-flow", 21, 4_117),
    kind("urine-analyser", 22, 4_118),
    kind("sleep-apnoea", 24, 4_120),
    kind("continuous-glucose", 25, 4_121),
    kind("power-status", 27, 4_124),
    kind("activity", 41, 4_137),
    kind("strength", 42, 4_138),
    kind("living-hub", 71, 4_167),
    kind("dispenser", 72, 4_168),
    DeviceKind { name: "generic", standard: None, profile: 4_169 },
];

/// The kind of a device that offers the standard configuration `id`; `None` for an extended one,
/// and for a standard without a name here.
pub fn of_configuration(id: ConfigId) -> Option<&'static str> {
    if !id.is_standard() {
        return None;
    }
    if let Some(known) = specialisation::ALL.iter().find(|known| known.config == id) {
        return Some(known.name);
    }
    let standard = id.0 / CONFIGURATIONS_OF_ONE;
    KINDS.iter().find(|kind| kind.standard == Some(standard)).map(|kind| kind.name)
}

/// The kind of a device with these octets of a System-Type-Spec-List: the first of its
/// specialisations that has a name. A device lists its main specialisation first.
pub fn of_specialisations(octets: &[u8]) -> Option<&'static str> {
    let list = Reader::new(octets).list::<crate::code::Type>().ok()?;
    // The list pairs codes of partition 8 with versions.
    list.iter().find_map(|pair| named_by_profile(pair.partition))
}

/// The kind called `name`, simulated ones included; `None` if there is none.
pub fn named(name: &str) -> Option<&'static str> {
    let simulated = specialisation::Specialisation::named(name).map(|known| known.name);
    simulated.or_else(|| KINDS.iter().find(|kind| kind.name == name).map(|kind| kind.name))
}

/// The name of the kind with this code as a device specialisation.
fn named_by_profile(profile: u16) -> Option<&'static str> {
    KINDS.iter().find(|kind| kind.profile == profile).map(|kind| kind.name)
}

/// The code, as a device specialisation, of the kind called `name`.
pub fn profile(name: &str) -> Option<u16> {
    let simulated = specialisation::Specialisation::named(name).map(|known| known.profile);
    simulated.or_else(|| KINDS.iter().find(|kind| kind.name == name).map(|kind| kind.profile))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standard_number_says_the_kind_and_an_extended_one_does_not() {
        let cases = [
            (0x0190, Some("oximeter")),
            (0x0191, Some("spot-oximeter")),
            (600, Some("ecg")),
            (1_800, Some("inr")),
            (2_000, Some("body-composition")),
            (7_103, Some("living-hub")),
            (7_200, Some("dispenser")),
            (7_203, Some("dispenser")),
            (9_900, None),
            (0x4001, None),
            (0x4002, None),
            (0, None),
        ];
        for (id, name) in cases {
            assert_eq!(of_configuration(ConfigId(id)), name, "{id}");
        }
    }

    #[test]
    fn a_list_of_specialisations_says_the_kind() {
        // Weighing scale, version 1.
        assert_eq!(of_specialisations(&[0, 1, 0, 4, 0x10, 0x0F, 0, 1]), Some("scale"));
        // A sub-specialisation without a name here (step counter, 4200), then cardiovascular.
        let several = [0, 2, 0, 8, 0x10, 0x68, 0, 1, 0x10, 0x29, 0, 1];
        assert_eq!(of_specialisations(&several), Some("activity"));
        for none in [&[0, 0, 0, 0][..], &[], &[0, 1, 0, 4, 0, 0, 0, 0]] {
            assert_eq!(of_specialisations(none), None);
        }
    }

    #[test]
    fn what_is_simulated_is_called_as_its_kind() {
        for known in specialisation::ALL {
            let profile = profile(known.name).unwrap();
            assert_eq!(profile, known.profile, "{}", known.name);
            assert!(known.name.ends_with(named_by_profile(profile).unwrap()), "{}", known.name);
        }
    }
}
