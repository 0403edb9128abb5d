//! Whose output a thread writes out, and the processor time that this takes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The processor time that other threads have used to write the output of one tenant. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct OutputTime(Arc<AtomicU64>);

impl OutputTime {
    /// Returns the time since it was taken last, ns.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }

    fn add(&self, cpu_ns: u64) {
        self.0.fetch_add(cpu_ns, Ordering::Relaxed);
    }
}

/// The bytes in a pipe that each tenant has written. There are at most as many tenants as bytes.
#[derive(Debug, Default)]
pub(crate) struct Writers(HashMap<usize, (OutputTime, u64)>);

impl Writers {
    /// Adds bytes of the tenant with this time.
    pub(crate) fn wrote(&mut self, time: &OutputTime, bytes: usize) {
        // No other has this address as long as it is in the map.
        let address = Arc::as_ptr(&time.0).addr();
        let (_, written) = self.0.entry(address).or_insert_with(|| (time.clone(), 0));
        *written += bytes as u64;
    }

    /// Divides the time that writing `all` bytes took among the tenants, by their bytes.
    pub(crate) fn share(&self, all: usize, cpu_ns: u64) {
        for (time, bytes) in self.0.values() {
            let part = u128::from(cpu_ns) * u128::from(*bytes) / (all.max(1) as u128);
            // No more than `cpu_ns`.
            time.add(part as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{OutputTime, Writers};

    #[test]
    fn tenants_share_the_time_by_their_bytes_and_bytes_of_the_host_are_its_own() {
        let [one, other] = [(); 2].map(|()| OutputTime::default());
        let mut writers = Writers::default();
        writers.wrote(&one, 10);
        writers.wrote(&other, 30);
        writers.wrote(&one.clone(), 10);
        writers.share(100, 1_000);
        assert_eq!((one.take(), other.take()), (200, 300));
        assert_eq!((one.take(), other.take()), (0, 0));
    }
}
