//! Host steps: everything that a cell's thread does for a guest has a row in one [`TABLE`].
//!
//! 1. *No step without a row.* A program is accepted only if each function that it imports has a
//!    row ([`Reach::of`]); a test compares the table with the linkers in both directions.
//! 2. *Capped.* A row names the caps on its arguments ([`caps`]); the functions enforce the same
//!    constants. What is longer at any argument is cut into steps, between which the guest can be
//!    preempted.
//! 3. *Part of admission.* The longest row that a program reaches is its tenant's longest step
//!    ([`Reach::longest_under`]).
//! 4. *Checked for ever.* Each step is timed (`watch`) and compared with its row. A step that was
//!    longer is counted under the name of its row, or under the host's name if the host took the
//!    processor away meanwhile.
//!
//! 5. *Raised.* A row that is exceeded more often than is stated is [longer](RowBounds) for tenants that are
//!    admitted from then on.
//!
//! The engine reports where host code begins and ends: calls of imports, with what the canonical
//! ABI does before and after, and instructions that the engine executes on the host. The guest's
//! own code in between, such as an allocator that is called for a result, belongs to no step.

mod bounds;
pub mod caps;
pub mod document;
mod pages;
pub(crate) mod raised;
pub mod reach;
pub mod table;
mod ticks;
pub(crate) mod watch;

pub use bounds::RowBounds;
pub use caps::{Beyond, Cap};
pub use reach::{Missing, Reach};
pub(crate) use table::step;
pub use table::{CEILING_NS, Longest, Row, RowId, Runs, TABLE};
pub use watch::{StepSamples, StepUse};
pub(crate) use watch::{begin, mark, may_wait, on_fault};
