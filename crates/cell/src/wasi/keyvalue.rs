//! `wasi:keyvalue`: the store of the lease's `keyvalue`, on threads that may block.
//!
//! A bucket is one slot of the arena, which names nothing: a tenant has one store, under the names
//! "" and "default". Each operation is a job of the tenant's, with all that it needs; a guest that is
//! killed leaves it to the thread that has begun it, and nothing is half done. The memory of an
//! operation and of its answer is charged before it is queued.

use super::bindings::keyvalue::store::{Error, KeyResponse};
use super::bindings::keyvalue::{atomics, batch, store};
use super::imports::KeyValue;
use super::objects::Bucket;
use super::rep;
use super::view::Wasi;
use crate::host::io;
use crate::local;
use crate::steps::caps::{ANSWER, KEY_PAGE, KEY_PAGE_BYTES, KEYS};
use crate::steps::{mark, step};
use leasehold_keyvalue::{Pair, Store, StoreError};
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime::error::Context as _;

/// The resource type of buckets. No value of it exists.
#[derive(Debug)]
#[allow(
    unreachable_pub,
    reason = "the engine's bindings re-export it in a private module"
)]
pub enum BucketHandle {}

type Handle = Resource<BucketHandle>;

/// The names of the one bucket of a tenant.
const NAMES: [&str; 2] = ["", "default"];

/// Bytes that an operation holds beside its arguments and its answer: pages of the tree on its way.
const WORK_BYTES: usize = 64 << 10;

/// The interface's error of a store's.
fn error_of(error: StoreError) -> Error {
    Error::Other(error.to_string())
}

fn bytes(entries: &[Pair]) -> usize {
    entries
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum()
}

/// Fails if there are more keys than one call may name.
fn check_count(count: usize) -> Result<(), Error> {
    match count <= KEYS.size() {
        true => Ok(()),
        false => Err(Error::Other(format!("more than {} keys", KEYS.most))),
    }
}

impl Wasi<'_> {
    /// The store of a bucket that the guest has.
    fn bucket(&self, bucket: &Handle) -> Result<KeyValue> {
        rep::find::<Bucket, _>(self.0, bucket).context("unknown bucket")?;
        let own = self.0.imports.keyvalue.as_ref();
        own.cloned().context("a bucket without a store")
    }

    /// Runs an operation on a thread that may block, with `held` bytes of memory beside its work.
    async fn operate<T: Send + 'static>(
        &mut self,
        bucket: &Handle,
        held: usize,
        operation: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Result<T, Error>> {
        let KeyValue {
            store,
            account,
            pages,
        } = self.bucket(bucket)?;
        let Ok(lent) = pages.lend(WORK_BYTES + held) else {
            let refused = "the lease does not pay for the memory of the operation";
            return Ok(Err(Error::Other(refused.into())));
        };
        let done = io::run(&account, move || (operation(&store), lent)).await;
        Ok(done.0.map_err(error_of))
    }

    /// The most bytes of an answer.
    fn answer_bytes(&self) -> usize {
        self.0.transfer_bytes(ANSWER) as usize
    }
}

impl store::Host for Wasi<'_> {
    async fn open(&mut self, identifier: String) -> Result<Result<Handle, Error>> {
        mark(step!("wasi:keyvalue/store", "open"));
        if self.0.imports.keyvalue.is_none() {
            return Ok(Err(Error::AccessDenied));
        }
        if !NAMES.contains(&identifier.as_str()) {
            return Ok(Err(Error::NoSuchStore));
        }
        let class = local::with(|local| local.classes.bucket);
        let bucket = rep::create(self.0, class, Bucket::ONLY);
        Ok(bucket
            .map_err(|errno| Error::Other(format!("the lease does not pay for a bucket: {errno}"))))
    }
}

impl store::HostBucket for Wasi<'_> {
    async fn get(&mut self, bucket: Handle, key: String) -> Result<Result<Option<Vec<u8>>, Error>> {
        mark(step!("wasi:keyvalue/store", "[method]bucket.get"));
        let most = self.answer_bytes();
        let value = self.operate(&bucket, most, move |store| {
            let value = store.get(&key)?;
            match &value {
                Some(value) if value.len() > most => Err(StoreError::Answer(most)),
                _ => Ok(value),
            }
        });
        value.await
    }

    async fn set(
        &mut self,
        bucket: Handle,
        key: String,
        value: Vec<u8>,
    ) -> Result<Result<(), Error>> {
        mark(step!("wasi:keyvalue/store", "[method]bucket.set"));
        let entries = [(key, value)];
        let held = 2 * bytes(&entries);
        self.operate(&bucket, held, move |store| store.set(&entries))
            .await
    }

    async fn delete(&mut self, bucket: Handle, key: String) -> Result<Result<(), Error>> {
        mark(step!("wasi:keyvalue/store", "[method]bucket.delete"));
        self.operate(&bucket, key.len(), move |store| store.delete(&[key]))
            .await
    }

    async fn exists(&mut self, bucket: Handle, key: String) -> Result<Result<bool, Error>> {
        mark(step!("wasi:keyvalue/store", "[method]bucket.exists"));
        let held = ANSWER.size();
        self.operate(&bucket, held, move |store| store.contains(&key))
            .await
    }

    async fn list_keys(
        &mut self,
        bucket: Handle,
        cursor: Option<u64>,
    ) -> Result<Result<KeyResponse, Error>> {
        mark(step!("wasi:keyvalue/store", "[method]bucket.list-keys"));
        let most = self.answer_bytes().min(KEY_PAGE_BYTES.size());
        let page = self.operate(&bucket, most, move |store| {
            store.keys(cursor, KEY_PAGE.size(), most)
        });
        let response = page.await?.map(|page| KeyResponse {
            keys: page.keys,
            cursor: page.cursor,
        });
        Ok(response)
    }

    async fn drop(&mut self, bucket: Handle) -> Result<()> {
        mark(step!("wasi:keyvalue/store", "[resource-drop]bucket"));
        let handle = rep::find::<Bucket, _>(self.0, &bucket).context("unknown bucket")?;
        local::with(|local| local.kernel.groups_mut().free(handle));
        Ok(())
    }
}

impl atomics::Host for Wasi<'_> {
    async fn increment(
        &mut self,
        bucket: Handle,
        key: String,
        delta: u64,
    ) -> Result<Result<u64, Error>> {
        mark(step!("wasi:keyvalue/atomics", "increment"));
        let held = ANSWER.size();
        self.operate(&bucket, held, move |store| store.increment(&key, delta))
            .await
    }
}

impl batch::Host for Wasi<'_> {
    async fn get_many(
        &mut self,
        bucket: Handle,
        keys: Vec<String>,
    ) -> Result<Result<Vec<Option<Pair>>, Error>> {
        mark(step!("wasi:keyvalue/batch", "get-many"));
        if let Err(error) = check_count(keys.len()) {
            return Ok(Err(error));
        }
        let most = self.answer_bytes();
        // One value more may be read before it is found to be too much.
        let held = most + ANSWER.size();
        self.operate(&bucket, held, move |store| store.get_many(&keys, most))
            .await
    }

    async fn set_many(&mut self, bucket: Handle, entries: Vec<Pair>) -> Result<Result<(), Error>> {
        mark(step!("wasi:keyvalue/batch", "set-many"));
        if let Err(error) = check_count(entries.len()) {
            return Ok(Err(error));
        }
        let held = 2 * bytes(&entries);
        self.operate(&bucket, held, move |store| store.set(&entries))
            .await
    }

    async fn delete_many(
        &mut self,
        bucket: Handle,
        keys: Vec<String>,
    ) -> Result<Result<(), Error>> {
        mark(step!("wasi:keyvalue/batch", "delete-many"));
        if let Err(error) = check_count(keys.len()) {
            return Ok(Err(error));
        }
        let held = keys.iter().map(String::len).sum();
        self.operate(&bucket, held, move |store| store.delete(&keys))
            .await
    }
}
