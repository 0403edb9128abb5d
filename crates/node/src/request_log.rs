//! The last requests of each tenant.

use crate::view::Request;
use jiff::Timestamp;
use leasehold_front::Record;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Requests that are kept of a tenant.
const KEPT: usize = 100;

/// The last requests of each tenant. The front's thread adds to it, and never waits for long.
#[derive(Default)]
pub struct RequestLog(Mutex<HashMap<String, VecDeque<(Timestamp, Record)>>>);

impl RequestLog {
    /// Adds a request that is over.
    pub fn put(&self, record: &Record) {
        let Some(tenant) = &record.tenant else {
            return;
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(tenant) {
            all.insert(tenant.clone(), VecDeque::new());
        }
        if let Some(last) = all.get_mut(tenant) {
            if last.len() == KEPT {
                last.pop_front();
            }
            last.push_back((Timestamp::now(), record.clone()));
        }
    }

    /// Returns the last requests of a tenant, the newest last.
    pub fn last(&self, tenant: &str) -> Vec<Request> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.get(tenant).into_iter().flatten();
        last.map(|(at, record)| request(*at, record)).collect()
    }

    pub(crate) fn forget(&self, tenant: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(tenant);
    }
}

fn request(at: Timestamp, record: &Record) -> Request {
    let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Request {
        id: record.id,
        at,
        remote: record.remote.to_string(),
        listener: record.listener.to_string(),
        method: record.method.clone(),
        host: record.authority.clone(),
        path: record.path.clone(),
        status: record.status,
        body_bytes: record.bytes,
        elapsed_ns: ns(record.elapsed),
        queued_ns: record.timing.and_then(|timing| timing.queued).map(ns),
        guest_ns: record.timing.map(|timing| ns(timing.guest)),
        outcome: record.outcome.name().to_owned(),
    }
}
