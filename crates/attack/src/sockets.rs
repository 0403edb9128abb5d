//! Sequences of calls that make sockets, and exchange something over them.

use crate::plan::{Argument, Block, Place, Step};

const TCP: &str = "wasi:sockets/tcp@0.2.12";
const UDP: &str = "wasi:sockets/udp@0.2.12";

/// Where an attacker may listen.
pub(crate) const LISTENED: ([u8; 4], u16) = ([10, 1, 2, 3], 4);

fn call<const N: usize>(module: &str, name: &str, arguments: [Argument; N]) -> Step {
    Step::call(module, name, &[&arguments])
}

/// An address of IPv4 as arguments: with zeros for what IPv6 has more.
fn address(ip: [u8; 4], port: u16) -> [Argument; 12] {
    let mut words = [0; 12];
    words[1] = port.into();
    for (word, part) in words[2..].iter_mut().zip(ip) {
        *word = part.into();
    }
    words.map(Argument::Number)
}

/// The beginning of a socket: the network, and the socket in the slot of the last call.
fn socket(protocol: &str) -> [Step; 2] {
    let interface = format!("wasi:sockets/{protocol}-create-socket@0.2.12");
    let create = format!("create-{protocol}-socket");
    let out = Argument::At(Place::Slot);
    [
        call(
            "wasi:sockets/instance-network@0.2.12",
            "instance-network",
            [],
        ),
        call(&interface, &create, [Argument::Number(0), out]),
    ]
}

/// The socket and the network, in that order, after as many calls as there were since the socket was made.
fn made(before: u8) -> [Argument; 2] {
    [Argument::Word(before, 1), Argument::Result(before + 1)]
}

/// The wait for what `subscribe` returns.
fn wait() -> Step {
    let block = "[method]pollable.block";
    call("wasi:io/poll@0.2.12", block, [Argument::Result(1)])
}

/// What comes over a connection, and what is written to it: the last call returned its streams, from this word on.
fn read_and_write(word: u8) -> [Step; 2] {
    let out = Argument::At(Place::Slot);
    let streams = "wasi:io/streams@0.2.12";
    let bytes = Argument::Number(65_536);
    let read = [Argument::Word(1, word), bytes, out];
    let write = [
        Argument::Word(2, word + 1),
        Argument::At(Place::Rest),
        bytes,
        out,
    ];
    [
        call(streams, "[method]input-stream.read", read),
        call(streams, "[method]output-stream.write", write),
    ]
}

/// Connections, what comes over each, and what is written to each.
pub(crate) fn connections(many: u32, port: u16) -> Vec<Block> {
    let out = Argument::At(Place::Slot);
    let mut steps = socket("tcp").to_vec();
    let to = address([10, 0, 0, 1], port);
    let connect = "[method]tcp-socket.start-connect";
    steps.extend([
        Step::call(TCP, connect, &[&made(1), &to, &[out]]),
        call(TCP, "[method]tcp-socket.subscribe", [Argument::Word(2, 1)]),
        wait(),
        call(
            TCP,
            "[method]tcp-socket.finish-connect",
            [Argument::Word(4, 1), out],
        ),
    ]);
    steps.extend(read_and_write(1));
    vec![Block {
        repeat: many,
        steps,
    }]
}

/// Sockets that listen, a connection that comes to each, and what is read from it and written to it.
pub(crate) fn listeners(many: u32) -> Vec<Block> {
    let out = Argument::At(Place::Slot);
    let mut steps = socket("tcp").to_vec();
    let (ip, port) = LISTENED;
    let at = address(ip, port);
    let bind = "[method]tcp-socket.start-bind";
    let of_socket = |name: &str, before: u8| {
        let name = format!("[method]tcp-socket.{name}");
        call(TCP, &name, [Argument::Word(before, 1), out])
    };
    let subscribe = |before: u8| {
        let name = "[method]tcp-socket.subscribe";
        call(TCP, name, [Argument::Word(before, 1)])
    };
    steps.extend([
        Step::call(TCP, bind, &[&made(1), &at, &[out]]),
        of_socket("finish-bind", 2),
        of_socket("start-listen", 3),
        subscribe(4),
        wait(),
        of_socket("finish-listen", 6),
        subscribe(7),
        wait(),
        of_socket("accept", 9),
    ]);
    steps.extend(read_and_write(2));
    vec![Block {
        repeat: many,
        steps,
    }]
}

/// Sockets for datagrams, with or without a peer, what comes to each, and what each sends.
pub(crate) fn datagrams(many: u32, has_peer: Argument) -> Vec<Block> {
    let out = Argument::At(Place::Slot);
    let mut steps = socket("udp").to_vec();
    let (any, peer) = (address([0; 4], 0), address([10, 0, 0, 1], 3));
    let bind = "[method]udp-socket.start-bind";
    let stream = "[method]udp-socket.stream";
    steps.extend([
        Step::call(UDP, bind, &[&made(1), &any, &[out]]),
        call(UDP, "[method]udp-socket.subscribe", [Argument::Word(2, 1)]),
        wait(),
        call(
            UDP,
            "[method]udp-socket.finish-bind",
            [Argument::Word(4, 1), out],
        ),
        Step::call(
            UDP,
            stream,
            &[&[Argument::Word(5, 1), has_peer], &peer, &[out]],
        ),
        call(
            UDP,
            "[method]incoming-datagram-stream.receive",
            [Argument::Word(1, 1), Argument::Number(16), out],
        ),
        call(
            UDP,
            "[method]outgoing-datagram-stream.check-send",
            [Argument::Word(2, 2), out],
        ),
        call(
            UDP,
            "[method]outgoing-datagram-stream.send",
            [
                Argument::Word(3, 2),
                Argument::At(Place::Zeros),
                Argument::Number(16),
                out,
            ],
        ),
    ]);
    vec![Block {
        repeat: many,
        steps,
    }]
}
