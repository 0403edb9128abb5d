//! `[tenant.NAME.keyvalue]`: the store of a tenant that imports `wasi:keyvalue`.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::byte_size::ByteSize;
use crate::error::LeaseError;
use crate::node::Node;

const KEYS: &str = "file, size";
const FILE: &str = "a path, not empty, without NUL, that no other tenant's store has";
const SIZE: &str = "a size from 4MiB to 64GiB, such as \"64MiB\"";

/// The store of a tenant: its `keyvalue` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The file, which is made if it is not there. A relative path in a lease file is relative to
    /// the directory of the file, and has been resolved against it here.
    pub file: PathBuf,
    /// The most bytes that the file has.
    pub size: ByteSize,
}

impl KeyValue {
    const SIZES: RangeInclusive<u64> = 4 << 20..=64 << 30;

    /// `taken` are the files of the tenants before this one.
    pub(crate) fn parse(
        node: &Node<'_>,
        base: &Path,
        taken: &mut HashSet<PathBuf>,
    ) -> Result<Self, LeaseError> {
        let (mut file, mut size) = (None, None);
        for entry in node.entries()? {
            match entry.name() {
                "file" => {
                    let is_path = |text: &str| !text.is_empty() && !text.contains('\0');
                    let path = base.join(entry.string(FILE, is_path)?);
                    if !taken.insert(path.clone()) {
                        return Err(entry.refused(FILE));
                    }
                    file = Some(path);
                }
                "size" => {
                    let stated: ByteSize = entry.quantity_of(SIZE)?;
                    if !Self::SIZES.contains(&stated.get()) {
                        return Err(entry.refused(SIZE));
                    }
                    size = Some(stated);
                }
                _ => return Err(entry.unknown(KEYS)),
            }
        }
        Ok(Self {
            file: file.ok_or_else(|| node.missing("file", FILE))?,
            size: size.ok_or_else(|| node.missing("size", SIZE))?,
        })
    }
}
