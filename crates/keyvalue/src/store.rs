//! The operations on a store.

use crate::error::{OpenError, StoreError};
use crate::file::BoundedFile;
use crate::limits::{ENTRY_BYTES, KEY_BYTES, VALUE_BYTES};
use redb::{
    Builder, Database, DatabaseError, ReadOnlyTable, ReadableDatabase as _, ReadableTable as _,
    StorageError, Table, TableDefinition, TableError, WriteTransaction,
};
use std::fs::{OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

/// Pages of the file in this process' own memory: none, but for those that a transaction writes.
const CACHE_BYTES: usize = 0;

/// For each key its number, by which keys are listed, and its value.
const ENTRIES: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("entries");

/// For each number its key.
const ORDER: TableDefinition<'_, u64, &str> = TableDefinition::new("order");

/// What the pairs count together, under [`USED`].
const COUNTS: TableDefinition<'_, &str, u64> = TableDefinition::new("counts");

const USED: &str = "used";

/// A key and its value.
pub type Pair = (String, Vec<u8>);

/// A part of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In the order in which they were first set.
    pub keys: Vec<String>,
    /// Where the next part begins; `None` if this was the last.
    pub cursor: Option<u64>,
}

/// A store of keys and values in one file.
pub struct Store {
    /// `None` after an error that the database does not survive: it is opened anew.
    database: RwLock<Option<Database>>,
    file: BoundedFile,
    quota: u64,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("Store");
        fields.field("quota", &self.quota).finish_non_exhaustive()
    }
}

/// An error of the database as the caller's.
fn failed(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::Io(error) if error.kind() == ErrorKind::QuotaExceeded => StoreError::Quota,
        error => StoreError::File(error.to_string()),
    }
}

fn count(key: &str, value: &[u8]) -> u64 {
    ENTRY_BYTES + key.len() as u64 + value.len() as u64
}

fn check(key: &str) -> Result<(), StoreError> {
    match key.len() <= KEY_BYTES {
        true => Ok(()),
        false => Err(StoreError::Key),
    }
}

type Entries = ReadOnlyTable<&'static str, (u64, &'static [u8])>;

fn value(entries: Option<&Entries>, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
    check(key)?;
    let Some(entries) = entries else {
        return Ok(None);
    };
    let entry = entries.get(key).map_err(failed)?;
    Ok(entry.map(|entry| entry.value().1.to_vec()))
}

/// The tables, while they are changed.
struct Change<'t> {
    entries: Table<'t, &'static str, (u64, &'static [u8])>,
    order: Table<'t, u64, &'static str>,
    used: u64,
    quota: u64,
}

impl<'t> Change<'t> {
    fn begin(transaction: &'t WriteTransaction, quota: u64) -> Result<Self, StoreError> {
        let counts = transaction.open_table(COUNTS).map_err(failed)?;
        let used = counts.get(USED).map_err(failed)?;
        Ok(Self {
            entries: transaction.open_table(ENTRIES).map_err(failed)?,
            order: transaction.open_table(ORDER).map_err(failed)?,
            used: used.map_or(0, |used| used.value()),
            quota,
        })
    }

    fn end(self, transaction: &WriteTransaction) -> Result<(), StoreError> {
        let mut counts = transaction.open_table(COUNTS).map_err(failed)?;
        counts.insert(USED, self.used).map_err(failed)?;
        Ok(())
    }

    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check(key)?;
        if value.len() > VALUE_BYTES {
            return Err(StoreError::Value);
        }
        let before = self.entries.get(key).map_err(failed)?;
        let before = before.map(|entry| {
            let (number, value) = entry.value();
            (number, count(key, value))
        });
        let freed = before.map_or(0, |(_, bytes)| bytes);
        let used = self.used.saturating_sub(freed) + count(key, value);
        // What is made smaller is never refused.
        if used > self.quota && used > self.used {
            return Err(StoreError::Quota);
        }
        let number = match before {
            Some((number, _)) => number,
            None => {
                let last = self.order.last().map_err(failed)?;
                let number = last.map_or(0, |(number, _)| number.value() + 1);
                self.order.insert(number, key).map_err(failed)?;
                number
            }
        };
        self.entries.insert(key, (number, value)).map_err(failed)?;
        self.used = used;
        Ok(())
    }

    fn delete(&mut self, key: &str) -> Result<(), StoreError> {
        check(key)?;
        let removed = self.entries.remove(key).map_err(failed)?;
        let Some((number, bytes)) = removed.map(|entry| {
            let (number, value) = entry.value();
            (number, count(key, value))
        }) else {
            return Ok(());
        };
        self.order.remove(number).map_err(failed)?;
        self.used = self.used.saturating_sub(bytes);
        Ok(())
    }
}

impl Store {
    /// Opens the store in a file, which is made if it is not there. What a process that died left
    /// half done is undone: that takes time in proportion to the file.
    ///
    /// # Errors
    /// When the file is no store, cannot be used, or another process uses it.
    pub fn open(path: &Path, quota: u64) -> Result<Self, OpenError> {
        let failed = |source| OpenError::File {
            path: path.to_owned(),
            source,
        };
        let mut options = OpenOptions::new();
        // Other users can neither read it nor lock it.
        let options = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let file = options.open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Taken {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let file = BoundedFile::new(file, quota);
        let database = open(&file).map_err(|error| OpenError::Content {
            path: path.to_owned(),
            what: error.to_string(),
        })?;
        Ok(Self {
            database: RwLock::new(Some(database)),
            file,
            quota,
        })
    }

    /// Runs `operation`; opens the database anew if an earlier one has broken it, or this one does.
    fn with<T>(
        &self,
        operation: impl Fn(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let result = match &*database {
            Some(database) => operation(database),
            None => Err(StoreError::File("it is not open".into())),
        };
        drop(database);
        if let Err(StoreError::File(_)) = result
            && self.reopen()
        {
            let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
            return match &*database {
                Some(database) => operation(database),
                None => result,
            };
        }
        if result.as_ref().err() == Some(&StoreError::Quota) && self.is_broken() {
            self.reopen();
        }
        result
    }

    /// Whether the database refuses everything after an error of the file.
    fn is_broken(&self) -> bool {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        database.as_ref().is_none_or(|database| {
            let begun = database.begin_read();
            begun
                .and_then(|begun| match begun.open_table(COUNTS) {
                    Err(TableError::Storage(StorageError::PreviousIo)) => {
                        Err(StorageError::PreviousIo.into())
                    }
                    _ => Ok(()),
                })
                .is_err()
        })
    }

    fn reopen(&self) -> bool {
        let mut database = self
            .database
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *database = None;
        *database = open(&self.file).ok();
        database.is_some()
    }

    fn change(
        &self,
        change: impl Fn(&mut Change<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.with(|database| {
            let transaction = database.begin_write().map_err(failed)?;
            let mut changes = Change::begin(&transaction, self.quota)?;
            change(&mut changes)?;
            changes.end(&transaction)?;
            transaction.commit().map_err(failed)
        })
    }

    /// Reads the entries as they are at one instant; `None` if nothing was ever set.
    fn read<T>(
        &self,
        read: impl Fn(Option<&Entries>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.with(|database| {
            let begun = database.begin_read().map_err(failed)?;
            match begun.open_table(ENTRIES) {
                Err(TableError::TableDoesNotExist(_)) => read(None),
                entries => read(Some(&entries.map_err(failed)?)),
            }
        })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When the key is too long, or the file fails; so it is with all operations.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|entries| value(entries, key))
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn contains(&self, key: &str) -> Result<bool, StoreError> {
        self.get(key).map(|value| value.is_some())
    }

    /// The keys that are there of these, with their values at one instant, which are at most `most` bytes together.
    ///
    /// # Errors
    /// As [`Store::get`]; [`StoreError::Answer`] if there are more.
    pub fn get_many(&self, keys: &[String], most: usize) -> Result<Vec<Option<Pair>>, StoreError> {
        self.read(|entries| {
            let mut left = most;
            let pair = |key: &String| {
                let value = value(entries, key)?;
                let bytes = value.as_ref().map_or(0, |value| key.len() + value.len());
                left = left.checked_sub(bytes).ok_or(StoreError::Answer(most))?;
                Ok(value.map(|value| (key.clone(), value)))
            };
            keys.iter().map(pair).collect()
        })
    }

    /// Sets the values of keys, all of them or none.
    ///
    /// # Errors
    /// As [`Store::get`]; when a value is too long, or the quota is exhausted.
    pub fn set(&self, entries: &[Pair]) -> Result<(), StoreError> {
        self.change(|change| {
            let mut entries = entries.iter();
            entries.try_for_each(|(key, value)| change.set(key, value))
        })
    }

    /// Deletes keys, all of those that are there.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn delete(&self, keys: &[String]) -> Result<(), StoreError> {
        self.change(|change| keys.iter().try_for_each(|key| change.delete(key)))
    }

    /// Adds to the decimal number that is the value of a key, 0 if it is not there, and returns the sum.
    ///
    /// # Errors
    /// As [`Store::set`]; when the value is no number, or the sum too large.
    pub fn increment(&self, key: &str, delta: u64) -> Result<u64, StoreError> {
        let sum = std::cell::Cell::new(0);
        self.change(|change| {
            check(key)?;
            let before = match change.entries.get(key).map_err(failed)? {
                None => 0,
                Some(entry) => {
                    let text = std::str::from_utf8(entry.value().1).ok();
                    let number = text.and_then(|text| text.parse().ok());
                    number.ok_or(StoreError::Number)?
                }
            };
            sum.set(u64::checked_add(before, delta).ok_or(StoreError::Number)?);
            change.set(key, sum.get().to_string().as_bytes())
        })?;
        Ok(sum.get())
    }

    /// Keys in the order in which they were first set, from `cursor` on: at most `count`, at most
    /// `bytes` together, and at least one if there is one. A key that is there all the while is in
    /// exactly one part.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn keys(
        &self,
        cursor: Option<u64>,
        count: usize,
        bytes: usize,
    ) -> Result<Page, StoreError> {
        self.with(|database| {
            let mut page = Page {
                keys: Vec::new(),
                cursor: None,
            };
            let begun = database.begin_read().map_err(failed)?;
            let order = match begun.open_table(ORDER) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(page),
                order => order.map_err(failed)?,
            };
            let mut left = bytes;
            for entry in order.range(cursor.unwrap_or(0)..).map_err(failed)? {
                let (number, key) = entry.map_err(failed)?;
                let key = key.value();
                let is_full = page.keys.len() >= count.max(1) || key.len() > left;
                if is_full && !page.keys.is_empty() {
                    page.cursor = Some(number.value());
                    break;
                }
                left = left.saturating_sub(key.len());
                page.keys.push(key.to_owned());
            }
            Ok(page)
        })
    }
}

fn open(file: &BoundedFile) -> Result<Database, DatabaseError> {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder.create_with_backend(file.clone())
}
