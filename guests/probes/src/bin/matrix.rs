//! Multiplies matrices and prints how many products it finished, `done COUNT`, a line per ROUND
//! of them (SPR §V-C). `matrix ROUND`
#![no_std]
#![no_main]

use core::hint::black_box;
use leasehold_hostile::{Arguments, Line, program};

program!(main);

/// 64 × 64 numbers of 8 bytes: three of them fill 96 KiB, a second-level cache's worth.
const SIDE: usize = 64;

type Matrix = [[f64; SIDE]; SIDE];

fn main(arguments: &Arguments<'_>) {
    let round = arguments.number(0, 100).max(1);
    let mut a: Matrix = [[0.0; SIDE]; SIDE];
    let mut b: Matrix = [[0.0; SIDE]; SIDE];
    for (row, (a, b)) in a.iter_mut().zip(&mut b).enumerate() {
        for (column, (a, b)) in a.iter_mut().zip(b).enumerate() {
            *a = (row + column) as f64;
            *b = (row * column % 7) as f64;
        }
    }
    Line::print(format_args!("ready"));
    let mut done = 0_u64;
    loop {
        for _ in 0..round {
            black_box(product(black_box(&a), black_box(&b)));
        }
        done += round;
        Line::print(format_args!("done {done}"));
    }
}

#[inline(never)]
fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let mut product = [[0.0; SIDE]; SIDE];
    for (row, a) in product.iter_mut().zip(a) {
        for (place, column) in row.iter_mut().zip(0..SIDE) {
            *place = a.iter().zip(b).map(|(a, b)| a * b[column]).sum();
        }
    }
    product
}
