//! SFLOAT and FLOAT (ISO/IEEE 11073-20601, annex F.7): decimal numbers, kept decimal.
//!
//! A device that measured 96.5 sends mantissa 965 and exponent −1. Through a binary float the
//! reading would become 96.5 ± something; here mantissa and exponent travel to the very end.

use core::fmt;
use core::str::FromStr;

/// Mantissa × 10^exponent, exactly as measured.
///
/// Two decimals are equal if they say the same with the same precision: 96.5 is not 96.50.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Decimal {
    /// The digits; 12 bits in an SFLOAT, 24 bits in a FLOAT.
    pub mantissa: i32,
    /// The power of ten; 4 bits in an SFLOAT, 8 bits in a FLOAT.
    pub exponent: i8,
}

impl Decimal {
    /// Puts digits and power of ten together.
    pub const fn new(mantissa: i32, exponent: i8) -> Self {
        Self { mantissa, exponent }
    }
}

/// Digits alone, without exponent: 96.5, 120, 0.0008.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.mantissa.unsigned_abs();
        let sign = if self.mantissa < 0 { "-" } else { "" };
        if let Ok(zeros) = usize::try_from(self.exponent) {
            let zeros = if digits == 0 { 0 } else { zeros };
            return write!(f, "{sign}{digits}{:0<zeros$}", "");
        }
        let places = usize::from(self.exponent.unsigned_abs());
        match 10_u32.checked_pow(u32::from(self.exponent.unsigned_abs())) {
            Some(unit) => write!(f, "{sign}{}.{:0places$}", digits / unit, digits % unit),
            None => write!(f, "{sign}0.{digits:0places$}"),
        }
    }
}

/// The text was not a decimal number of at most 31 bits of digits.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a decimal number of at most nine digits")]
pub struct NotADecimal;

/// Reads what [`Display`](fmt::Display) wrote; precision is kept, `96.50` has two places.
impl FromStr for Decimal {
    type Err = NotADecimal;

    fn from_str(text: &str) -> Result<Self, NotADecimal> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|octet| octet.is_ascii_digit());
        let unsigned = whole.strip_prefix('-').unwrap_or(whole);
        if unsigned.is_empty() || !digits(unsigned) || !digits(fraction) || text.ends_with('.') {
            return Err(NotADecimal);
        }
        let places = i8::try_from(fraction.len()).map_err(|_| NotADecimal)?;
        let mantissa = format!("{whole}{fraction}").parse().map_err(|_| NotADecimal)?;
        Ok(Self { mantissa, exponent: -places })
    }
}

/// Value of an SFLOAT or FLOAT: a decimal, or one of the five special values.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Number {
    /// A measured value.
    Finite(Decimal),
    /// NaN: the value is not a number.
    NotANumber,
    /// NRes: not representable at this resolution.
    NotAtThisResolution,
    /// +INFINITY: above the range.
    PositiveInfinity,
    /// −INFINITY: below the range.
    NegativeInfinity,
    /// Reserved for future use.
    Reserved,
}

/// The five special values of an SFLOAT: exponent 0 and a mantissa from the middle of the range.
const SFLOAT_SPECIAL: [(u16, Number); 5] = [
    (0x07FF, Number::NotANumber),
    (0x0800, Number::NotAtThisResolution),
    (0x07FE, Number::PositiveInfinity),
    (0x0802, Number::NegativeInfinity),
    (0x0801, Number::Reserved),
];

/// The five special values of a FLOAT.
const FLOAT_SPECIAL: [(u32, Number); 5] = [
    (0x007F_FFFF, Number::NotANumber),
    (0x0080_0000, Number::NotAtThisResolution),
    (0x007F_FFFE, Number::PositiveInfinity),
    (0x0080_0002, Number::NegativeInfinity),
    (0x0080_0001, Number::Reserved),
];

impl Number {
    /// A finite value.
    pub const fn finite(mantissa: i32, exponent: i8) -> Self {
        Self::Finite(Decimal::new(mantissa, exponent))
    }

    /// The decimal, unless this is a special value.
    pub const fn decimal(self) -> Option<Decimal> {
        match self {
            Self::Finite(decimal) => Some(decimal),
            _ => None,
        }
    }

    /// Decodes an SFLOAT: 4 bits of exponent, 12 bits of mantissa, both signed.
    pub fn from_sfloat(octets: [u8; 2]) -> Self {
        let raw = u16::from_be_bytes(octets);
        // They lie side by side: most numbers are told by two comparisons.
        if (0x07FE..=0x0802).contains(&raw)
            && let Some((_, special)) = SFLOAT_SPECIAL.iter().find(|(code, _)| *code == raw)
        {
            return *special;
        }
        let [high, _] = octets;
        // The shifts are arithmetic: they carry the sign along.
        let mantissa = (raw << 4).cast_signed() >> 4;
        Self::Finite(Decimal { mantissa: mantissa.into(), exponent: high.cast_signed() >> 4 })
    }

    /// Decodes a FLOAT: 8 bits of exponent, 24 bits of mantissa, both signed.
    pub fn from_float(octets: [u8; 4]) -> Self {
        let raw = u32::from_be_bytes(octets);
        if (0x007F_FFFE..=0x0080_0002).contains(&raw)
            && let Some((_, special)) = FLOAT_SPECIAL.iter().find(|(code, _)| *code == raw)
        {
            return *special;
        }
        let [exponent, ..] = octets;
        let mantissa = (raw << 8).cast_signed() >> 8;
        Self::Finite(Decimal { mantissa, exponent: exponent.cast_signed() })
    }

    /// Encodes an SFLOAT; `None` if the decimal does not fit exactly.
    pub fn to_sfloat(self) -> Option<[u8; 2]> {
        let Self::Finite(Decimal { mantissa, exponent }) = self else {
            let special = SFLOAT_SPECIAL.iter().find(|(_, special)| *special == self);
            return special.map(|(code, _)| code.to_be_bytes());
        };
        let narrow = i16::try_from(mantissa).ok()?;
        if !(-0x800..0x800).contains(&narrow) || !(-8..8).contains(&exponent) {
            return None;
        }
        let power = u16::from(exponent.cast_unsigned() & 0x0F) << 12;
        let octets = (power | (narrow.cast_unsigned() & 0x0FFF)).to_be_bytes();
        (Self::from_sfloat(octets) == self).then_some(octets)
    }

    /// Encodes a FLOAT; `None` if the decimal does not fit exactly.
    pub fn to_float(self) -> Option<[u8; 4]> {
        let Self::Finite(Decimal { mantissa, exponent }) = self else {
            let special = FLOAT_SPECIAL.iter().find(|(_, special)| *special == self);
            return special.map(|(code, _)| code.to_be_bytes());
        };
        let [_, high, middle, low] = mantissa.to_be_bytes();
        let octets = [exponent.cast_unsigned(), high, middle, low];
        (Self::from_float(octets) == self).then_some(octets)
    }
}

/// The decimal, or `NaN`, `NRes`, `+INFINITY`, `-INFINITY`, `reserved`.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finite(decimal) => decimal.fmt(f),
            Self::NotANumber => f.write_str("NaN"),
            Self::NotAtThisResolution => f.write_str("NRes"),
            Self::PositiveInfinity => f.write_str("+INFINITY"),
            Self::NegativeInfinity => f.write_str("-INFINITY"),
            Self::Reserved => f.write_str("reserved"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values that devices in the field sent, with what their makers say they mean.
    #[test]
    fn values_from_the_field() {
        // The second half: the table of the HL7 implementation guide for personal health devices.
        let sfloats = [
            (0xF3C5_u16, "96.5"),
            (0xF352, "85.0"),
            (0xF44C, "110.0"),
            (0x0062, "98"),
            (0x0002, "2"),
            (0xF014, "2.0"),
            (0xE0C8, "2.00"),
            (0x1002, "20"),
            (0x2002, "200"),
            (0x04D2, "1234"),
            (0x0B2E, "-1234"),
        ];
        for (raw, text) in sfloats {
            assert_eq!(Number::from_sfloat(raw.to_be_bytes()).to_string(), text, "{raw:#06x}");
        }
        let floats = [
            (0xFF00_02FA_u32, "76.2"),
            (0xFF00_00F3, "24.3"),
            (0xFB38_7520, "37.00000"),
            (0xFF00_0014, "2.0"),
            (0xFE00_00C8, "2.00"),
            (0x0100_0002, "20"),
            (0x0200_0002, "200"),
            (0x00FF_FB2E, "-1234"),
        ];
        for (raw, text) in floats {
            assert_eq!(Number::from_float(raw.to_be_bytes()).to_string(), text, "{raw:#010x}");
        }
    }

    #[test]
    fn the_special_values_are_no_numbers() {
        let cases = [
            (0x07FF_u16, 0x007F_FFFF_u32, Number::NotANumber),
            (0x0800, 0x0080_0000, Number::NotAtThisResolution),
            (0x07FE, 0x007F_FFFE, Number::PositiveInfinity),
            (0x0802, 0x0080_0002, Number::NegativeInfinity),
            (0x0801, 0x0080_0001, Number::Reserved),
        ];
        for (short, long, expected) in cases {
            assert_eq!(Number::from_sfloat(short.to_be_bytes()), expected);
            assert_eq!(Number::from_float(long.to_be_bytes()), expected);
            assert_eq!(expected.to_sfloat(), Some(short.to_be_bytes()));
            assert_eq!(expected.to_float(), Some(long.to_be_bytes()));
        }
    }

    #[test]
    fn every_sfloat_comes_back() {
        for raw in 0..=u16::MAX {
            let octets = raw.to_be_bytes();
            assert_eq!(Number::from_sfloat(octets).to_sfloat(), Some(octets), "{raw:#06x}");
        }
    }

    #[test]
    fn digits_are_written_out() {
        let cases = [
            (965, -1, "96.5"),
            (-5, -3, "-0.005"),
            (12, 2, "1200"),
            (0, 5, "0"),
            (0, -1, "0.0"),
            (1, -10, "0.0000000001"),
            (i32::MAX, -12, "0.002147483647"),
            (7, 0, "7"),
        ];
        for (mantissa, exponent, text) in cases {
            assert_eq!(Decimal::new(mantissa, exponent).to_string(), text);
        }
    }

    #[test]
    fn what_does_not_fit_is_not_rounded() {
        assert_eq!(Number::finite(2048, 0).to_sfloat(), None);
        assert_eq!(Number::finite(1, 8).to_sfloat(), None);
        assert_eq!(Number::finite(2047, 0).to_sfloat(), None, "2047 at exponent 0 means NaN");
        assert_eq!(Number::finite(2047, -1).to_sfloat(), Some([0xF7, 0xFF]));
        assert_eq!(Number::finite(1 << 23, 0).to_float(), None);
        assert!("9999999999".parse::<Decimal>().is_err());
        for text in ["", "-", ".5", "5.", "1e3", "+1", "1.2.3", "١"] {
            assert!(text.parse::<Decimal>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_float_comes_back(raw: [u8; 4]) {
            prop_assert_eq!(Number::from_float(raw).to_float(), Some(raw));
        }

        #[test]
        fn text_comes_back(mantissa: i32, places in 0_i8..=9) {
            let decimal = Decimal::new(mantissa, -places);
            prop_assert_eq!(decimal.to_string().parse(), Ok(decimal));
        }
    }
}
