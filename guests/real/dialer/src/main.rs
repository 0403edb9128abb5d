//! Connects to a host over TCP, accepts connections, and exchanges datagrams with a host, with the standard library alone.
//!
//! - `dialer ask HOST:PORT`: sends standard input, says that there is no more, and prints what comes.
//! - `dialer addresses HOST:PORT`: prints the addresses of both sides, as this side sees them.
//! - `dialer many N HOST:PORT`: prints how many of `N` connections can be had at a time.
//! - `dialer shout TEXT HOST:PORT`: sends the text and exits, without closing anything.
//! - `dialer listen ADDRESS`: begins to listen.
//! - `dialer serve N ADDRESS`: sends back, in reverse, what each of `N` connections sent, and prints whose it was.
//! - `dialer hold N ADDRESS`: has `N` connections at a time, and another one when the first has ended.
//! - `dialer query HOST:PORT`: sends each line of standard input as a datagram, and prints the answer to each.
//! - `dialer cast TEXT HOST:PORT`: sends the text as a datagram and exits, without closing anything.
//! - `dialer burst N BYTES HOST:PORT`: sends `N` datagrams of this size, and prints how many came back.
//! - `dialer bind ADDRESS`: prints the address of a socket for datagrams.

use std::env;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["ask", to] => ask(to),
        ["addresses", to] => addresses(to),
        ["many", number, to] => many(number.parse().unwrap_or(0), to),
        ["shout", text, to] => shout(text, to),
        ["listen", address] => TcpListener::bind(address).map(drop),
        ["serve", number, address] => serve(number.parse().unwrap_or(0), address),
        ["hold", number, address] => hold(number.parse().unwrap_or(0), address),
        ["query", to] => query(to),
        ["cast", text, to] => cast(text, to),
        ["burst", number, size, to] => {
            burst(number.parse().unwrap_or(0), size.parse().unwrap_or(0), to)
        }
        ["bind", address] => {
            UdpSocket::bind(address).and_then(|socket| Ok(println!("{}", socket.local_addr()?)))
        }
        _ => {
            eprintln!(
                "usage: dialer ask|addresses|many N|shout TEXT|listen|serve N|hold N|query|cast TEXT|burst N BYTES|bind \
                 HOST:PORT"
            );
            return ExitCode::from(64);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{:?}: {error}", error.kind());
            ExitCode::FAILURE
        }
    }
}

fn ask(to: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    io::copy(&mut io::stdin(), &mut stream)?;
    stream.shutdown(Shutdown::Write)?;
    io::copy(&mut stream, &mut io::stdout())?;
    Ok(())
}

fn addresses(to: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    println!("{} {}", stream.local_addr()?, stream.peer_addr()?);
    stream.set_ttl(9).or_else(|error| match error.kind() {
        // What a connection was made with may stay.
        io::ErrorKind::Unsupported => Ok(()),
        _ => Err(error),
    })?;
    stream.shutdown(Shutdown::Both)?;
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        other => other.map(drop),
    }
}

fn many(number: usize, to: &str) -> io::Result<()> {
    let mut streams = Vec::new();
    while streams.len() < number {
        match TcpStream::connect(to) {
            Ok(stream) => streams.push(stream),
            Err(error) => {
                println!("{} and no more: {error}", streams.len());
                return Ok(());
            }
        }
    }
    println!("{}", streams.len());
    Ok(())
}

fn shout(text: &str, to: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    stream.write_all(text.as_bytes())?;
    std::process::exit(0)
}

/// Listens, and says so when it does.
fn listen(address: &str) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    println!("listens at {}", listener.local_addr()?);
    Ok(listener)
}

fn serve(number: usize, address: &str) -> io::Result<()> {
    let listener = listen(address)?;
    for _ in 0..number {
        let (mut stream, peer) = listener.accept()?;
        assert_eq!(stream.peer_addr()?, peer);
        assert_eq!(stream.local_addr()?, listener.local_addr()?);
        let mut all = Vec::new();
        stream.read_to_end(&mut all)?;
        all.reverse();
        stream.write_all(&all)?;
        println!("{peer} sent {} bytes", all.len());
    }
    Ok(())
}

fn hold(number: usize, address: &str) -> io::Result<()> {
    let listener = listen(address)?;
    let mut streams = Vec::new();
    while streams.len() < number {
        streams.push(listener.accept()?.0);
    }
    println!("{number}");
    if let Some(mut first) = streams.pop() {
        let _ = first.read(&mut [0]);
    }
    listener.accept()?;
    println!("and another one");
    Ok(())
}

/// A socket for datagrams of the family that an address is of, or IPv4 for a name.
fn socket(to: &str) -> io::Result<UdpSocket> {
    match to.starts_with('[') {
        true => UdpSocket::bind("[::]:0"),
        false => UdpSocket::bind("0.0.0.0:0"),
    }
}

fn query(to: &str) -> io::Result<()> {
    let socket = socket(to)?;
    socket.connect(to)?;
    let peer = socket.peer_addr()?;
    let mut answer = vec![0; 1 << 16];
    for line in io::stdin().lines() {
        socket.send(line?.as_bytes())?;
        let (size, from) = socket.recv_from(&mut answer)?;
        assert_eq!(from, peer);
        println!("{}", String::from_utf8_lossy(&answer[..size]));
    }
    Ok(())
}

fn cast(text: &str, to: &str) -> io::Result<()> {
    socket(to)?.send_to(text.as_bytes(), to)?;
    std::process::exit(0)
}

fn burst(number: usize, size: usize, to: &str) -> io::Result<()> {
    let socket = socket(to)?;
    let sent = vec![7; size];
    let mut got = vec![0; 1 << 16];
    let mut answers = 0;
    for _ in 0..number {
        socket.send_to(&sent, to)?;
        let (size, _) = socket.recv_from(&mut got)?;
        answers += usize::from(got[..size] == sent);
    }
    println!("{answers}");
    Ok(())
}
