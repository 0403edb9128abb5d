//! What tenants wrote and nothing has read yet, when all of them have ended.

use crate::log;
use leasehold_cell::{Destination, flush_output, flush_output_within};
use std::time::Duration;

/// How long the output of tenants that were killed is waited for: a kill has a deadline, whether
/// somebody reads or not.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits until the output of all tenants is out: as long as it takes, as any program does, or, if they
/// were `killed`, for a second. Says so on standard error if something was not read, or not logged.
pub(crate) fn finish(killed: bool, destinations: &[&Destination]) {
    if !killed {
        flush_output();
        destinations
            .iter()
            .for_each(|destination| destination.flush());
    }
    let is_out = flush_output_within(destinations, PATIENCE);
    let is_logged = log::flush_within(PATIENCE);
    if !is_out {
        eprintln!("leasehold: not all output was read");
    }
    // Where the log is not read, this would not be read either.
    if is_logged && log::lost() > 0 {
        eprintln!("leasehold: {} lines of the log were lost", log::lost());
    }
}
