//! Reading programs: what never needs a cell.
//!
//! A file becomes a [`Compiled`](compiled::Compiled) program in this order. Text is translated; everything is counted
//! in one pass ([`load_limits`]) before it is validated (`refused`); strings between components are bounded
//! (`composed`); what a run takes is summed up ([`inventory`]). Then the core modules are rewritten, so that no
//! instruction touches much, waits, or throws past a frame: [`image`], `long_names`, `atomics`, [`exceptions`],
//! [`data_segments`], [`initial_segments`], [`bulk_instructions`], `touches`, and where epochs are checked
//! `straight_line`. The engine compiles what comes out, in this process or in [another](compiler), and
//! [`artifact`] keeps it on disk.
//!
//! Principles:
//!
//! 1. **A limit comes before the work that it limits.** Nothing is validated or compiled before it was counted
//!    ([`load_limits`], [`limits`]).
//! 2. **A rewritten program means the same**, but for where it can be stopped.
//! 3. **Compiled code is trusted**, so that it is read only from where no other user can write ([`artifact`]).
//!
//! Which host steps a program reaches, and how long they take, is not known here.
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | a program that was checked and compiled | [`compiled`]; forms and entries of its code: [`code`] |
//! | counting before anything else | [`load_limits`]; what functions are made of: `instructions`; all but functions: `declared`; the largest program, and caps on single steps: [`limits`] |
//! | sizes of component types, each counted as often as it is referred to | `type_sizes` |
//! | what is not offered | `refused`; what is: [`features`]; the refusal as an error: [`error`] |
//! | what instantiating a program takes | [`inventory`] |
//! | strings between components | `composed` |
//! | rewriting modules, wherever they are | `core_modules`, `sections`; instructions that become others: `in_place`; that become calls: `replaced` |
//! | rewritten: bulk instructions, long initial memory and tables | [`bulk_instructions`], [`data_segments`], [`initial_segments`] |
//! | rewritten for tenants that page: what the host visits is touched before | `touches` |
//! | rewritten where guests are preempted by epochs: checks in straight lines and after calls | `straight_line` |
//! | rewritten: exceptions, waits, names | [`exceptions`], `atomics`, `long_names`; handlers that are reached: `handlers` |
//! | initial memory as an area that tenants share | [`image`] |
//! | programs that are only looked at | `hollow` |
//! | what a program is loaded with | [`toolchain`] |
//! | a process for each program that is compiled; its work; what it returns | [`compiler`]; `job`; `object` |
//! | compiled programs on disk, each in a file, and what is known of files | [`artifact`], `entry`, `known_files`, [`stamp`] |
//! | the pages of such a file as code of this process | [`entry_pages`] |
//! | the threads that compile; modules of the host's own | [`compile_threads`]; [`own_module`] |

pub mod artifact;
mod atomics;
pub mod bulk_instructions;
pub mod code;
pub mod compile_threads;
pub mod compiled;
pub mod compiler;
mod composed;
mod core_modules;
pub mod data_segments;
mod declared;
mod entry;
pub mod entry_pages;
pub mod error;
pub mod exceptions;
pub mod features;
mod handlers;
mod hollow;
pub mod image;
mod in_place;
pub mod initial_segments;
pub mod inventory;
mod known_files;
pub mod limits;
pub mod load_limits;
mod long_names;
pub mod own_module;
pub mod refused;
mod replaced;
mod sections;
pub mod stamp;
mod straight_line;
pub mod toolchain;
mod touches;
mod type_sizes;
