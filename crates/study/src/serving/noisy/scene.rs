//! A good tenant and hostile ones, on a node or as processes of `wasmtime serve`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::attack::{Attack, Client};
use crate::harness::affinity::leave_cells;
use crate::harness::child_command::bound;
use crate::serving::control::send;
use crate::serving::serve::load::{Answers, at_rate};
use crate::serving::serve::server::{Server, found, free_address};

/// Hostile tenants of each kind.
pub(super) const EACH: usize = 4;
/// Requests a second that the good tenant is asked for: on hosts whose caches are cold after each pause, one has taken up to
/// 0.9 ms of the cell, and its reservation is to carry all of them.
pub(super) const RATE: f64 = 150.0;
/// Connections that ask for them.
const CONNECTIONS: usize = 4;

/// Where the tenants run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Platform {
    /// One node.
    Leasehold,
    /// A process of `wasmtime serve` for each tenant.
    Wasmtime,
}

impl Platform {
    /// As rows name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Leasehold => "leasehold",
            Self::Wasmtime => "wasmtime",
        }
    }
}

/// What ends of hostile tenants took.
#[derive(Debug, Default)]
pub(super) struct Kills {
    pub(super) count: u64,
    /// Those that were later than their bound.
    pub(super) late: u64,
    /// The longest, over its bound.
    pub(super) longest: f64,
}

impl Kills {
    fn add(&mut self, wall_ns: u64, bound_ns: u64) {
        self.count += 1;
        self.late += u64::from(wall_ns > bound_ns);
        self.longest = self.longest.max(wall_ns as f64 / bound_ns.max(1) as f64);
    }
}

/// What a round has.
pub(super) struct Setting<'a> {
    pub(super) guests: &'a Path,
    pub(super) directory: &'a Path,
    pub(super) wasmtime: Option<&'a Path>,
}

impl Setting<'_> {
    /// The answers of the good tenant within `time`, alone or beside the hostile ones, which are killed and
    /// started again meanwhile.
    pub(super) fn round(
        &self,
        platform: Platform,
        is_crowded: bool,
        time: Duration,
        kills: &mut Kills,
    ) -> Result<Answers> {
        match platform {
            Platform::Leasehold => self.on_a_node(is_crowded, time, kills),
            Platform::Wasmtime => self.in_processes(is_crowded, time, kills),
        }
    }

    fn on_a_node(&self, is_crowded: bool, time: Duration, kills: &mut Kills) -> Result<Answers> {
        let address = free_address()?;
        let socket = self.directory.join("node.sock");
        let leases = self.directory.join("noisy.toml");
        fs::write(&leases, self.leases(address, is_crowded)?)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--log", "none", "--grace", "1ms", "--socket"]);
        command.arg(&socket).arg(leases);
        let server = Server::spawn(bound(&command)?, "node", address, self.directory)?;
        let crowd = match is_crowded {
            true => crowd(|_| Ok(address))?,
            false => Vec::new(),
        };
        let again = |tenant: &Hostile| -> Result<()> {
            let name = &tenant.client.host;
            let end = send(&socket, "POST", &format!("/v1/tenants/{name}/kill"), "")?;
            let number = |key: &str| {
                let value = end[key].as_u64();
                value.with_context(|| format!("no {key} in {end}"))
            };
            kills.add(number("wall_ns")?, number("bound_ns")?);
            send(&socket, "POST", &format!("/v1/tenants/{name}/start"), "").map(drop)
        };
        beside(&crowd, again, || ask(&server, time))
    }

    /// The good tenant has a fifth of a processor, the hostile ones none.
    fn leases(&self, address: SocketAddr, is_crowded: bool) -> Result<String> {
        let web = found(&self.guests.join("web.wasm"))?;
        let mut text = format!(
            "[listener.main]\naddress = \"{address}\"\n\n\
             [tenant.good]\ncomponent = {web:?}\nreclaim = {{ budget = \"100ms\" }}\n\
             cpu = {{ budget = \"4ms\", period = \"20ms\", priority = 100 }}\n\
             http = {{ routes = [\"/*\"] }}\n"
        );
        let guest = found(&self.guests.join("hostile-http.wasm"))?;
        for number in (0..Attack::ALL.len() * EACH).filter(|_| is_crowded) {
            let (name, files) = (name(number), self.files(number)?);
            text += &format!(
                "[tenant.{name}]\ncomponent = {guest:?}\nreclaim = {{ budget = \"50ms\" }}\n\
                 memory = {{ reserve = \"16MiB\" }}\n\
                 dirs = [{{ host = {files:?}, guest = \"/data\", write = true }}]\n\
                 http = {{ routes = [\"{name}/*\"], concurrency = 4, queue = 16, timeout = \"2s\" }}\n"
            );
        }
        Ok(text)
    }

    /// A directory of a hostile tenant.
    fn files(&self, number: usize) -> Result<PathBuf> {
        let files = self.directory.join(format!("files-{number}"));
        fs::create_dir_all(&files)?;
        Ok(files)
    }

    fn in_processes(&self, is_crowded: bool, time: Duration, kills: &mut Kills) -> Result<Answers> {
        let address = free_address()?;
        let server = self.peer("web.wasm", address, None)?;
        let server = Server::spawn(bound(&server)?, "good", address, self.directory)?;
        let mut processes = Vec::new();
        let crowd = match is_crowded {
            true => crowd(|number| {
                let address = free_address()?;
                let files = self.files(number)?;
                let command = self.peer("hostile-http.wasm", address, Some(&files))?;
                processes.push(Process::start(bound(&command)?)?);
                Ok(address)
            })?,
            false => Vec::new(),
        };
        let again = |tenant: &Hostile| -> Result<()> {
            kills.count += 1;
            processes[tenant.number].again()
        };
        beside(&crowd, again, || ask(&server, time))
    }

    /// `wasmtime serve`, with a program that was compiled before, as a node has it, and the limits of the leases.
    fn peer(&self, guest: &str, address: SocketAddr, files: Option<&Path>) -> Result<Command> {
        let wasmtime = self.wasmtime.context("no wasmtime command")?;
        let compiled = self.directory.join(guest).with_extension("cwasm");
        if !compiled.exists() {
            let mut command = Command::new(wasmtime);
            command.args(["compile", "-W", "epoch-interruption=y"]);
            command.arg(found(&self.guests.join(guest))?);
            let status = command.arg("-o").arg(&compiled).status()?;
            ensure!(status.success(), "wasmtime compile {guest}: {status}");
        }
        let mut command = Command::new(wasmtime);
        command.args([
            "serve",
            "--allow-precompiled",
            "-S",
            "cli=y",
            "-W",
            "timeout=2s",
        ]);
        if let Some(files) = files {
            command
                .arg("--dir")
                .arg(format!("{}::/data", files.display()));
        }
        command.arg(format!("--addr={address}")).arg(compiled);
        Ok(command)
    }
}

fn ask(server: &Server, time: Duration) -> Result<Answers> {
    at_rate(server.target("/"), CONNECTIONS, RATE, time / 5)?;
    at_rate(server.target("/"), CONNECTIONS, RATE, time)
}

/// A hostile tenant and its client.
struct Hostile {
    number: usize,
    attack: Attack,
    client: Client,
}

fn name(number: usize) -> String {
    format!("hostile-{number}")
}

/// The hostile tenants, each at the address that is said for its number.
fn crowd(mut at: impl FnMut(usize) -> Result<SocketAddr>) -> Result<Vec<Hostile>> {
    let attacks = Attack::ALL.iter().cycle().take(Attack::ALL.len() * EACH);
    let hostile = attacks.enumerate().map(|(number, &attack)| {
        let SocketAddr::V4(server) = at(number)? else {
            bail!("an address of IPv6");
        };
        let client = Client {
            source: Ipv4Addr::new(127, 0, 1, number as u8 + 1),
            server: SocketAddrV4::new(*server.ip(), server.port()),
            host: name(number),
        };
        Ok(Hostile {
            number,
            attack,
            client,
        })
    });
    hostile.collect()
}

/// What `good` returns, while clients attack, and each of the crowd in turn is killed and started `again`.
fn beside<T>(
    crowd: &[Hostile],
    again: impl FnMut(&Hostile) -> Result<()> + Send,
    good: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attack = |hostile: &Hostile| hostile.attack.go_on(&hostile.client, &over);
        let attacks: Vec<_> = crowd
            .iter()
            .map(|hostile| scope.spawn(move || attack(hostile)))
            .collect();
        let restarts = scope.spawn(|| restart(crowd, again, &over));
        let result = good();
        over.store(true, Ordering::Relaxed);
        let restarted = restarts.join();
        restarted.map_err(|_| anyhow::anyhow!("a restart panicked"))??;
        for attack in attacks {
            let attacked = attack.join();
            attacked.map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        result
    })
}

fn restart(
    crowd: &[Hostile],
    mut again: impl FnMut(&Hostile) -> Result<()>,
    over: &AtomicBool,
) -> Result<()> {
    leave_cells()?;
    for tenant in crowd.iter().cycle() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        again(tenant)?;
    }
    Ok(())
}

/// A process that is killed and started again; ended when it is dropped.
struct Process {
    command: Command,
    child: Child,
}

impl Process {
    fn start(mut command: Command) -> Result<Self> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = quiet.stderr(Stdio::null()).spawn()?;
        Ok(Self { command, child })
    }

    fn again(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.child = self.command.spawn()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
