//! Opens files and keeps them. `descriptor-bomb DIRECTORY N AFTERMATH`
//!
//! DIRECTORY is one that the host opened in advance, by its name for the guest; the file `bomb`
//! in it is made and opened again and again. A refusal is printed as the `errno` of WASI
//! preview 1.
#![no_std]
#![no_main]

use leasehold_hostile::{Arguments, Descriptor, Line, exit, program, tally};

program!(main);

fn main(arguments: &Arguments<'_>) {
    let name = arguments.text(0).unwrap_or("/");
    let Some(directory) = Descriptor::preopened(name) else {
        Line::print(format_args!("no directory {name}"));
        exit(2)
    };
    tally(arguments.number(1, 0), |_| directory.open("bomb")).print();
    arguments.aftermath(2).enter();
}
