//! Guests that measure the effect of other tenants on themselves: the victims of the attacks in
//! `guests/hostile`.
//!
//! 1. **A probe does not judge.** It prints its samples' quantiles, a line per round, and continues
//!    until it is ended; the study that started it compares.
//! 2. **It uses only functions that any tenant may use**: a clock, a sleep, standard output.
#![no_std]

pub mod calls;
mod quantiles;

pub use quantiles::Quantiles;
