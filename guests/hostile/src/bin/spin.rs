//! Never yields: an endless loop without a call. `spin`
#![no_std]
#![no_main]

use leasehold_hostile::{Aftermath, Arguments, program};

program!(main);

fn main(_: &Arguments<'_>) {
    Aftermath::Spin.enter();
}
