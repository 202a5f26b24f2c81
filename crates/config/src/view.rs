//! Typed reads of a table of the text.

use crate::located::Located;
use crate::shape::integer;
use gatewright_diagnostic::{SourceId, Span};
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// A table of the text, with the position of its header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    table: &'a DeTable<'a>,
    pub(crate) header: Span,
}

impl<'a> View<'a> {
    pub(crate) fn new(table: &'a DeTable<'a>, source: SourceId, header: Range<usize>) -> Self {
        Self { table, header: Span::new(source, header.start, header.end) }
    }

    pub(crate) fn value(self, key: &str) -> Option<(&'a DeValue<'a>, Span)> {
        let value = self.table.get(key)?;
        let range = value.span();
        Some((value.get_ref(), Span::new(self.header.source, range.start, range.end)))
    }

    /// The position of a key.
    pub(crate) fn key(self, key: &str) -> Option<Span> {
        let (found, _) = self.table.get_key_value(key)?;
        Some(Span::new(self.header.source, found.span().start, found.span().end))
    }

    /// The string of a key with its position.
    pub(crate) fn text(self, key: &str) -> Option<Located<&'a str>> {
        let (value, span) = self.value(key)?;
        Some(Located { value: value.as_str()?, span })
    }

    pub(crate) fn owned(self, key: &str) -> Option<String> {
        self.name(key).map(|name| name.value)
    }

    pub(crate) fn parsed<T>(
        self,
        key: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<Located<T>> {
        let Located { value, span } = self.text(key)?;
        Some(Located { value: parse(value)?, span })
    }

    pub(crate) fn name(self, key: &str) -> Option<Located<String>> {
        self.parsed(key, |text| (!text.is_empty()).then(|| text.to_owned()))
    }

    pub(crate) fn flag(self, key: &str) -> Option<bool> {
        self.value(key)?.0.as_bool()
    }

    pub(crate) fn number<T: TryFrom<i64>>(self, key: &str) -> Option<T> {
        integer(self.value(key)?.0.as_integer()?)?.try_into().ok()
    }

    pub(crate) fn number_at<T: TryFrom<i64>>(self, key: &str) -> Option<Located<T>> {
        let (_, span) = self.value(key)?;
        Some(Located { value: self.number(key)?, span })
    }

    pub(crate) fn texts(self, key: &str) -> Vec<Located<&'a str>> {
        let items = self.value(key).and_then(|(value, _)| value.as_array());
        let texts = items.into_iter().flatten().filter_map(|item| {
            let span = Span::new(self.header.source, item.span().start, item.span().end);
            Some(Located { value: item.get_ref().as_str()?, span })
        });
        texts.collect()
    }

    pub(crate) fn table(self, key: &str) -> Option<Self> {
        let (value, header) = self.value(key)?;
        Some(Self { table: value.as_table()?, header })
    }

    pub(crate) fn tables(self, key: &str) -> Vec<Self> {
        let items = self.value(key).and_then(|(value, _)| value.as_array());
        let source = self.header.source;
        let tables = items
            .into_iter()
            .flatten()
            .filter_map(|item| Some(Self::new(item.get_ref().as_table()?, source, item.span())));
        tables.collect()
    }

    /// The table whose `key` is at `span`.
    pub(crate) fn of_value(tables: &[Self], key: &str, span: Span) -> Option<Self> {
        let is_it = |table: &&Self| table.text(key).is_some_and(|text| text.span == span);
        tables.iter().find(is_it).copied()
    }

    /// The keys of the table.
    pub(crate) fn keys(self) -> impl Iterator<Item = &'a str> {
        self.table.keys().map(|key| key.get_ref().as_ref())
    }

    /// Tables with names, in the order of the text.
    pub(crate) fn named(self, key: &str) -> Vec<(Located<String>, Self)> {
        let source = self.header.source;
        let inner = self.value(key).and_then(|(value, _)| value.as_table());
        let mut tables: Vec<_> = (inner.into_iter().flatten())
            .filter_map(|(name, value)| {
                let span = Span::new(source, name.span().start, name.span().end);
                let name = Located { value: name.get_ref().to_string(), span };
                Some((name, Self::new(value.get_ref().as_table()?, source, value.span())))
            })
            .collect();
        tables.sort_by_key(|(name, _)| name.span.start);
        tables
    }
}
