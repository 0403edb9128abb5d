//! Requests over HTTP/1.1, from a few connections that stay open.
//!
//! In a *closed* loop each connection asks again as soon as it has its answer: how many answers there
//! are shows what the server can do. At a *fixed rate* requests are due at instants that do not depend on
//! answers, and a latency counts from the instant at which the request was due: a server that stalls
//! is late for every request of that time (no coordinated omission). Its clients stand for other machines, which share no
//! processor with the server: they have real-time priority where the host grants it, so that a latency holds no wait for
//! a processor but the server's.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::harness::affinity::leave_cells;
use crate::harness::priority::before_everybody;
use crate::harness::samples::Samples;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What to ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) path: &'a str,
}

/// The answers of a load.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Latencies of those with status 200, ns.
    pub(crate) latency_ns: Samples,
    /// Times of those with status 503 since they were asked, ns.
    pub(crate) refused_ns: Samples,
    /// Those with another status than 200.
    pub(crate) failed: u64,
    /// How many of these had which status but 503.
    pub(crate) others: BTreeMap<u16, u64>,
}

impl Answers {
    pub(crate) fn add(&mut self, other: &Self) {
        self.latency_ns.add(&other.latency_ns);
        self.refused_ns.add(&other.refused_ns);
        self.failed += other.failed;
        for (status, count) in &other.others {
            *self.others.entry(*status).or_default() += count;
        }
    }

    /// All of them.
    pub(crate) fn count(&self) -> u64 {
        self.latency_ns.count() + self.failed
    }
}

/// An open connection.
struct Connection {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
}

impl Connection {
    fn open(target: Target<'_>) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&target.address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let Target { address, path } = target;
        Ok(Self {
            stream: BufReader::new(stream),
            request: format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").into_bytes(),
        })
    }

    /// Makes one request and reads the whole answer; its status.
    fn ask(&mut self) -> Result<u16> {
        self.stream.get_mut().write_all(&self.request)?;
        let mut line = String::new();
        self.line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.with_context(|| format!("no status: {line:?}"))?;
        let mut length = Some(0);
        loop {
            self.line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.trim().parse::<u64>()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                length = None;
            }
        }
        match length {
            Some(length) => self.skip(length)?,
            None => loop {
                self.line(&mut line)?;
                let chunk = u64::from_str_radix(&line, 16)?;
                self.skip(chunk)?;
                self.line(&mut line)?;
                if chunk == 0 {
                    break;
                }
            },
        }
        Ok(status)
    }

    fn line(&mut self, line: &mut String) -> Result<()> {
        line.clear();
        ensure!(self.stream.read_line(line)? > 0, "the server hung up");
        line.truncate(line.trim_end().len());
        Ok(())
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        let mut body = (&mut self.stream).take(bytes);
        let read = std::io::copy(&mut body, &mut std::io::sink())?;
        ensure!(read == bytes, "the server hung up in a body");
        Ok(())
    }
}

/// The status of one request on a connection of its own.
pub(crate) fn once(target: Target<'_>) -> Result<u16> {
    Connection::open(target)?.ask()
}

/// Asks from so many connections, each again as soon as it has its answer, for `time`.
///
/// # Errors
/// When a connection fails.
pub(crate) fn closed(target: Target<'_>, connections: usize, time: Duration) -> Result<Answers> {
    let end = Instant::now() + time;
    each(connections, |_| {
        let mut connection = Connection::open(target)?;
        let mut answers = Answers::default();
        while Instant::now() < end {
            let asked = Instant::now();
            record(&mut answers, connection.ask()?, asked, asked);
        }
        Ok(answers)
    })
}

/// Asks `rate` times a second, from so many connections in turns, for `time`.
///
/// # Errors
/// When a connection fails.
pub(crate) fn at_rate(
    target: Target<'_>,
    connections: usize,
    rate: f64,
    time: Duration,
) -> Result<Answers> {
    if rate <= 0.0 {
        bail!("a rate of {rate} requests a second");
    }
    let began = Instant::now();
    let pause = connections as f64 / rate;
    let turns = (time.as_secs_f64() / pause) as u32;
    each(connections, |number| {
        // A host that refuses it shows latencies that are worse.
        before_everybody();
        let mut connection = Connection::open(target)?;
        let mut answers = Answers::default();
        for turn in 0..turns {
            let after = (f64::from(turn) + number as f64 / connections as f64) * pause;
            let due = began + Duration::from_secs_f64(after);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let asked = Instant::now();
            record(&mut answers, connection.ask()?, due, asked);
        }
        Ok(answers)
    })
}

fn record(answers: &mut Answers, status: u16, due: Instant, asked: Instant) {
    let since = |instant: Instant| u64::try_from(instant.elapsed().as_nanos()).unwrap_or(u64::MAX);
    if status == 200 {
        return answers.latency_ns.record(since(due));
    }
    answers.failed += 1;
    match status {
        503 => answers.refused_ns.record(since(asked)),
        _ => *answers.others.entry(status).or_default() += 1,
    }
}

/// What all connections, each on a thread of its own, were answered.
fn each(connections: usize, life: impl Fn(usize) -> Result<Answers> + Sync) -> Result<Answers> {
    let life = &life;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|number| {
                scope.spawn(move || {
                    leave_cells()?;
                    life(number)
                })
            })
            .collect();
        let mut all = Answers::default();
        for thread in threads {
            let answers = thread.join();
            let answers = answers.map_err(|_| anyhow::anyhow!("a connection panicked"))?;
            all.add(&answers?);
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::{Target, at_rate, closed};
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    /// A server that answers each request with the next of these texts, and then the first again.
    fn server(texts: &'static [&'static str], delay: Duration) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    let mut next = texts.iter().cycle();
                    let mut line = String::new();
                    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                        if line == "\r\n" {
                            thread::sleep(delay);
                            let text = next.next().expect("a text");
                            let _ = reader.get_mut().write_all(text.as_bytes());
                        }
                        line.clear();
                    }
                });
            }
        });
        address
    }

    #[test]
    fn answers_are_read_to_their_end_however_they_are_framed() {
        let address = server(
            &[
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
            ],
            Duration::ZERO,
        );
        let target = Target { address, path: "/" };
        let answers = closed(target, 2, Duration::from_millis(50)).expect("answers");
        let (good, failed) = (answers.latency_ns.count(), answers.failed);
        assert!(good >= 2 && failed >= 1, "{answers:?}");
        assert!(good.abs_diff(2 * failed) <= 4, "two of three: {answers:?}");
    }

    #[test]
    fn a_latency_counts_from_the_instant_at_which_the_request_was_due() {
        let delay = Duration::from_millis(40);
        let address = server(&["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"], delay);
        let target = Target { address, path: "/" };
        // Due every 10 ms on one connection, which takes 40 ms for each: the tenth waits for nine others.
        let answers = at_rate(target, 1, 100.0, Duration::from_millis(100)).expect("answers");
        assert_eq!(answers.count(), 10);
        let last = answers.latency_ns.max().expect("ten");
        assert!(last >= 300_000_000, "{last}");
    }
}
