//! A trace as Chrome's trace-event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing
//! read: a track per server, a counter for its budget, and instants for what happens to it.
//!
//! The format gives times in microseconds; three decimals keep the nanoseconds.

use alloc::string::String;
use core::fmt::{Error, Write};

use super::{Cause, Event, ServerIndex, Trace};
use crate::Nanos;

/// The process that all tracks are shown under.
const PROCESS: u32 = 1;
/// The track of what concerns no server; those of servers follow.
const PROCESSOR: usize = 0;

/// Writes `trace` as one JSON document. `names` are those of the servers; a server without one is
/// shown by its number.
///
/// # Errors
/// Those of `out`.
pub fn write_chrome_trace(trace: &Trace, names: &[&str], out: &mut dyn Write) -> Result<(), Error> {
    let mut tracks = Tracks {
        out,
        names,
        trace,
        first: true,
    };
    tracks
        .out
        .write_str("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    tracks.name("process_name", PROCESSOR, "Leasehold, in virtual time")?;
    tracks.name("thread_name", PROCESSOR, "processor")?;
    for server in 0..trace.servers().len() {
        let name = tracks.server_name(server);
        tracks.name("thread_name", server + 1, &name)?;
    }
    for event in trace.events() {
        tracks.event(event)?;
    }
    write!(
        tracks.out,
        "\n],\"otherData\":{{\"dropped\":{}}}}}\n",
        trace.dropped()
    )
}

struct Tracks<'a> {
    out: &'a mut dyn Write,
    names: &'a [&'a str],
    trace: &'a Trace,
    first: bool,
}

impl Tracks<'_> {
    fn server_name(&self, server: usize) -> String {
        let mut text = String::new();
        match self.names.get(server) {
            Some(name) => escape(name, &mut text),
            // Writing to a string does not fail.
            None => drop(write!(text, "server {server}")),
        }
        text
    }

    fn event(&mut self, event: &Event) -> Result<(), Error> {
        let track = |task: super::TaskIndex| self.trace.tasks()[task.get()].get() + 1;
        match *event {
            Event::Ran { task, from, to } => {
                let server = track(task) - 1;
                let name = self.server_name(server);
                let task_number = task.get();
                self.slice(&name, server + 1, from, to)?;
                write!(self.out, ",\"args\":{{\"task\":{task_number}}}}}")
            }
            Event::Overhead {
                task,
                cause,
                from,
                to,
            } => {
                let track = task.map_or(PROCESSOR, track);
                self.slice(cause_name(cause), track, from, to)?;
                self.out.write_str(",\"cname\":\"terrible\"}")
            }
            Event::TimerInterrupt { at, switched, .. } => {
                let name = match switched {
                    true => "timer interrupt",
                    false => "unnecessary timer interrupt",
                };
                self.instant(name, PROCESSOR, at)
            }
            Event::Activated { task, planned, .. } => {
                let track = track(task);
                self.instant("activation", track, planned)
            }
            Event::Missed { task, due, .. } => {
                let track = track(task);
                self.instant("missed", track, due)
            }
            Event::Preempted { task, at } => {
                let track = track(task);
                self.instant("preempted", track, at)
            }
            Event::Depleted { server, at } => self.instant("depleted", server.get() + 1, at),
            Event::Budget {
                server,
                at,
                left,
                replenished,
            } => {
                self.budget(server, at, left)?;
                if replenished {
                    self.instant("replenished", server.get() + 1, at)?;
                }
                Ok(())
            }
            Event::Decided { .. } | Event::Completed { .. } | Event::Stopped { .. } => Ok(()),
        }
    }

    /// Begins an entry, which `kind`, `name` and the place in time and space begin.
    fn entry(&mut self, kind: char, name: &str, track: usize, at: Nanos) -> Result<(), Error> {
        let comma = if self.first { "" } else { "," };
        self.first = false;
        write!(
            self.out,
            "{comma}\n{{\"ph\":\"{kind}\",\"pid\":{PROCESS},\"tid\":{track},\"name\":\"{name}\",\"ts\":{}",
            Microseconds(at)
        )
    }

    fn slice(&mut self, name: &str, track: usize, from: Nanos, to: Nanos) -> Result<(), Error> {
        self.entry('X', name, track, from)?;
        write!(self.out, ",\"dur\":{}", Microseconds(to - from))
    }

    fn instant(&mut self, name: &str, track: usize, at: Nanos) -> Result<(), Error> {
        self.entry('i', name, track, at)?;
        self.out.write_str(",\"s\":\"t\"}")
    }

    fn budget(&mut self, server: ServerIndex, at: Nanos, left: Nanos) -> Result<(), Error> {
        let mut name = String::from("budget of ");
        name.push_str(&self.server_name(server.get()));
        self.entry('C', &name, server.get() + 1, at)?;
        write!(self.out, ",\"args\":{{\"µs\":{}}}}}", Microseconds(left))
    }

    /// Names a track, or the process.
    fn name(&mut self, what: &str, track: usize, name: &str) -> Result<(), Error> {
        self.entry('M', what, track, 0)?;
        write!(self.out, ",\"args\":{{\"name\":\"{name}\"}}}}")?;
        if what == "thread_name" {
            self.entry('M', "thread_sort_index", track, 0)?;
            write!(self.out, ",\"args\":{{\"sort_index\":{track}}}}}")?;
        }
        Ok(())
    }
}

/// Returns the name of an overhead in a trace.
fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Interrupt => "interrupt",
        Cause::Call => "call",
        Cause::Decision => "scheduler",
        Cause::Refill => "cache refill",
    }
}

/// Nanoseconds, shown as microseconds with three decimals.
struct Microseconds(Nanos);

impl core::fmt::Display for Microseconds {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Appends `text` as the inside of a JSON string.
fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            // Writing to a string does not fail.
            ' '.. => out.push(character),
            control => drop(write!(out, "\\u{:04x}", u32::from(control))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Microseconds, escape};
    use alloc::string::{String, ToString};

    #[test]
    fn no_nanosecond_is_lost() {
        assert_eq!(Microseconds(1_234_567).to_string(), "1234.567");
        assert_eq!(Microseconds(5).to_string(), "0.005");
    }

    #[test]
    fn names_cannot_break_the_document() {
        let mut text = String::new();
        escape("a\"b\\c\n", &mut text);
        assert_eq!(text, "a\\\"b\\\\c\\u000a");
    }
}
