//! The controller of a cell: its tenants' desired state, and the interface that operators use.
//!
//! 1. **One owner.** A [`Supervisor`] owns the handles of all tenants and what is wanted of them. Other
//!    threads ask it through a [`Controller`]: a bounded channel, with an answer each.
//! 2. **The cell is asked seldom.** A query precedes all tenants, so what is shown is kept for a second,
//!    and what is asked at once is bounded, however many clients ask.
//! 3. **Nothing waits for an operator.** Events and log lines are in bounded rings: a slow listener is told
//!    what it missed.
//! 4. **Kills are not delayed by work.** Programs are compiled on a thread of their own ([`Loader`]).
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | the one owner of all tenants, and how other threads ask it | `supervisor`, `controller` |
//! | a tenant under supervision | `ward`; one life of it: `life`; how that begins: `birth`; when it is started again: `restarts`; how it is killed by name: `killers` |
//! | changes: of a lease file, of operators | `plan`, `desired` |
//! | loading programs; whether one changed on disk | `loader`, `source` |
//! | the control interface: routes, types | `api`, [`view`]; made of the cell's reports: `viewed`; refusals: `problem` |
//! | its server, its client, its page | `server`, `client`, `page`; which of its connections give way: `connections`; who may ask over TCP: `token` |
//! | what is kept for listeners: events, output, requests | `events`, `logs`, `request_log` |
//! | what monitoring reads: metrics, spans | [`metrics`], [`trace`] |

#![forbid(unsafe_code)]

mod api;
mod birth;
mod client;
mod connections;
mod controller;
mod desired;
mod events;
mod killers;
mod life;
mod loader;
mod logs;
pub mod metrics;
mod page;
mod plan;
mod problem;
mod request_log;
mod restarts;
mod server;
mod source;
mod supervisor;
mod token;
pub mod trace;
pub mod view;
mod viewed;
mod ward;

pub use api::{Api, ListenError, LongPlaces, PageListener, openapi};
pub use client::{Client, ClientError, Lines};
pub use controller::{Controller, Requests};
pub use desired::{Changes, Keeper, Saves, StateError, StateFile};
pub use events::Events;
pub use loader::Loader;
pub use logs::{Log, Logs, Printer};
pub use problem::Problem;
pub use request_log::RequestLog;
pub use server::{ControlSocket, Server, ServerOptions, SocketError};
pub use source::Source;
pub use supervisor::{Admission, Admitted, Facts, First, Parts, StartFailure, Supervisor};
pub use token::{Token, TokenError};
pub use ward::Ward;
