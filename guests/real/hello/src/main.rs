//! The least program that does anything: for measuring start-up. `hello [NAME]`

use std::env;

fn main() {
    let name = env::args().nth(1).unwrap_or_else(|| "world".to_owned());
    println!("hello, {name}");
}
