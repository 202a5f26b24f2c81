//! Programs compiled from C, as `cargo xtask bpf` writes them next to their source.
//!
//! ```text
//! octets  0..8    `GWBPF001`
//!         8..12   number of names, little-endian
//!        12..16   number of instructions, little-endian
//!        then     the names, 16 octets each, padded with zeroes
//!        then     the instructions, 8 octets each, as RFC 9669 §3 has them, little-endian
//! ```
//!
//! An instruction that loads a name (`BPF_LD | BPF_IMM | BPF_DW`) has 15 as its source register and
//! the number of the name as its immediate value; the offset into the memory behind the name is the
//! immediate value of its second half. A call (`BPF_JMP | BPF_CALL`) of a name has the same marks:
//! it calls instructions that the loader puts behind the program.

use crate::program::Instruction;
use std::os::fd::{AsRawFd, BorrowedFd};

const MAGIC: &[u8; 8] = b"GWBPF001";
const NAME_LEN: usize = 16;
/// `BPF_LD | BPF_IMM | BPF_DW`.
const LOAD_IMMEDIATE_64: u8 = 0x18;
/// `BPF_JMP | BPF_CALL`.
const CALL: u8 = 0x85;
/// The source register of a call within a program (`BPF_PSEUDO_CALL`).
const OWN_CALL: u8 = 1;
/// The source register that marks a name.
const NAMED: u8 = 15;

/// A compiled program whose names have no meaning yet.
#[derive(Clone, Copy, Debug)]
pub struct CompiledProgram<'octets> {
    names: &'octets [[u8; NAME_LEN]],
    instructions: &'octets [[u8; 8]],
}

/// The meaning of a name in a program.
#[derive(Clone, Copy, Debug)]
pub enum Symbol<'map> {
    /// The map, for the kernel's functions on maps (`BPF_PSEUDO_MAP_FD`).
    Map(BorrowedFd<'map>),
    /// The memory of a map with one value (`BPF_PSEUDO_MAP_VALUE`).
    Memory(BorrowedFd<'map>),
    /// A function of one argument (`BPF_PSEUDO_CALL`), which ends by itself.
    Code(&'map [Instruction]),
}

/// Why octets are no program, or a program cannot be linked.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompiledError {
    /// The octets have another form.
    #[error("not a compiled program")]
    Form,
    /// A name has no meaning.
    #[error("the program's name {0} is unknown")]
    Name(String),
}

impl<'octets> CompiledProgram<'octets> {
    /// Reads a compiled program in place.
    ///
    /// # Errors
    ///
    /// [`CompiledError::Form`].
    pub fn read(octets: &'octets [u8]) -> Result<Self, CompiledError> {
        let read = || {
            let rest = octets.strip_prefix(MAGIC)?;
            let (names, rest) = rest.split_first_chunk()?;
            let (instructions, rest) = rest.split_first_chunk()?;
            let [names, instructions] =
                [names, instructions].map(|count| usize::try_from(u32::from_le_bytes(*count)));
            let (named, rest) = rest.split_at_checked(names.ok()?.checked_mul(NAME_LEN)?)?;
            let (program, tail) = rest.as_chunks::<8>();
            let whole = tail.is_empty() && program.len() == instructions.ok()?;
            whole.then_some(Self { names: named.as_chunks().0, instructions: program })
        };
        read().ok_or(CompiledError::Form)
    }

    /// The names that the program uses, in the order of their numbers.
    pub fn names(&self) -> impl Iterator<Item = &'octets str> {
        self.names.iter().map(|name| {
            let end = name.iter().position(|&octet| octet == 0).unwrap_or(NAME_LEN);
            name.get(..end).and_then(|name| str::from_utf8(name).ok()).unwrap_or("")
        })
    }

    /// The instructions with each name replaced by its meaning.
    ///
    /// # Errors
    ///
    /// [`CompiledError::Name`] for a name that has none.
    pub fn link<'map>(
        &self,
        meaning: impl Fn(&str) -> Option<Symbol<'map>>,
    ) -> Result<Vec<Instruction>, CompiledError> {
        const MAP: u8 = 1;
        const MEMORY: u8 = 2;
        let resolve = |name| meaning(name).ok_or_else(|| CompiledError::Name(name.to_owned()));
        let symbols = self.names().map(resolve).collect::<Result<Vec<_>, _>>()?;
        let symbol = |number: i32| symbols.get(usize::try_from(number).ok()?);
        let starts = self.starts(&symbols);
        let linked = |(at, &[code, registers, o1, o2, v @ ..]): (usize, &[u8; 8])| {
            let (offset, value) = (i16::from_le_bytes([o1, o2]), i32::from_le_bytes(v));
            if !matches!(code, LOAD_IMMEDIATE_64 | CALL) || registers >> 4 != NAMED {
                return Ok(Instruction(code, registers, offset, value));
            }
            let named = |kind, value| Instruction(code, registers & 0xf | kind << 4, offset, value);
            match (code, symbol(value)) {
                (LOAD_IMMEDIATE_64, Some(Symbol::Map(map))) => Ok(named(MAP, map.as_raw_fd())),
                (LOAD_IMMEDIATE_64, Some(Symbol::Memory(map))) => {
                    Ok(named(MEMORY, map.as_raw_fd()))
                }
                (CALL, Some(Symbol::Code(_))) => {
                    let start = usize::try_from(value).ok().and_then(|number| starts.get(number));
                    let distance = start.and_then(|start| start.checked_sub(at + 1));
                    let distance = distance.and_then(|distance| i32::try_from(distance).ok());
                    distance.map(|distance| named(OWN_CALL, distance)).ok_or(CompiledError::Form)
                }
                _ => Err(CompiledError::Form),
            }
        };
        let own = self.instructions.iter().enumerate().map(linked);
        let mut all = own.collect::<Result<Vec<_>, _>>()?;
        all.extend(symbols.iter().flat_map(Symbol::code));
        Ok(all)
    }

    /// The place behind the program where the code of each symbol begins.
    fn starts(&self, symbols: &[Symbol<'_>]) -> Vec<usize> {
        let mut end = self.instructions.len();
        let start = |symbol: &Symbol<'_>| {
            let start = end;
            end += symbol.code().len();
            start
        };
        symbols.iter().map(start).collect()
    }
}

impl Symbol<'_> {
    fn code(&self) -> &[Instruction] {
        match self {
            Self::Code(code) => code,
            Self::Map(_) | Self::Memory(_) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn program(names: &[&str], instructions: &[[u8; 8]]) -> Vec<u8> {
        let mut octets = MAGIC.to_vec();
        for count in [names.len(), instructions.len()] {
            octets.extend(u32::try_from(count).unwrap_or(0).to_le_bytes());
        }
        for name in names {
            let mut padded = [0; NAME_LEN];
            padded.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
            octets.extend(padded);
        }
        octets.extend(instructions.concat());
        octets
    }

    #[test]
    fn a_name_becomes_a_descriptor_and_keeps_its_offset() -> Result<(), Box<dyn std::error::Error>>
    {
        let file = std::fs::File::open("/dev/null")?;
        let load = [0x18, 0xf3, 0, 0, 1, 0, 0, 0];
        let second = [0, 0, 0, 0, 24, 0, 0, 0];
        let octets = program(&["a", "memory"], &[load, second, [0x95, 0, 0, 0, 0, 0, 0, 0]]);
        let compiled = CompiledProgram::read(&octets)?;
        let linked = compiled.link(|name| match name {
            "a" => Some(Symbol::Map(file.as_fd())),
            _ => Some(Symbol::Memory(file.as_fd())),
        })?;
        let expected = [
            Instruction(0x18, 0x23, 0, file.as_raw_fd()),
            Instruction(0, 0, 0, 24),
            Instruction(0x95, 0, 0, 0),
        ];
        assert_eq!(linked, expected);
        let unknown = compiled.link(|name| (name == "a").then_some(Symbol::Map(file.as_fd())));
        assert_eq!(unknown, Err(CompiledError::Name("memory".to_owned())));
        Ok(())
    }

    #[test]
    fn a_called_name_becomes_code_behind_the_program() -> Result<(), Box<dyn std::error::Error>> {
        let call = |name: u8| [0x85, 0xf0, 0, 0, name, 0, 0, 0];
        let octets = program(&["one", "two"], &[call(1), call(0), [0x95, 0, 0, 0, 0, 0, 0, 0]]);
        let exit = Instruction(0x95, 0, 0, 0);
        let [one, two] = [[Instruction(0xb7, 0, 0, 1), exit], [Instruction(0xb7, 0, 0, 2), exit]];
        let linked = CompiledProgram::read(&octets)?
            .link(|name| Some(Symbol::Code(if name == "one" { &one } else { &two })))?;
        // Distances are from the instruction behind the call (RFC 9669 §5.4).
        let calls = [Instruction(0x85, 0x10, 0, 4), Instruction(0x85, 0x10, 0, 1)];
        let expected = [&calls[..], &[exit], &one, &two].concat();
        assert_eq!(linked, expected);
        let file = std::fs::File::open("/dev/null")?;
        let map = CompiledProgram::read(&octets)?.link(|_| Some(Symbol::Map(file.as_fd())));
        assert_eq!(map, Err(CompiledError::Form));
        Ok(())
    }

    #[test]
    fn every_cut_of_a_program_is_refused() -> Result<(), Box<dyn std::error::Error>> {
        let octets = program(&["a"], &[[0x18, 0xf3, 0, 0, 7, 0, 0, 0]]);
        for len in 0..octets.len() {
            assert!(CompiledProgram::read(octets.get(..len).unwrap_or(&[])).is_err(), "{len}");
        }
        let file = std::fs::File::open("/dev/null")?;
        // A number of a name that is not there.
        let linked = CompiledProgram::read(&octets)?.link(|_| Some(Symbol::Map(file.as_fd())));
        assert_eq!(linked, Err(CompiledError::Form));
        Ok(())
    }
}
