//! Attacks on the border, searched for: random programs beside a victim in a real cell.
//!
//! Principles:
//!
//! 1. **An attack is data.** A [`Plan`] says which host functions a program calls, with which
//!    arguments, what it holds, what its `cabi_realloc` does and how it ends. It is rendered as
//!    text ([`render`]), so that a find is a readable program.
//! 2. **Everything that is offered is called.** The functions are those of the interfaces that a cell offers
//!    ([`Offers`]), with the types that they have there.
//! 3. **A promise is measured, not queried.** Beside the attacker run a victim with a reservation
//!    and a neighbour that needs its share of the host's resources; [`play`] observes both, the
//!    process, and the end.
//! 4. **Each attack has a process of its own**, so that a crash or a hang of a cell is a find like any other.
//! 5. **A find can be repeated.** It is played several times before it counts, and made smaller as
//!    long as it still occurs (`search`).
//!
//! Kills at any instant of a `cabi_realloc` that is slow or never returns are apart ([`stuck`]): for each function that
//! can return a list or a string.
//!
//! The score of an attack is the largest of its measures, each as a multiple of the promised value
//! ([`Observation::measures`]): 1 is the promise.
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | an attack as data | `plan`; as a program: `render`, `component` |
//! | the functions that a cell offers, with their types | `offer` |
//! | random plans, and changes of plans | `generate`, `sockets`; smaller ones: `shrink` |
//! | attacks that are known | `known` |
//! | one attack in a cell, beside a victim and a neighbour | `scene`; the hosts that it can ask: `hosts`; in a process of its own: `play` |
//! | effects, as multiples of what is promised | `score` |
//! | the search, and its finds | `search` |
//! | kills at any instant of a `cabi_realloc` | [`stuck`] |
//! | the longest host steps, at their caps: for calibration | [`steps`] |

mod component;
mod generate;
mod hosts;
mod known;
mod offer;
mod plan;
mod play;
mod render;
mod scene;
mod score;
mod search;
mod shrink;
mod sockets;
pub mod steps;
pub mod stuck;

pub use known::{KNOWN, Known};
pub use offer::{Flat, Meaning, Offer, Offers};
pub use plan::{Argument, Block, Call, Ending, Form, Place, Plan, Realloc, Step, Terms};
pub use play::{Player, Verdict};
pub use render::render;
pub use scene::{Bench, play, play_known};
pub use score::{Measure, Observation};
pub use search::{Find, Found, Progress, Search};
