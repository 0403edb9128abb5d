//! Studies of memory reservations (SPC), and what they share.
//!
//! | question | file |
//! |---|---|
//! | whether tasks that share pages evict them from each other | `sharing` |
//! | how small a reservation may be | `reserve_size` |
//! | the cost of one paging operation, and for a whole program that fits its reservation | `paging_cost`, `memory_speed` |
//! | players that share a decoder's tables and a film | `media` |
//! | shared: the papers' tasks, on real pages | `paging` |

pub(crate) mod media;
pub(crate) mod memory_speed;
pub(crate) mod paging;
pub(crate) mod paging_cost;
pub(crate) mod reserve_size;
pub(crate) mod sharing;
