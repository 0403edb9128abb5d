//! The servers that are compared, each a process of its own.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::load::{Target, once};
use crate::harness::child_command::bound;

/// How long a server may take to answer for the first time: it compiles.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks whether it answers.
const LOOK: Duration = Duration::from_micros(200);

/// A server, and how it is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arm {
    /// Leasehold, a new instance for each request.
    Fresh,
    /// Leasehold, an instance for up to 1,000 requests.
    Reuse,
    /// `wasmtime serve`, with its pools.
    Pooling,
    /// `wasmtime serve`, as it comes.
    OnDemand,
}

impl Arm {
    pub(super) const ALL: [Self; 4] = [Self::Fresh, Self::Reuse, Self::Pooling, Self::OnDemand];

    /// As rows name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "leasehold",
            Self::Reuse => "leasehold-reuse",
            Self::Pooling => "wasmtime-pooling",
            Self::OnDemand => "wasmtime-ondemand",
        }
    }

    pub(super) const fn is_wasmtime(self) -> bool {
        matches!(self, Self::Pooling | Self::OnDemand)
    }

    /// The command that serves `guest`, an absolute path, at an address. Files go to `directory`.
    fn command(
        self,
        guest: &Path,
        address: SocketAddr,
        directory: &Path,
        wasmtime: Option<&Path>,
    ) -> Result<Command> {
        let reuse = match self {
            Self::Fresh => 1,
            Self::Reuse => 1000,
            Self::Pooling | Self::OnDemand => {
                let mut command = Command::new(wasmtime.context("no wasmtime command")?);
                command.args(["serve", "-S", "cli=y"]);
                if self == Self::Pooling {
                    command.args(["-O", "pooling-allocator=y"]);
                }
                command.arg(format!("--addr={address}")).arg(guest);
                return Ok(command);
            }
        };
        let leases = directory.join(format!("{}.toml", self.name()));
        let text = format!(
            "[listener.main]\naddress = \"{address}\"\n\
             per_source = 1024\n\n\
             [tenant.web]\ncomponent = {guest:?}\nreclaim = {{ budget = \"500ms\" }}\n\
             http = {{ routes = [\"/*\"], reuse = {reuse}, concurrency = 16, queue = 256 }}\n"
        );
        fs::write(&leases, text)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--log", "none"]).arg(leases);
        Ok(command)
    }
}

/// A running server; ended when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    output: PathBuf,
}

impl Server {
    /// Starts a server, and waits until it answers.
    ///
    /// # Errors
    /// When it ends, or does not answer.
    pub(super) fn start(
        arm: Arm,
        guest: &Path,
        directory: &Path,
        wasmtime: Option<&Path>,
    ) -> Result<Self> {
        let address = free_address()?;
        let guest = found(guest)?;
        let command = arm.command(&guest, address, directory, wasmtime)?;
        Self::spawn(bound(&command)?, arm.name(), address, directory)
    }

    /// Starts the server of a command, and waits until it answers. Its messages and its standard
    /// output go to files of the directory.
    ///
    /// # Errors
    /// When it ends, or does not answer.
    pub(crate) fn spawn(
        mut command: Command,
        name: &str,
        address: SocketAddr,
        directory: &Path,
    ) -> Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let output = directory.join(format!("{name}.out"));
        let child = command
            .stdin(Stdio::null())
            .stdout(fs::File::create(&output)?)
            .stderr(fs::File::create(&log)?)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let mut server = Self {
            child,
            address,
            output,
        };
        let began = Instant::now();
        while !once(server.target("/")).is_ok_and(|status| status == 200) {
            if let Some(status) = server.child.try_wait()? {
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!("{name} ended with {status}: {said}");
            }
            if began.elapsed() > PATIENCE {
                bail!("{name} does not answer");
            }
            thread::sleep(LOOK);
        }
        Ok(server)
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to end, and returns what it wrote to its standard output.
    ///
    /// # Errors
    /// When it does not end.
    pub(crate) fn finish(mut self) -> Result<String> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).context("telling a server to end")?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                bail!("a server that was told to end does not");
            }
            thread::sleep(Duration::from_millis(5));
        }
        fs::read_to_string(&self.output).context("the report of a server")
    }

    /// A page of it.
    pub(crate) fn target<'a>(&self, path: &'a str) -> Target<'a> {
        Target {
            address: self.address,
            path,
        }
    }

    /// The processor time that it has taken, ns.
    ///
    /// # Errors
    /// When the host does not tell.
    pub(super) fn cpu_ns(&self) -> Result<u64> {
        // Sums of all threads, by the scheduler's clock; those of `stat` count ticks.
        let tasks = format!("/proc/{}/task", self.child.id());
        let mut sum = 0;
        for task in fs::read_dir(tasks)? {
            let text = fs::read_to_string(task?.path().join("schedstat"))?;
            let ran = text.split(' ').next().context("no time")?;
            sum += ran.parse::<u64>()?;
        }
        Ok(sum)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The absolute path of a guest.
///
/// # Errors
/// When it was not built.
pub(crate) fn found(guest: &Path) -> Result<PathBuf> {
    fs::canonicalize(guest)
        .with_context(|| format!("the guest {} (guests/build makes it)", guest.display()))
}

/// An address of this host at which nothing listens.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// The `wasmtime` command: that of `$WASMTIME`, or of the path.
pub(crate) fn wasmtime() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("WASMTIME") {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|place| place.join("wasmtime"));
    places.find(|place| place.is_file())
}
