//! Merging small datagrams into large ones, and splitting them again.
//!
//! A link with a cost per packet carries more when several datagrams share one. In the *plain* form
//! datagrams are joined end to end, and only a receiver that knows their length can split them. In
//! the *prefixed* form each follows its length in two octets, and [`split`] returns exactly the
//! merged datagrams.

/// The form of a merged datagram.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Form {
    /// End to end.
    #[default]
    Plain,
    /// Each after its length, two octets, most significant first.
    Prefixed,
}

/// Octets of a length prefix.
const PREFIX_LEN: usize = 2;

/// Joins datagrams up to a limit.
#[derive(Clone, Debug)]
pub struct Merger {
    form: Form,
    limit: usize,
    joined: Vec<u8>,
}

impl Merger {
    /// Joins datagrams in `form` to at most `limit` octets each.
    pub fn new(form: Form, limit: usize) -> Self {
        Self { form, limit, joined: Vec::with_capacity(limit) }
    }

    /// Whether nothing is joined yet.
    pub fn is_empty(&self) -> bool {
        self.joined.is_empty()
    }

    /// Joins to at most `limit` octets from now on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds `datagram`; sends the earlier ones by `send` if it does not fit beside them.
    ///
    /// A datagram that alone is larger than the limit is sent alone.
    pub fn push(&mut self, datagram: &[u8], send: impl FnMut(&[u8])) {
        let prefix = match self.form {
            Form::Plain => 0,
            Form::Prefixed => PREFIX_LEN,
        };
        if self.joined.len() + prefix + datagram.len() > self.limit {
            self.flush(send);
        }
        if self.form == Form::Prefixed {
            // A datagram's payload is shorter than 65,536 octets by its own length field.
            let len = u16::try_from(datagram.len()).unwrap_or(u16::MAX);
            self.joined.extend_from_slice(&len.to_be_bytes());
        }
        self.joined.extend_from_slice(datagram);
    }

    /// Sends the merged datagram by `send`, if there is one.
    pub fn flush(&mut self, mut send: impl FnMut(&[u8])) {
        if !self.joined.is_empty() {
            send(&self.joined);
            self.joined.clear();
        }
    }
}

/// The datagrams that were merged in the prefixed form; ends after the first truncated one.
pub fn split(merged: &[u8]) -> impl Iterator<Item = Result<&[u8], CutShort>> {
    let mut rest = merged;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let datagram = rest.split_first_chunk().and_then(|(&prefix, behind)| {
            behind.split_at_checked(usize::from(u16::from_be_bytes(prefix)))
        });
        let Some((datagram, behind)) = datagram else {
            let left = rest.len();
            rest = &[];
            return Some(Err(CutShort { left }));
        };
        rest = behind;
        Some(Ok(datagram))
    })
}

/// The end of a merged datagram is no whole datagram: it was truncated, or never merged in this
/// form.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{left} octets are left, less than their length prefix says")]
pub struct CutShort {
    /// Octets that could not be read.
    pub left: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn merged(form: Form, limit: usize, datagrams: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut merger = Merger::new(form, limit);
        let mut sent = Vec::new();
        for datagram in datagrams {
            merger.push(datagram, |octets| sent.push(octets.to_vec()));
        }
        merger.flush(|octets| sent.push(octets.to_vec()));
        sent
    }

    /// The paper's example: "the gateway merges 14 datagrams with 100 Bytes of user data from the
    /// sender and forwards a datagram of 1400 Bytes".
    #[test]
    fn fourteen_of_a_hundred_make_one_of_fourteen_hundred() {
        let sent = merged(Form::Plain, 1472, &vec![vec![7; 100]; 28]);
        assert_eq!(sent, [vec![7; 1400], vec![7; 1400]]);
    }

    #[test]
    fn a_datagram_beyond_the_limit_goes_alone() {
        let sent = merged(Form::Plain, 400, &[vec![1; 100], vec![2; 500], vec![3; 100]]);
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [100, 500, 100]);
    }

    #[test]
    fn what_is_cut_is_refused_after_what_is_whole() {
        let parts: Vec<_> = split(&[0, 1, b'a', 0, 0, 0, 2, b'b']).collect();
        assert_eq!(parts, [Ok(&b"a"[..]), Ok(b""), Err(CutShort { left: 3 })]);
    }

    proptest! {
        #[test]
        fn split_undoes_merge(
            datagrams in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..50),
            limit in 1..2000_usize,
        ) {
            let sent = merged(Form::Prefixed, limit, &datagrams);
            let back: Result<Vec<&[u8]>, CutShort> = sent.iter().flat_map(|one| split(one)).collect();
            prop_assert_eq!(back.unwrap(), datagrams);
        }

        #[test]
        fn splitting_any_octets_ends(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(split(&octets).count() <= octets.len() + 1);
        }
    }
}
