//! Prints what each function of `wasi:sockets` answers in each state of a socket, one line for each case.
//!
//! `sockets TCP GONE UDP UNHEARD OWN`: the ports on 127.0.0.1 of a host that sends back what it gets over TCP, in reverse, and of
//! nobody; of one that sends back datagrams, and of nobody; and the one at which the program may listen.
//!
//! `sockets beyond TCP`: sends as many bytes as `check-write` permitted, and one that it did not.

use std::env;
use std::fmt::Debug;
use std::process::ExitCode;
use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::ip_name_lookup::resolve_addresses;
use wasip2::sockets::network::{
    ErrorCode, IpAddressFamily, IpSocketAddress, Ipv4SocketAddress, Ipv6SocketAddress, Network,
};
use wasip2::sockets::tcp::{ShutdownType, TcpSocket};
use wasip2::sockets::tcp_create_socket::create_tcp_socket;
use wasip2::sockets::udp::{OutgoingDatagram, UdpSocket};
use wasip2::sockets::udp_create_socket::create_udp_socket;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let ports: Vec<u16> = arguments.iter().flat_map(|text| text.parse()).collect();
    if let [what, _] = &arguments[..]
        && let (true, [tcp]) = (what == "beyond", &ports[..])
    {
        return beyond(*tcp);
    }
    let [tcp, gone, udp, unheard, own] = ports[..] else {
        eprintln!("usage: sockets TCP GONE UDP UNHEARD OWN | beyond TCP");
        return ExitCode::from(64);
    };
    let network = instance_network();
    new_tcp(&network);
    refused_addresses(&network);
    connected_tcp(&network, tcp);
    refused_tcp(&network, gone);
    listening_tcp(&network, own);
    new_udp(&network);
    bound_udp(&network, udp);
    peer_of_udp(&network, udp, unheard);
    names(&network);
    ExitCode::SUCCESS
}

fn beyond(port: u16) -> ExitCode {
    let socket = create_tcp_socket(IpAddressFamily::Ipv4).expect("a socket");
    let begun = socket.start_connect(&instance_network(), local(port));
    begun.expect("begins to connect");
    socket.subscribe().block();
    let (_, output) = socket.finish_connect().expect("connects");
    let permitted = output.check_write().expect("permits");
    output.write(&vec![b'.'; permitted as usize]).expect("written");
    println!("wrote what was permitted");
    let answer = output.write(b".");
    println!("{answer:?}");
    ExitCode::SUCCESS
}

/// Prints a case: what succeeded, or the error.
fn case<T: Debug>(name: &str, answer: Result<T, ErrorCode>) -> Option<T> {
    match answer {
        Ok(value) => {
            println!("{name}: {value:?}");
            Some(value)
        }
        Err(error) => {
            println!("{name}: {}", error.name());
            None
        }
    }
}

/// Prints a case whose value is not the same each time, or is none.
fn succeeds<T>(name: &str, answer: Result<T, ErrorCode>) -> Option<T> {
    match answer {
        Ok(value) => {
            println!("{name}: succeeds");
            Some(value)
        }
        Err(error) => {
            println!("{name}: {}", error.name());
            None
        }
    }
}

const fn v4(address: (u8, u8, u8, u8), port: u16) -> IpSocketAddress {
    IpSocketAddress::Ipv4(Ipv4SocketAddress { port, address })
}

const fn v6(address: (u16, u16, u16, u16, u16, u16, u16, u16), port: u16) -> IpSocketAddress {
    IpSocketAddress::Ipv6(Ipv6SocketAddress {
        port,
        flow_info: 0,
        address,
        scope_id: 0,
    })
}

const ANY: IpSocketAddress = v4((0, 0, 0, 0), 0);
const ANY6: IpSocketAddress = v6((0, 0, 0, 0, 0, 0, 0, 0), 0);

const fn local(port: u16) -> IpSocketAddress {
    v4((127, 0, 0, 1), port)
}

const fn mapped(port: u16) -> IpSocketAddress {
    v6((0, 0, 0, 0, 0, 0xffff, 0x7f00, 1), port)
}

fn new_tcp(network: &Network) {
    let Some(socket) = succeeds("tcp create", create_tcp_socket(IpAddressFamily::Ipv4)) else {
        return;
    };
    println!("tcp family: {:?}", socket.address_family());
    println!("tcp is-listening: {}", socket.is_listening());
    case("tcp finish-bind at first", socket.finish_bind());
    succeeds("tcp finish-connect at first", socket.finish_connect());
    case("tcp finish-listen at first", socket.finish_listen());
    succeeds("tcp accept at first", socket.accept());
    succeeds("tcp local-address at first", socket.local_address());
    succeeds("tcp remote-address at first", socket.remote_address());
    case("tcp shutdown at first", socket.shutdown(ShutdownType::Both));
    case("tcp start-listen at first", socket.start_listen());
    case("tcp backlog of 0", socket.set_listen_backlog_size(0));
    case("tcp backlog of 1", socket.set_listen_backlog_size(1));
    case("tcp keep-alive at first", socket.keep_alive_enabled());
    case("tcp keep-alive set", socket.set_keep_alive_enabled(true));
    case("tcp keep-alive then", socket.keep_alive_enabled());
    case("tcp idle-time of 0", socket.set_keep_alive_idle_time(0));
    case("tcp idle-time of 1", socket.set_keep_alive_idle_time(1));
    case("tcp idle-time then", socket.keep_alive_idle_time());
    case("tcp interval of 0", socket.set_keep_alive_interval(0));
    case(
        "tcp interval of 3 s",
        socket.set_keep_alive_interval(3_000_000_000),
    );
    case("tcp interval then", socket.keep_alive_interval());
    case(
        "tcp interval of all",
        socket.set_keep_alive_interval(u64::MAX),
    );
    case("tcp count of 0", socket.set_keep_alive_count(0));
    case("tcp count of 7", socket.set_keep_alive_count(7));
    case("tcp count then", socket.keep_alive_count());
    case("tcp count of all", socket.set_keep_alive_count(u32::MAX));
    case("tcp hop-limit of 0", socket.set_hop_limit(0));
    case("tcp hop-limit of 9", socket.set_hop_limit(9));
    case("tcp hop-limit then", socket.hop_limit());
    case("tcp receive-buffer of 0", socket.set_receive_buffer_size(0));
    case("tcp send-buffer of 0", socket.set_send_buffer_size(0));
    case(
        "tcp receive-buffer of all",
        socket.set_receive_buffer_size(u64::MAX),
    );
    case("tcp send-buffer of 1", socket.set_send_buffer_size(1));
    println!("tcp subscribe at first: {}", socket.subscribe().ready());
    let wrong = socket.start_bind(network, ANY6);
    case("tcp bind to the other family", wrong);
}

fn refused_addresses(network: &Network) {
    let addresses = [
        ("port 0", local(0)),
        ("any", v4((0, 0, 0, 0), 80)),
        ("multicast", v4((224, 0, 0, 1), 80)),
        ("broadcast", v4((255, 255, 255, 255), 80)),
        ("the other family", v6((0, 0, 0, 0, 0, 0, 0, 1), 80)),
    ];
    for (what, to) in addresses {
        if let Ok(socket) = create_tcp_socket(IpAddressFamily::Ipv4) {
            case(
                &format!("tcp connect to {what}"),
                socket.start_connect(network, to),
            );
            succeeds(
                &format!("tcp finish-connect to {what}"),
                socket.finish_connect(),
            );
        }
    }
    if let Ok(socket) = create_tcp_socket(IpAddressFamily::Ipv6) {
        let to_mapped = socket.start_connect(network, mapped(80));
        case("tcp connect to a mapped address", to_mapped);
        let to_any = socket.start_connect(network, v6((0, 0, 0, 0, 0, 0, 0, 0), 80));
        case("tcp connect to any of IPv6", to_any);
    }
}

fn connected_tcp(network: &Network, port: u16) {
    let Ok(socket) = create_tcp_socket(IpAddressFamily::Ipv4) else {
        return;
    };
    case("tcp connect", socket.start_connect(network, local(port)));
    connecting(network, &socket, port);
    socket.subscribe().block();
    let Some((input, output)) = succeeds("tcp finish-connect", socket.finish_connect()) else {
        return;
    };
    succeeds("tcp finish-connect twice", socket.finish_connect());
    case(
        "tcp connect when connected",
        socket.start_connect(network, local(port)),
    );
    case("tcp bind when connected", socket.start_bind(network, ANY));
    case("tcp listen when connected", socket.start_listen());
    succeeds("tcp accept when connected", socket.accept());
    succeeds("tcp local-address when connected", socket.local_address());
    let remote = socket.remote_address();
    println!("tcp remote-address is right: {}", is(&remote, local(port)));
    let written = output.blocking_write_and_flush(b"hello");
    println!("tcp write: {written:?}");
    case("tcp shutdown of send", socket.shutdown(ShutdownType::Send));
    println!("tcp write then: {}", output.check_write().is_ok());
    let mut got = Vec::new();
    while let Ok(bytes) = input.blocking_read(100) {
        got.extend(bytes);
    }
    println!("tcp read: {:?}", String::from_utf8_lossy(&got));
    case(
        "tcp shutdown of receive",
        socket.shutdown(ShutdownType::Receive),
    );
    println!("tcp read then: {}", input.read(1).is_ok());
    println!("tcp is-listening then: {}", socket.is_listening());
}

fn connecting(network: &Network, socket: &TcpSocket, port: u16) {
    let again = socket.start_connect(network, local(port));
    case("tcp connect while connecting", again);
    case("tcp bind while connecting", socket.start_bind(network, ANY));
    case("tcp listen while connecting", socket.start_listen());
    succeeds("tcp local-address while connecting", socket.local_address());
    succeeds(
        "tcp remote-address while connecting",
        socket.remote_address(),
    );
    case(
        "tcp shutdown while connecting",
        socket.shutdown(ShutdownType::Both),
    );
}

fn refused_tcp(network: &Network, gone: u16) {
    let Ok(socket) = create_tcp_socket(IpAddressFamily::Ipv4) else {
        return;
    };
    case(
        "tcp connect to nobody",
        socket.start_connect(network, local(gone)),
    );
    socket.subscribe().block();
    succeeds("tcp finish-connect to nobody", socket.finish_connect());
    succeeds(
        "tcp finish-connect to nobody twice",
        socket.finish_connect(),
    );
    case(
        "tcp connect after that",
        socket.start_connect(network, local(gone)),
    );
    succeeds("tcp local-address after that", socket.local_address());
    succeeds("tcp remote-address after that", socket.remote_address());
}

fn listening_tcp(network: &Network, port: u16) {
    let Ok(socket) = create_tcp_socket(IpAddressFamily::Ipv4) else {
        return;
    };
    // One is enough for all that a socket does.
    let something = socket.subscribe();
    case("tcp hop-limit of a listener", socket.set_hop_limit(9));
    case("tcp bind", socket.start_bind(network, local(port)));
    case("tcp bind while binding", socket.start_bind(network, local(port)));
    case("tcp listen while binding", socket.start_listen());
    case("tcp finish-bind", socket.finish_bind());
    case("tcp finish-bind twice", socket.finish_bind());
    case("tcp bind when bound", socket.start_bind(network, local(port)));
    succeeds("tcp accept when bound", socket.accept());
    println!(
        "tcp local-address when bound is right: {}",
        is(&socket.local_address(), local(port))
    );
    succeeds("tcp remote-address when bound", socket.remote_address());
    println!("tcp is-listening when bound: {}", socket.is_listening());
    case("tcp backlog of 0 when bound", socket.set_listen_backlog_size(0));
    case("tcp backlog of 5 when bound", socket.set_listen_backlog_size(5));
    case("tcp start-listen", socket.start_listen());
    case("tcp bind before it listens", socket.start_bind(network, local(port)));
    something.block();
    case("tcp finish-listen", socket.finish_listen());
    case("tcp finish-listen twice", socket.finish_listen());
    println!("tcp is-listening when it listens: {}", socket.is_listening());
    case("tcp listen when it listens", socket.start_listen());
    case("tcp bind when it listens", socket.start_bind(network, local(port)));
    let to_itself = socket.start_connect(network, local(port));
    case("tcp connect when it listens", to_itself);
    succeeds("tcp finish-connect when it listens", socket.finish_connect());
    succeeds("tcp remote-address when it listens", socket.remote_address());
    case(
        "tcp shutdown when it listens",
        socket.shutdown(ShutdownType::Both),
    );
    succeeds("tcp accept of nobody", socket.accept());
    println!("tcp is ready for nobody: {}", something.ready());
    accepted_tcp(network, &socket, port);
}

fn accepted_tcp(network: &Network, listener: &TcpSocket, port: u16) {
    let Ok(client) = create_tcp_socket(IpAddressFamily::Ipv4) else {
        return;
    };
    case(
        "tcp connect to the listener",
        client.start_connect(network, local(port)),
    );
    client.subscribe().block();
    let Some(of_client) = succeeds("tcp finish-connect to it", client.finish_connect()) else {
        return;
    };
    listener.subscribe().block();
    let Some((accepted, input, output)) = succeeds("tcp accept", listener.accept()) else {
        return;
    };
    succeeds("tcp accept of nobody else", listener.accept());
    println!(
        "tcp addresses of an accepted socket are right: {} {}",
        is(&accepted.local_address(), local(port)),
        client
            .local_address()
            .is_ok_and(|address| is(&accepted.remote_address(), address))
    );
    println!("tcp family of an accepted socket: {:?}", accepted.address_family());
    println!("tcp is-listening of an accepted socket: {}", accepted.is_listening());
    case("tcp hop-limit of an accepted socket", accepted.hop_limit());
    case("tcp listen with an accepted socket", accepted.start_listen());
    succeeds("tcp accept from an accepted socket", accepted.accept());
    case("tcp bind an accepted socket", accepted.start_bind(network, ANY));
    println!("tcp write to it: {:?}", of_client.1.blocking_write_and_flush(b"ping"));
    println!("tcp read from it: {:?}", input.blocking_read(100));
    println!("tcp write from it: {:?}", output.blocking_write_and_flush(b"pong"));
    println!("tcp read of that: {:?}", of_client.0.blocking_read(100));
    case("tcp shutdown of it", accepted.shutdown(ShutdownType::Send));
    println!("tcp read then of that: {}", of_client.0.blocking_read(100).is_ok());
}

fn new_udp(network: &Network) {
    let Some(socket) = succeeds("udp create", create_udp_socket(IpAddressFamily::Ipv4)) else {
        return;
    };
    println!("udp family: {:?}", socket.address_family());
    case("udp finish-bind at first", socket.finish_bind());
    succeeds("udp stream at first", socket.stream(None));
    succeeds("udp local-address at first", socket.local_address());
    succeeds("udp remote-address at first", socket.remote_address());
    case("udp hop-limit at first", socket.unicast_hop_limit());
    case("udp hop-limit of 0", socket.set_unicast_hop_limit(0));
    case("udp hop-limit of 9", socket.set_unicast_hop_limit(9));
    case("udp hop-limit then", socket.unicast_hop_limit());
    case("udp receive-buffer of 0", socket.set_receive_buffer_size(0));
    case("udp send-buffer of 0", socket.set_send_buffer_size(0));
    case(
        "udp receive-buffer of all",
        socket.set_receive_buffer_size(u64::MAX),
    );
    case("udp send-buffer of 1", socket.set_send_buffer_size(1));
    println!("udp subscribe at first: {}", socket.subscribe().ready());
    case(
        "udp bind to the other family",
        socket.start_bind(network, ANY6),
    );
    let absent = socket.start_bind(network, v4((192, 0, 2, 1), 0));
    case(
        "udp bind to what is not here",
        absent.and_then(|()| finish(&socket)),
    );
    if let Ok(socket) = create_udp_socket(IpAddressFamily::Ipv6) {
        case(
            "udp bind to a mapped address",
            socket.start_bind(network, mapped(0)),
        );
    }
}

fn finish(socket: &UdpSocket) -> Result<(), ErrorCode> {
    socket.subscribe().block();
    socket.finish_bind()
}

fn bound_udp(network: &Network, port: u16) {
    let Ok(socket) = create_udp_socket(IpAddressFamily::Ipv4) else {
        return;
    };
    case("udp bind", socket.start_bind(network, ANY));
    case("udp bind while binding", socket.start_bind(network, ANY));
    case("udp finish-bind", finish(&socket));
    case("udp finish-bind twice", socket.finish_bind());
    case("udp bind when bound", socket.start_bind(network, ANY));
    succeeds("udp local-address when bound", socket.local_address());
    succeeds("udp remote-address when bound", socket.remote_address());
    case("udp hop-limit when bound", socket.set_unicast_hop_limit(8));
    case("udp hop-limit when bound then", socket.unicast_hop_limit());
    for (what, to) in [
        ("port 0", local(0)),
        ("any", v4((0, 0, 0, 0), 80)),
        ("the other family", v6((0, 0, 0, 0, 0, 0, 0, 1), 80)),
    ] {
        succeeds(&format!("udp stream to {what}"), socket.stream(Some(to)));
    }
    let Some((incoming, outgoing)) = succeeds("udp stream to all", socket.stream(None)) else {
        return;
    };
    succeeds(
        "udp remote-address of a stream to all",
        socket.remote_address(),
    );
    let send = |datagrams: &[(&[u8], Option<IpSocketAddress>)]| {
        let permitted = outgoing.check_send()?;
        assert!(permitted > 0);
        let datagram = |(data, remote_address): &(&[u8], _)| OutgoingDatagram {
            data: data.to_vec(),
            remote_address: *remote_address,
        };
        outgoing.send(&datagrams.iter().map(datagram).collect::<Vec<_>>())
    };
    case("udp send of nothing", send(&[]));
    case("udp send to nowhere", send(&[(b"a", None)]));
    case("udp send to port 0", send(&[(b"a", Some(local(0)))]));
    case(
        "udp send to any",
        send(&[(b"a", Some(v4((0, 0, 0, 0), 80)))]),
    );
    let other = v6((0, 0, 0, 0, 0, 0, 0, 1), port);
    case("udp send to the other family", send(&[(b"a", Some(other))]));
    let large = vec![0; 65_508];
    case("udp send of too much", send(&[(&large, Some(local(port)))]));
    let to = Some(local(port));
    case(
        "udp send of two, and one to nowhere",
        send(&[(b"a", to), (b"", to), (b"c", None)]),
    );
    case(
        "udp receive of none",
        incoming.receive(0).map(|all| all.len()),
    );
    let mut got = Vec::new();
    while got.len() < 2 {
        incoming.subscribe().block();
        for datagram in incoming.receive(1).unwrap_or_default() {
            got.push((datagram.data, is(&Ok(datagram.remote_address), local(port))));
        }
    }
    println!("udp received: {got:?}");
    case(
        "udp receive of what is not there",
        incoming.receive(16).map(|all| all.len()),
    );
}

fn peer_of_udp(network: &Network, port: u16, unheard: u16) {
    let Ok(socket) = create_udp_socket(IpAddressFamily::Ipv4) else {
        return;
    };
    let bound = socket
        .start_bind(network, local(0))
        .and_then(|()| finish(&socket));
    case("udp bind to this machine", bound);
    let before = socket.local_address();
    for to in [port, unheard] {
        let Some((incoming, outgoing)) =
            succeeds("udp stream to one", socket.stream(Some(local(to))))
        else {
            return;
        };
        let remote = socket.remote_address();
        println!("udp remote-address is right: {}", is(&remote, local(to)));
        let send = |remote_address| {
            outgoing.subscribe().block();
            let permitted = outgoing.check_send()?;
            assert!(permitted > 0);
            let data = b"a".to_vec();
            outgoing.send(&[OutgoingDatagram {
                data,
                remote_address,
            }])
        };
        case("udp send to another", send(Some(local(to ^ 1))));
        case("udp send to the one", send(Some(local(to))));
        incoming.subscribe().block();
        case(
            "udp receive from the one",
            incoming.receive(16).map(|all| all.len()),
        );
        case("udp send to the one without its name", send(None));
        incoming.subscribe().block();
        case(
            "udp receive from the one then",
            incoming.receive(16).map(|all| all.len()),
        );
    }
    let streams = succeeds("udp stream to all again", socket.stream(None));
    succeeds("udp remote-address then", socket.remote_address());
    let after = socket.local_address();
    println!("udp has a port then: {}", before.is_ok() && after.is_ok());
    drop(streams);
}

fn names(network: &Network) {
    for name in [
        "127.0.0.1",
        "::1",
        "[::1]",
        "",
        "a b",
        "a..b",
        "1.2.3",
        "nobody.invalid",
    ] {
        let Some(stream) = succeeds(
            &format!("look-up of {name:?}"),
            resolve_addresses(network, name),
        ) else {
            continue;
        };
        loop {
            stream.subscribe().block();
            match case(
                &format!("address of {name:?}"),
                stream.resolve_next_address(),
            ) {
                Some(Some(_)) => {}
                _ => break,
            }
        }
    }
}

/// Whether an address is this one.
fn is(answer: &Result<IpSocketAddress, ErrorCode>, expected: IpSocketAddress) -> bool {
    format!("{answer:?}") == format!("{:?}", Ok::<_, ErrorCode>(expected))
}
