//! Fields of a head or trailers, in one buffer.

/// What a field counts beside its name and its value, bytes, as in RFC 9113 §6.5.2: so a limit on bytes
/// is one on the number of fields, too, each of which takes time.
pub const FIELD_BYTES: usize = 32;

/// What is kept of a field beside its name and its value, bytes: the lengths of both.
const LENGTHS: usize = 8;

/// Fields do not fit their limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("fields of {bytes} bytes do not fit {limit} bytes")]
pub struct TooLong {
    /// What they would have counted.
    pub bytes: usize,
    /// The limit.
    pub limit: usize,
}

/// Names and values in order, in one buffer that is freed in one step.
///
/// A field counts its name, its value and [`FIELD_BYTES`]. Names are stored in lower case; that
/// they are tokens, and values legal, is for the side that parses or writes HTTP to check.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields {
    /// For each field: the lengths of name and value, then both.
    buffer: Vec<u8>,
    limit: u32,
    count: u32,
}

impl Fields {
    /// No fields, and room for `limit` bytes. Allocates nothing.
    pub const fn new(limit: u32) -> Self {
        Self {
            buffer: Vec::new(),
            limit,
            count: 0,
        }
    }

    /// Allocates for `bytes` more, or as many as the limit leaves, in one step.
    pub fn reserve(&mut self, bytes: usize) {
        let left = (self.limit as usize).saturating_sub(self.buffer.len());
        self.buffer.reserve_exact(bytes.min(left));
    }

    /// Adds a field; one that does not fit the limit changes nothing. O(name + value), amortised.
    pub fn push(&mut self, name: &str, value: &[u8]) -> Result<(), TooLong> {
        let too_long = |bytes| TooLong {
            bytes,
            limit: self.limit as usize,
        };
        let bytes = name
            .len()
            .saturating_add(value.len())
            .saturating_add(self.bytes() + FIELD_BYTES);
        if bytes > self.limit as usize {
            return Err(too_long(bytes));
        }
        let lengths = u32::try_from(name.len())
            .ok()
            .zip(u32::try_from(value.len()).ok());
        let (name_length, value_length) = lengths.ok_or(too_long(bytes))?;
        self.buffer.extend_from_slice(&name_length.to_le_bytes());
        self.buffer.extend_from_slice(&value_length.to_le_bytes());
        self.buffer
            .extend(name.bytes().map(|byte| byte.to_ascii_lowercase()));
        self.buffer.extend_from_slice(value);
        self.count += 1;
        Ok(())
    }

    /// The fields in order.
    pub fn iter(&self) -> Iter<'_> {
        Iter { rest: &self.buffer }
    }

    /// How many fields there are.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is no field.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What all fields count together, bytes.
    pub fn bytes(&self) -> usize {
        self.buffer.len() + self.len() * (FIELD_BYTES - LENGTHS)
    }

    /// The first value of the field with this name, in lower case. O(fields).
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find(|field| field.0 == name)
            .map(|field| field.1)
    }
}

impl std::fmt::Debug for Fields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fields = self
            .iter()
            .map(|(name, value)| (name, String::from_utf8_lossy(value)));
        f.debug_map().entries(fields).finish()
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = (&'a str, &'a [u8]);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The fields in order, as names and values.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name_length, rest) = self.rest.split_first_chunk::<4>()?;
        let (value_length, rest) = rest.split_first_chunk::<4>()?;
        let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*name_length) as usize)?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_length) as usize)?;
        self.rest = rest;
        Some((str::from_utf8(name).ok()?, value))
    }
}

#[cfg(test)]
mod tests {
    use super::{FIELD_BYTES, Fields};
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

    fn fields() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
        let field = (
            "[a-z0-9-]{0,12}",
            proptest::collection::vec(any::<u8>(), 0..20),
        );
        proptest::collection::vec(field, 0..20)
    }

    proptest! {
        #[test]
        fn what_was_pushed_is_there_in_order(fields in fields(), limit in 0u32..1000) {
            let mut kept = Fields::new(limit);
            let mut expected = Vec::new();
            let mut bytes = 0;
            for (name, value) in &fields {
                let more = bytes + name.len() + value.len() + FIELD_BYTES;
                let fits = more <= limit as usize;
                prop_assert_eq!(kept.push(&name.to_uppercase(), value).is_ok(), fits);
                if fits {
                    bytes = more;
                    expected.push((name.as_str(), value.as_slice()));
                }
                prop_assert_eq!(kept.bytes(), bytes);
            }
            prop_assert_eq!(kept.len(), expected.len());
            prop_assert!(kept.buffer.len() <= bytes, "no more is kept than is counted");
            prop_assert_eq!(kept.iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn the_first_value_of_a_name_is_found() {
        let mut fields = Fields::new(100);
        fields.push("Host", b"a").expect("room");
        fields.push("host", b"b").expect("room");
        assert_eq!(fields.get("host"), Some(&b"a"[..]));
        assert_eq!(fields.get("hos"), None);
    }
}
