//! Attacks on the border, searched for: random programs beside a victim in a real cell.
//!
//! Principles:
//!
//! 1. **An attack is data.** A [`Plan`] says which host functions a program calls, with which arguments, what it
//!    holds, what its `cabi_realloc` does and how it ends. It is rendered as text ([`render`]), so that a find is
//!    a program that a person can read.
//! 2. **Everything that is offered is called.** The functions are those of the interfaces that a cell offers
//!    ([`Offers`]), with the types that they have there.
//! 3. **A promise is measured, not asked for.** Beside the attacker run a victim with a reservation and a
//!    neighbour that needs its share of what the host has; [`play`] observes both, the process, and the end.
//! 4. **Each attack has a process of its own**, so that a crash or a hang of a cell is a find like any other.
//! 5. **A find is one that comes again.** It is played several times before it counts, and made smaller as long as
//!    it still comes ([`search`]).
//!
//! The score of an attack is the largest of its measures, each as a multiple of what was promised
//! ([`Observation::measures`]): 1 is the promise.

mod component;
mod generate;
mod offer;
mod plan;
mod play;
mod render;
mod scene;
mod score;
mod search;
mod shrink;
pub mod steps;

pub use offer::{Flat, Meaning, Offer, Offers};
pub use plan::{Argument, Block, Call, Ending, Form, Place, Plan, Realloc, Step, Terms};
pub use play::{Player, Verdict};
pub use render::render;
pub use scene::{Bench, play};
pub use score::{Measure, Observation};
pub use search::{Find, Found, Progress, Search};
