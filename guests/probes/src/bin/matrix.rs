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

/// Not on the stack, which is smaller than three of them.
static LEFT: Matrix = matrix(false);
static RIGHT: Matrix = matrix(true);

const fn matrix(right: bool) -> Matrix {
    let mut matrix: Matrix = [[0.0; SIDE]; SIDE];
    let mut place = 0;
    while place < SIDE * SIDE {
        let (row, column) = (place / SIDE, place % SIDE);
        matrix[row][column] = if right {
            (row * column % 7) as f64
        } else {
            (row + column) as f64
        };
        place += 1;
    }
    matrix
}

fn main(arguments: &Arguments<'_>) {
    let round = arguments.number(0, 100).max(1);
    let mut product: Matrix = [[0.0; SIDE]; SIDE];
    Line::print(format_args!("ready"));
    let mut done = 0_u64;
    loop {
        for _ in 0..round {
            multiply(black_box(&LEFT), black_box(&RIGHT), &mut product);
            black_box(&product);
        }
        done += round;
        Line::print(format_args!("done {done}"));
    }
}

#[inline(never)]
fn multiply(left: &Matrix, right: &Matrix, product: &mut Matrix) {
    for (row, left) in product.iter_mut().zip(left) {
        for (place, column) in row.iter_mut().zip(0..SIDE) {
            *place = left.iter().zip(right).map(|(a, b)| a * b[column]).sum();
        }
    }
}
