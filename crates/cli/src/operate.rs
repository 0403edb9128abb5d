//! What operators do with a node: clients of its control socket.

pub(crate) mod page;
pub(crate) mod socket;

use crate::exit::Failure;
use crate::output::{plain, say, tell};
use crate::report::nanos;
use crate::up::table::{Column, lines};
use leasehold_cell::escaped_json;
use leasehold_lease::{Nanoseconds, TenantSpec};
use leasehold_node::view::{
    End, ErrorKind, Event, ExitKind, LogLine, LogStream, Reloaded, Snapshot, State, Tenant, Tenants,
};
use leasehold_node::{Client, ClientError};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How often `top` asks.
const REFRESH: Duration = Duration::from_secs(1);

/// The node.
#[derive(Debug, clap::Args)]
pub(crate) struct Node {
    /// The node's control socket [default: $XDG_RUNTIME_DIR/leasehold/node.sock, or node.sock in the
    /// state directory].
    #[arg(long, value_name = "PATH", env = "LEASEHOLD_SOCKET", hide_env = true)]
    socket: Option<PathBuf>,

    /// Print the node's answer, which is JSON.
    #[arg(long)]
    json: bool,
}

impl Node {
    fn client(&self) -> Result<Client, Failure> {
        let path = self.socket.clone().or_else(socket::default);
        let path = path.ok_or_else(|| {
            Failure::Configuration("--socket: found no path, and no directory for the one that is there by default; allowed: PATH".to_owned())
        })?;
        Ok(Client::new(&path))
    }

    /// The answer to a request, which is printed if JSON was asked for.
    fn ask<T: serde::de::DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
    ) -> Result<Option<T>, Failure> {
        let answer = self.told(method, path)?;
        Ok((!self.json).then_some(answer))
    }

    /// The answer to a request, which is printed as well if JSON was asked for.
    fn told<T: serde::de::DeserializeOwned>(&self, method: &str, path: &str) -> Result<T, Failure> {
        let (_, text) = self.client()?.send(method, path, None).map_err(failed)?;
        if self.json {
            tell_json(&text);
        }
        let strange = |error: serde_json::Error| Failure::Host(error.into());
        serde_json::from_str(&text).map_err(strange)
    }
}

/// Prints JSON of a node, in one line, which may have text of guests: without what a terminal would obey.
fn tell_json(json: &str) {
    tell!("{}", escaped_json(json.trim_end()));
}

fn failed(error: ClientError) -> Failure {
    let message = error.to_string();
    match error {
        ClientError::Unreachable { .. } => Failure::Missing(message),
        ClientError::Refused { kind, .. } => match kind {
            ErrorKind::NotFound | ErrorKind::MissingProgram => Failure::Missing(message),
            ErrorKind::BadProgram => Failure::Program(message),
            ErrorKind::BadLease | ErrorKind::BadRequest => Failure::Configuration(message),
            ErrorKind::Refused | ErrorKind::Conflict | ErrorKind::Unauthorized => {
                Failure::Refused(message)
            }
            ErrorKind::Busy | ErrorKind::Ending | ErrorKind::Internal => {
                Failure::Host(anyhow::anyhow!(message))
            }
        },
        ClientError::Lost(_) | ClientError::Strange(_) => Failure::Host(anyhow::anyhow!(message)),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ps {
    #[command(flatten)]
    node: Node,
}

const fn column(title: &'static str, goes: u8) -> Column {
    Column { title, goes }
}

const COLUMNS: [Column; 11] = [
    column("tenant", 0),
    column("state", 0),
    column("restarts", 5),
    column("reserved", 4),
    column("used", 3),
    column("missed", 6),
    column("charged", 0),
    column("budget", 2),
    column("memory", 1),
    column("requests", 7),
    column("p99", 8),
];

/// The tenants as a table, as wide as it is or no wider than `width`.
fn table(tenants: &[Tenant], width: Option<usize>) -> String {
    let none = || "–".to_owned();
    let row = |tenant: &Tenant| {
        let http = tenant.http.as_ref();
        vec![
            tenant.name.clone(),
            state(tenant),
            tenant.restarts.to_string(),
            tenant.cpu.as_ref().map_or_else(
                || "background".to_owned(),
                |cpu| format!("{} / {}", nanos(cpu.budget_ns), nanos(cpu.period_ns)),
            ),
            tenant
                .processor
                .as_ref()
                .map_or_else(none, |processor| nanos(processor.supply.used_ns)),
            tenant
                .processor
                .as_ref()
                .map_or_else(none, |processor| processor.supply.misses.to_string()),
            tenant.reclaim.charged_ns.map_or_else(none, nanos),
            nanos(tenant.reclaim.budget_ns),
            tenant.memory.used_bytes.map_or_else(none, |bytes| {
                format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
            }),
            http.map_or_else(none, |http| http.outcomes.values().sum::<u64>().to_string()),
            http.filter(|http| http.latency.count > 0)
                .map_or_else(none, |http| nanos(http.latency.p99_ns)),
        ]
    };
    let rows: Vec<_> = tenants.iter().map(row).collect();
    lines(&COLUMNS, &rows, width).join("\n")
}

fn state(tenant: &Tenant) -> String {
    match (tenant.state, &tenant.exit) {
        (State::Ended, Some(exit)) => match (exit.kind, exit.code) {
            (ExitKind::Code, Some(code)) => format!("exit {code}"),
            (ExitKind::Killed, _) => "killed".to_owned(),
            (ExitKind::Trap, _) => "trapped".to_owned(),
            (ExitKind::Lease, _) => "out of lease".to_owned(),
            _ => "ended".to_owned(),
        },
        (state, _) => state.name().to_owned(),
    }
}

impl Ps {
    pub(crate) fn ps(&self) -> Result<ExitCode, Failure> {
        if let Some(Tenants { tenants }) = self.node.ask("GET", "/v1/tenants")? {
            tell!("{}", table(&tenants, None));
        }
        Ok(ExitCode::SUCCESS)
    }

    pub(crate) fn top(&self) -> Result<ExitCode, Failure> {
        let is_screen = std::io::stdout().is_terminal();
        loop {
            let Some(snapshot) = self.node.ask::<Snapshot>("GET", "/v1/snapshot")? else {
                return Ok(ExitCode::SUCCESS);
            };
            let node = &snapshot.node;
            let head = format!(
                "up {:.0} s, {} tenants, {:.1} % of the processor reserved, {} ends",
                node.uptime_ns as f64 / 1e9,
                snapshot.tenants.len(),
                node.utilization * 100.0,
                snapshot.ends.len()
            );
            if !is_screen {
                tell!("{head}\n\n{}", table(&snapshot.tenants, None));
                return Ok(ExitCode::SUCCESS);
            }
            let size = terminal_size::terminal_size();
            let (width, height) = size.map_or((80, 24), |(width, height)| (width.0, height.0));
            let text = format!("{head}\n\n{}", table(&snapshot.tenants, Some(width.into())));
            let shown: Vec<String> = text
                .lines()
                .take(usize::from(height).saturating_sub(1))
                .map(|line| line.chars().take(width.into()).collect())
                .collect();
            // To the corner, and everything below away.
            tell!("\x1b[H\x1b[2J{}", shown.join("\n"));
            std::thread::sleep(REFRESH);
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// The name of the tenant.
    #[arg(value_name = "TENANT", value_parser = TenantSpec::parse_name)]
    tenant: String,

    #[command(flatten)]
    node: Node,
}

impl One {
    pub(crate) fn change(&self, method: &str, action: &str) -> Result<ExitCode, Failure> {
        let path = format!("/v1/tenants/{}{action}", self.tenant);
        if let Some(tenant) = self.node.ask::<Tenant>(method, &path)? {
            tell!("{}: {}", tenant.name, state(&tenant));
        }
        Ok(ExitCode::SUCCESS)
    }

    pub(crate) fn delete(&self) -> Result<ExitCode, Failure> {
        let path = format!("/v1/tenants/{}", self.tenant);
        let (status, _) = self
            .node
            .client()?
            .send("DELETE", &path, None)
            .map_err(failed)?;
        if !self.node.json {
            let said = if status == 204 {
                "there is none"
            } else {
                "deleted"
            };
            tell!("{}: {said}", self.tenant);
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold kill shop
  leasehold kill shop --json

It returns when everything that the tenant had is taken back; of a tenant that has ended already it
prints that end. The node still knows the tenant: `leasehold start` starts it again, and `leasehold
delete` forgets it.

Exit codes: 0; 1 the end took longer than its bound; 66 no such tenant, or no node
answers; 77 the tenant has never run.")]
pub(crate) struct Kill {
    /// The name of the tenant.
    #[arg(value_name = "TENANT", value_parser = TenantSpec::parse_name)]
    tenant: String,

    #[command(flatten)]
    node: Node,
}

/// The exit code of a kill, however its end is printed.
fn code_of(end: &End) -> ExitCode {
    ExitCode::from(u8::from(end.within_bound == Some(false)))
}

impl Kill {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let path = format!("/v1/tenants/{}/kill", self.tenant);
        let end = self.node.told::<End>("POST", &path)?;
        if !self.node.json {
            let bound = end.bound_ns.map_or_else(|| "none".to_owned(), nanos);
            tell!(
                "{}: everything was returned {} after the kill; bound {bound}; {} of the processor, {} predicted",
                end.tenant,
                nanos(end.wall_ns),
                nanos(end.measured_ns),
                nanos(end.predicted_ns),
            );
        }
        Ok(code_of(&end))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold drain shop
  leasehold drain shop --grace 60s

It returns at once; `leasehold ps` shows when the tenant has ended. The node still knows the tenant:
`leasehold start` starts it again.
TIME is a number and a unit: 500ms, 60s.

Exit codes: 0; 66 no such tenant, or no node answers.")]
pub(crate) struct Drain {
    #[command(flatten)]
    one: One,

    /// How long requests under way may take to finish.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    grace: Nanoseconds,
}

impl Drain {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        self.one
            .change("POST", &format!("/drain?grace={}", self.grace))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold reload --dry-run
  leasehold reload

The tenants become those of the file, without a lost request. The whole file is checked and admitted
before anything changes, and its new programs are loaded.

Exit codes: 0; 65 a program cannot run here; 66 a program is missing, or no node answers; 77
refused; 78 the lease file is wrong. With a code other than 0 nothing has changed.")]
pub(crate) struct Reload {
    /// Check, admit and load, and print what would change; change nothing.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    node: Node,
}

impl Reload {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let path = match self.dry_run {
            true => "/v1/reload?dry_run=true",
            false => "/v1/reload",
        };
        if let Some(reloaded) = self.node.ask::<Reloaded>("POST", path)? {
            tell!("{}", reloaded.to_string().replace("; ", "\n"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold logs shop
  leasehold logs shop --follow --lines 10

Each line begins with the number of the request that it was written for, or `-`. Standard output of
the tenant goes to standard output, the rest to standard error. The last 1,000 lines are kept.

Exit codes: 0; 66 no such tenant, or no node answers.")]
pub(crate) struct LogsOf {
    #[command(flatten)]
    one: One,

    /// Go on with the lines that are written later.
    #[arg(long, short)]
    follow: bool,

    /// How many of the last lines to print first.
    #[arg(long, value_name = "N", default_value_t = 100)]
    lines: usize,
}

impl LogsOf {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let One { tenant, node } = &self.one;
        let path = format!(
            "/v1/tenants/{tenant}/logs?follow={}&lines={}",
            self.follow, self.lines
        );
        for line in node.client()?.lines(&path).map_err(failed)? {
            let line = line.map_err(|error| failed(error.into()))?;
            match serde_json::from_str::<LogLine>(&line) {
                Ok(read) if !node.json => match read.stream {
                    LogStream::Stdout => tell!("{}", guest_line(&read)),
                    LogStream::Stderr => say!("{}", guest_line(&read)),
                    LogStream::Host => say!("leasehold: {}", plain(&read.line)),
                },
                _ => tell_json(&line),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A line of a guest after the number of its request, or `-`. Every line has one or the other, so that none can
/// be taken for a line of another request, or of the host.
fn guest_line(line: &LogLine) -> String {
    let request = line.request.map(|request| request.to_string());
    let request = request.as_deref().unwrap_or("-");
    format!("{request} | {}", plain(&line.line))
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold events
  leasehold events --since 0 --json

It runs until the node ends, or until it is interrupted. The last 1,024 events are kept.

Exit codes: 0; 66 no node answers.")]
pub(crate) struct EventsOf {
    #[command(flatten)]
    node: Node,

    /// Begin after the event with this number, as far as events are kept [default: with the next].
    #[arg(long, value_name = "N")]
    since: Option<u64>,
}

impl EventsOf {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let since = self
            .since
            .map_or_else(String::new, |since| format!("?since={since}"));
        let path = format!("/v1/events{since}");
        for line in self.node.client()?.lines(&path).map_err(failed)? {
            let line = line.map_err(|error| failed(error.into()))?;
            let Some(data) = line.strip_prefix("data: ") else {
                continue;
            };
            match serde_json::from_str::<Event>(data) {
                Ok(event) if !self.node.json => tell!("{}", said(&event)),
                _ => tell_json(data),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn said(event: &Event) -> String {
    let mut text = format!("{} {} {}", event.seq, event.at, event.kind.name());
    if let Some(tenant) = &event.tenant {
        text += &format!(" {tenant}");
    }
    if let Some(end) = &event.end {
        text += &format!(": returned after {}", nanos(end.wall_ns));
        if let Some(bound) = end.bound_ns {
            text += &format!(", bound {}", nanos(bound));
        }
    }
    if let Some(missed) = event.missed {
        text += &format!(": {missed} events are no longer kept");
    }
    if let Some(message) = &event.message {
        text += &format!(": {}", plain(message));
    }
    text
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold put shop shop.toml

Paths in FILE are relative to the directory of the node's lease file. A tenant that runs is replaced
as by `leasehold replace`.

Exit codes: 0; 65 the program cannot run here; 66 FILE or the program is missing, or no node
answers; 77 refused; 78 the lease is wrong. With a code other than 0 nothing has changed.")]
pub(crate) struct Put {
    #[command(flatten)]
    one: One,

    /// A file with the table [tenant.TENANT], as in a lease file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Put {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let One { tenant, node } = &self.one;
        let text = std::fs::read_to_string(&self.file);
        let text =
            text.map_err(|error| Failure::Missing(format!("{}: {error}", self.file.display())))?;
        let path = format!("/v1/tenants/{tenant}");
        let body = Some(("application/toml", text.as_str()));
        let (status, answer) = node.client()?.send("PUT", &path, body).map_err(failed)?;
        match node.json {
            true => tell_json(&answer),
            false => tell!("{tenant}: {}", if status == 201 { "new" } else { "put" }),
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::{End, ExitCode, code_of};
    use serde_json::json;

    #[test]
    fn the_exit_code_of_a_kill_says_whether_its_bound_was_kept() {
        for (within, code) in [(json!(true), 0), (json!(null), 0), (json!(false), 1)] {
            let end: End = serde_json::from_value(json!({
                "tenant": "shop",
                "at": "2026-01-01T00:00:00Z",
                "exit": {"kind": "killed"},
                "predicted_ns": 1,
                "measured_ns": 1,
                "effect_ns": 1,
                "reusable_ns": 1,
                "wall_ns": 2,
                "bound_ns": 1,
                "within_bound": within,
                "budget_ns": 1,
                "calls_under_way": 0,
            }))
            .expect("an end");
            assert_eq!(code_of(&end), ExitCode::from(code), "{within}");
        }
    }
}
