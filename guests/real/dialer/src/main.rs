//! Connects to a host over TCP, with the standard library alone.
//!
//! - `dialer ask HOST:PORT`: sends standard input, says that there is no more, and prints what comes.
//! - `dialer addresses HOST:PORT`: prints the addresses of both sides, as this side sees them.
//! - `dialer many N HOST:PORT`: prints how many of `N` connections can be had at a time.
//! - `dialer shout TEXT HOST:PORT`: sends the text and exits, without closing anything.
//! - `dialer listen ADDRESS`: waits for connections.

use std::env;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
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
        _ => {
            eprintln!("usage: dialer ask|addresses|many N|shout TEXT|listen HOST:PORT");
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
