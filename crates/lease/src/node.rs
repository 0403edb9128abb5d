//! A value of a lease file with its key and its place, so that every refusal can name both.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::error::{LeaseError, excerpt};
use crate::quantity::{Quantity, QuantityError};

/// The longest key or number that a message shows in full.
const LONGEST_SHOWN: usize = 63;

/// The text that nodes come from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) file: &'a Path,
    pub(crate) text: &'a str,
}

impl Source<'_> {
    /// An error at byte `offset` of text that is not TOML.
    pub(crate) fn malformed(
        &self,
        offset: usize,
        found: String,
        allowed: &'static str,
    ) -> LeaseError {
        let (line, column) = self.place(offset);
        LeaseError::Malformed {
            file: self.file.to_owned(),
            line,
            column,
            found,
            allowed,
        }
    }

    /// An error at byte `offset` about the value of `key`.
    pub(crate) fn refused(
        &self,
        offset: usize,
        key: String,
        found: String,
        allowed: &str,
    ) -> LeaseError {
        let (line, column) = self.place(offset);
        let file = self.file.to_owned();
        LeaseError::Refused {
            file,
            line,
            column,
            key,
            found,
            allowed: allowed.to_owned(),
        }
    }

    fn place(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (
            before.matches('\n').count() + 1,
            before[line_start..].chars().count() + 1,
        )
    }
}

/// One value, or the whole file.
pub(crate) struct Node<'a> {
    source: Source<'a>,
    /// The key path; empty for the whole file.
    path: String,
    /// The last part of the key path, as the author wrote it.
    name: &'a str,
    key_start: usize,
    value_start: usize,
    content: Content<'a>,
}

/// The document is a table without being a value, hence the difference.
#[derive(Clone, Copy)]
enum Content<'a> {
    Document(&'a DeTable<'a>),
    Value(&'a DeValue<'a>),
}

impl<'a> Node<'a> {
    pub(crate) fn document(source: Source<'a>, document: &'a DeTable<'a>) -> Self {
        let content = Content::Document(document);
        Self {
            source,
            path: String::new(),
            name: "",
            key_start: 0,
            value_start: 0,
            content,
        }
    }

    /// The last part of the key path.
    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    /// The line of the value, from 1.
    pub(crate) fn line(&self) -> usize {
        self.source.place(self.value_start).0
    }

    /// Whether the value is a table.
    pub(crate) fn is_table(&self) -> bool {
        matches!(
            self.content,
            Content::Document(_) | Content::Value(DeValue::Table(_))
        )
    }

    /// The entries of a table in the order of the file.
    pub(crate) fn entries(&self) -> Result<Vec<Node<'a>>, LeaseError> {
        let table = match self.content {
            Content::Document(table) | Content::Value(DeValue::Table(table)) => table,
            Content::Value(_) => return Err(self.refused("a table")),
        };
        let mut entries: Vec<_> = table
            .iter()
            .map(|(key, value)| self.child(key, value))
            .collect();
        entries.sort_by_key(|node| node.key_start);
        Ok(entries)
    }

    /// The elements of an array.
    pub(crate) fn elements(&self, allowed: &str) -> Result<Vec<Node<'a>>, LeaseError> {
        let Content::Value(DeValue::Array(array)) = self.content else {
            return Err(self.refused(allowed));
        };
        let element = |(index, value): (usize, &'a Spanned<DeValue<'a>>)| {
            let start = value.span().start;
            Node {
                source: self.source,
                path: format!("{}[{index}]", self.path),
                name: "",
                key_start: start,
                value_start: start,
                content: Content::Value(value.get_ref()),
            }
        };
        Ok(array.iter().enumerate().map(element).collect())
    }

    /// A string in which `accepts` holds.
    pub(crate) fn string(
        &self,
        allowed: &str,
        accepts: impl Fn(&str) -> bool,
    ) -> Result<&'a str, LeaseError> {
        match self.content {
            Content::Value(DeValue::String(text)) if accepts(text) => Ok(text),
            _ => Err(self.refused(allowed)),
        }
    }

    /// One of a few words, as `named` knows them.
    pub(crate) fn keyword<T>(
        &self,
        allowed: &str,
        named: impl Fn(&str) -> Option<T>,
    ) -> Result<T, LeaseError> {
        match self.content {
            Content::Value(DeValue::String(text)) => named(text),
            _ => None,
        }
        .ok_or_else(|| self.refused(allowed))
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&self) -> Result<bool, LeaseError> {
        match self.content {
            Content::Value(DeValue::Boolean(value)) => Ok(*value),
            _ => Err(self.refused("true or false")),
        }
    }

    /// A whole number in `range`.
    pub(crate) fn integer(
        &self,
        range: RangeInclusive<u64>,
        allowed: &str,
    ) -> Result<u64, LeaseError> {
        let number = match self.content {
            Content::Value(DeValue::Integer(number)) => {
                u64::from_str_radix(number.as_str(), number.radix()).ok()
            }
            _ => None,
        };
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| self.refused(allowed))
    }

    /// A time or a size: a string with a number and a unit.
    pub(crate) fn quantity<Q: Quantity>(&self) -> Result<Q, LeaseError> {
        self.quantity_of(Q::GRAMMAR.allowed)
    }

    /// The same, of which only `allowed` makes sense here.
    pub(crate) fn quantity_of<Q: Quantity>(&self, allowed: &str) -> Result<Q, LeaseError> {
        let Content::Value(DeValue::String(text)) = self.content else {
            return Err(self.refused(allowed));
        };
        text.parse()
            .map_err(|error: QuantityError| self.refused_for(error.fault(), allowed))
    }

    /// The error for a value that is none of `allowed`.
    pub(crate) fn refused(&self, allowed: &str) -> LeaseError {
        self.fault(self.value_start, self.describe(), allowed)
    }

    /// The same for a value of which `found` says what is wrong with it.
    pub(crate) fn refused_as(&self, found: String, allowed: &str) -> LeaseError {
        self.fault(self.value_start, found, allowed)
    }

    /// The same with the reason why it is none.
    pub(crate) fn refused_for(&self, reason: impl Display, allowed: &str) -> LeaseError {
        self.refused_as(format!("{} ({reason})", self.describe()), allowed)
    }

    /// The error for a key that is none of `keys`.
    pub(crate) fn unknown(&self, keys: &str) -> LeaseError {
        self.fault(self.key_start, "an unknown key".to_owned(), keys)
    }

    /// The error for a name that its table does not accept.
    pub(crate) fn misnamed(&self, allowed: &str) -> LeaseError {
        self.fault(
            self.key_start,
            format!("the name {}", excerpt(self.name)),
            allowed,
        )
    }

    /// The error for a table without the key `name`, which has to hold `allowed`.
    pub(crate) fn missing(&self, name: &str, allowed: &str) -> LeaseError {
        self.source.refused(
            self.key_start,
            self.join(name),
            "nothing".to_owned(),
            allowed,
        )
    }

    fn fault(&self, offset: usize, found: String, allowed: &str) -> LeaseError {
        self.source
            .refused(offset, self.path.clone(), found, allowed)
    }

    fn child(&self, key: &'a Spanned<DeString<'a>>, value: &'a Spanned<DeValue<'a>>) -> Node<'a> {
        Node {
            source: self.source,
            path: self.join(key.get_ref()),
            name: key.get_ref(),
            key_start: key.span().start,
            value_start: value.span().start,
            content: Content::Value(value.get_ref()),
        }
    }

    fn join(&self, name: &str) -> String {
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let name = match name.chars().all(bare) && (1..=LONGEST_SHOWN).contains(&name.len()) {
            true => name.to_owned(),
            false => excerpt(name),
        };
        if self.path.is_empty() {
            name
        } else {
            format!("{}.{name}", self.path)
        }
    }

    fn describe(&self) -> String {
        match self.content {
            Content::Value(DeValue::String(text)) => excerpt(text),
            Content::Value(DeValue::Integer(number)) => format!("the number {}", cut(number)),
            Content::Value(DeValue::Float(number)) => format!("the number {}", cut(number)),
            Content::Value(DeValue::Boolean(value)) => value.to_string(),
            Content::Value(DeValue::Datetime(_)) => "a date or time".to_owned(),
            Content::Value(DeValue::Array(_)) => "an array".to_owned(),
            Content::Value(DeValue::Table(_)) | Content::Document(_) => "a table".to_owned(),
        }
    }
}

/// A number as the author wrote it, which may be thousands of digits.
fn cut(number: &impl ToString) -> String {
    let mut text = number.to_string();
    // TOML numbers are ASCII, so every index is a character boundary.
    if text.len() > LONGEST_SHOWN {
        text.truncate(LONGEST_SHOWN);
        text.push_str("...");
    }
    text
}
