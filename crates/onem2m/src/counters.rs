//! One way to declare named counters, for all that count without a lock of their own.

/// Declares a struct of counters, each a `u64` field with its name and documentation.
///
/// It has `each`, which gives every counter with its name for a metrics page, behind the given
/// prefix, and `add`, which adds the counters of another part.
///
/// ```
/// gatewright_onem2m::counters! {
///     /// Counters of a pump.
///     pub struct PumpCounters, "pump_";
///
///     /// Strokes made.
///     strokes,
/// }
///
/// let mut counters = PumpCounters { strokes: 2 };
/// counters.add(&PumpCounters { strokes: 3 });
/// assert!(counters.each().eq([("pump_strokes", 5)]));
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $counters:ident, $prefix:literal;
        $($(#[$doc:meta])* $name:ident,)+
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, Eq, PartialEq)]
        pub struct $counters {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl $counters {
            /// Every counter with its name, for a metrics page.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((concat!($prefix, stringify!($name)), self.$name),)+].into_iter()
            }

            /// Adds the counters of another part.
            pub fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)+
            }
        }
    };
}
