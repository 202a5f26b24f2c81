//! Lookup of a kernel function in the running kernel's type information (BTF), so that a program
//! may call it.

/// The file with the kernel's type information.
pub(crate) const KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// The number of the function `name` in `btf` (linux/Documentation/bpf/btf.rst, in the machine's
/// own byte order); `None` if it is not there, or this is not BTF.
pub(crate) fn function_id(btf: &[u8], name: &str) -> Option<u32> {
    const MAGIC: u16 = 0xeb9f;
    const FUNCTION: u32 = 12;
    let header: &[u8; 24] = btf.first_chunk()?;
    let (words, _) = header.as_chunks::<4>();
    let [first, header_len, types_at, types_len, strings_at, strings_len] = words else {
        return None;
    };
    let [magic_1, magic_2, ..] = *first;
    if u16::from_ne_bytes([magic_1, magic_2]) != MAGIC {
        return None;
    }
    let section = |at: [u8; 4], len: [u8; 4]| {
        let at = word(*header_len).checked_add(word(at))?;
        btf.get(at..)?.get(..word(len))
    };
    let mut types = section(*types_at, *types_len)?;
    let strings = section(*strings_at, *strings_len)?;
    let mut id = 0;
    while let Some((name_at, info, rest)) = next_type(types) {
        id += 1;
        let kind = info >> 24 & 0x1f;
        types = rest.get(trailer_len(kind, info & 0xffff)?..)?;
        let is_it = || {
            let rest = strings.get(name_at..)?.strip_prefix(name.as_bytes())?;
            rest.starts_with(&[0]).then_some(())
        };
        if kind == FUNCTION && is_it().is_some() {
            return Some(id);
        }
    }
    None
}

/// The position of the next type's name, its kind and count, and the octets after its fixed part.
fn next_type(types: &[u8]) -> Option<(usize, u32, &[u8])> {
    let (&fixed, rest) = types.split_first_chunk::<12>()?;
    let [n_1, n_2, n_3, n_4, i_1, i_2, i_3, i_4, ..] = fixed;
    Some((word([n_1, n_2, n_3, n_4]), u32::from_ne_bytes([i_1, i_2, i_3, i_4]), rest))
}

/// Octets after the fixed part of a type; `None` for an unknown kind.
fn trailer_len(kind: u32, count: u32) -> Option<usize> {
    let count = usize::try_from(count).ok()?;
    match kind {
        // Pointer, forward declaration, definition, qualifiers, function, float, type tag.
        2 | 7..=12 | 16 | 18 => Some(0),
        // Integer, variable, declaration tag.
        1 | 14 | 17 => Some(4),
        // Array.
        3 => Some(12),
        // Structure, union, data section, 64-bit enumeration.
        4 | 5 | 15 | 19 => count.checked_mul(12),
        // Enumeration, function prototype.
        6 | 13 => count.checked_mul(8),
        _ => None,
    }
}

fn word(octets: [u8; 4]) -> usize {
    usize::try_from(u32::from_ne_bytes(octets)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A type with this kind, count and trailer, whose name begins at `name`.
    fn a_type(name: u32, kind: u32, count: u32, trailer: usize) -> Vec<u8> {
        let words = [name, kind << 24 | count, 0];
        let mut octets: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        octets.resize(12 + trailer, 0xff);
        octets
    }

    fn btf(types: &[Vec<u8>], strings: &[u8]) -> Vec<u8> {
        let len = |octets: &[u8]| u32::try_from(octets.len()).unwrap();
        let types = types.concat();
        let (types_len, strings_len) = (len(&types), len(strings));
        let mut btf = 0xeb9f_u16.to_ne_bytes().to_vec();
        btf.extend([1, 0]);
        let words = [24, 0, types_len, types_len, strings_len];
        btf.extend(words.into_iter().flat_map(u32::to_ne_bytes));
        btf.extend(types);
        btf.extend(strings);
        btf
    }

    #[test]
    fn a_function_is_found_behind_every_kind_of_type() {
        let kinds: [(u32, u32, usize); 19] = [
            (1, 0, 4),
            (2, 0, 0),
            (3, 0, 12),
            (4, 2, 24),
            (5, 1, 12),
            (6, 3, 24),
            (7, 0, 0),
            (8, 0, 0),
            (9, 0, 0),
            (10, 0, 0),
            (11, 0, 0),
            (13, 2, 16),
            (14, 0, 4),
            (15, 2, 24),
            (16, 0, 0),
            (17, 0, 4),
            (18, 0, 0),
            (19, 2, 24),
            (12, 0, 0),
        ];
        let mut types: Vec<_> =
            kinds.map(|(kind, count, trailer)| a_type(1, kind, count, trailer)).to_vec();
        types.push(a_type(6, 12, 0, 0));
        let btf = btf(&types, b"\0long\0longer\0");
        assert_eq!(function_id(&btf, "long"), Some(19), "not a prefix, and only a function");
        assert_eq!(function_id(&btf, "longer"), Some(20));
        assert_eq!(function_id(&btf, "longest"), None);
        for len in 0..btf.len() {
            assert_eq!(function_id(&btf[..len], "longer"), None, "{len} octets");
        }
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(octets in prop::collection::vec(any::<u8>(), 0..200)) {
            function_id(&octets, "name");
            let mut octets = octets;
            if let Some(front) = octets.get_mut(..24) {
                front.copy_from_slice(&btf(&[vec![0; 60]], &[0; 40])[..24]);
            }
            function_id(&octets, "name");
        }
    }
}
