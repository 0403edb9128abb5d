//! What a guest is told when `leasehold-reclaim` refuses.

use leasehold_abi::Errno;
use leasehold_reclaim::Refused;

/// Returns the error of the guest interface for a refusal of `leasehold-reclaim`.
pub const fn errno(refused: Refused) -> Errno {
    match refused {
        Refused::Budget { .. } => Errno::Budget,
        Refused::Memory => Errno::Memory,
        Refused::TooManyGroups => Errno::Limit,
        Refused::Stale => Errno::Gone,
    }
}
