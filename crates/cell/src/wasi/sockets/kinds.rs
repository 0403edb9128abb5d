//! The resource types of `wasi:sockets`. No value of them exists: the host's side of each handle is an
//! [`Object`](super::object::Object) of the arena.

#![allow(
    unreachable_pub,
    reason = "the engine's bindings re-export them in a private module"
)]

/// `network`.
#[derive(Debug)]
pub enum Network {}

/// `resolve-address-stream`.
#[derive(Debug)]
pub enum LookUp {}

/// `tcp-socket`.
#[derive(Debug)]
pub enum TcpSocket {}

/// `udp-socket`.
#[derive(Debug)]
pub enum UdpSocket {}

/// `incoming-datagram-stream`.
#[derive(Debug)]
pub enum IncomingDatagrams {}

/// `outgoing-datagram-stream`.
#[derive(Debug)]
pub enum OutgoingDatagrams {}
