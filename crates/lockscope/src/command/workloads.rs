//! Workloads that are started, each on the platform and in a control group of its own, and ended
//! together.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use leasehold_lockscope::platform::{Platform, Prepared, Request};
use leasehold_lockscope::tracer::{
    Cgroup, Guard, Hierarchy, Launched, Manners, Target, TracerError,
};
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::command::duration::parse_duration;
use crate::command::stop::{LOOK, stopped};

/// How long a workload may take until it is ready: a sandbox that starts in an emulated machine takes
/// a while.
const PATIENCE: Duration = Duration::from_secs(600);

/// What workloads run on, and how.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Setting {
    /// What workloads run on: host, runc, gvisor (or gvisor-ptrace, gvisor-kvm), microvm, firecracker,
    /// leasehold. On leasehold a CMD is a WASI program and its arguments.
    #[arg(long, value_name = "NAME", default_value = "host", value_parser = platform)]
    pub(crate) platform: Platform,

    /// A directory that workloads may write to, on platforms that have the host's files read-only or
    /// not at all; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) writable: Vec<PathBuf>,

    /// Pin each workload to a processor of its own, from the first on; those beyond the last processor
    /// take turns.
    #[arg(long)]
    pub(crate) pin: bool,

    /// Have the kernel account the memory of each workload separately, as of a container: each then has
    /// lists of its own for its pages.
    #[arg(long)]
    pub(crate) memory_groups: bool,

    /// Wait until each workload prints the line `ready`, and have it begin by a line on its standard
    /// input: what a start takes is not recorded.
    #[arg(long)]
    pub(crate) when_ready: bool,

    /// Run each workload alone and untraced for this time first. It prints `round` after each piece of
    /// work, so that the score knows how much work it did in the recording.
    #[arg(long, value_name = "TIME", requires = "when_ready", value_parser = parse_duration)]
    pub(crate) alone: Option<Duration>,
}

fn platform(name: &str) -> Result<Platform, String> {
    Platform::named(name).map_err(|error| error.to_string())
}

/// The workloads of one run. Whatever happens, none is left running.
pub(crate) struct Workloads {
    // In the order in which they are dropped: files of a platform are removed after their users.
    groups: Groups,
    members: Vec<Member>,
    setting: Setting,
}

struct Member {
    name: String,
    command: String,
    launched: Option<Launched>,
    /// How long a round takes alone and untraced, in nanoseconds, if that was measured.
    round_ns: Option<f64>,
    group: Cgroup,
    prepared: Prepared,
}

impl Workloads {
    /// None yet.
    pub(crate) fn of(setting: &Setting) -> Result<Self> {
        Ok(Self {
            groups: Groups::create(setting)?,
            members: Vec::new(),
            setting: setting.clone(),
        })
    }

    /// Adds one, and starts nothing.
    pub(crate) fn add(&mut self, name: &str, command: &str) -> Result<()> {
        self.add_at(name, command, self.members.len())
    }

    /// Adds one that is pinned as workload number `place` would be.
    pub(crate) fn add_at(&mut self, name: &str, command: &str, place: usize) -> Result<()> {
        let cgroup = self.groups.parent.name().join(name);
        let prepared = self.setting.platform.prepare(&Request {
            name,
            command,
            writable: &self.setting.writable,
            cgroup: &cgroup,
        })?;
        let processor = match self.setting.pin {
            true => Some(processor_of(place)?),
            false => None,
        };
        self.members.push(Member {
            name: name.to_owned(),
            command: command.to_owned(),
            launched: None,
            round_ns: None,
            group: self.groups.add(name, processor)?,
            prepared,
        });
        Ok(())
    }

    /// The targets of a tracer: one list for each workload.
    pub(crate) fn targets(&self) -> Vec<Vec<Target>> {
        let target = |member: &Member| vec![Target::Cgroup(member.group.clone())];
        self.members.iter().map(target).collect()
    }

    /// Starts those that were not started, and stops them before their first instruction.
    pub(crate) fn launch(&mut self, show_output: bool) -> Result<()> {
        let manners = Manners {
            show_output,
            says_ready: self.setting.when_ready,
        };
        for member in self
            .members
            .iter_mut()
            .filter(|member| member.launched.is_none())
        {
            let program = member.prepared.program();
            let launched = Launched::stopped(&member.name, program, &member.group, manners)?;
            member.launched = Some(launched);
        }
        Ok(())
    }

    /// Lets workload number `index` run.
    pub(crate) fn go(&mut self, index: usize) -> Result<()> {
        self.launched(index)?
            .go()
            .context("a workload is gone before it began")
    }

    /// Waits until workload number `index` says that it is ready.
    pub(crate) fn until_ready(&mut self, index: usize) -> Result<()> {
        let begun = Instant::now();
        let name = self.members[index].name.clone();
        let launched = self.launched(index)?;
        while !launched.is_ready() {
            let how = match launched.ended()? {
                Some(status) => format!("it ended ({status})"),
                None if stopped() => bail!("stopped"),
                None if begun.elapsed() > PATIENCE => format!("{PATIENCE:?} passed"),
                None => {
                    std::thread::sleep(LOOK);
                    continue;
                }
            };
            return Err(TracerError::NotReady { name, how }.into());
        }
        Ok(())
    }

    /// Tells workload number `index`, which is ready, to begin.
    pub(crate) fn begin(&mut self, index: usize) -> Result<()> {
        self.launched(index)?
            .begin()
            .context("a workload is gone before it began")
    }

    /// Stops workload number `index`, or lets it go on.
    pub(crate) fn freeze(&self, index: usize, frozen: bool) -> Result<()> {
        Ok(self.members[index].group.freeze(frozen)?)
    }

    /// How much processor time workload number `index` has taken.
    pub(crate) fn cpu_ns(&self, index: usize) -> u64 {
        self.members[index].group.cpu_ns()
    }

    pub(crate) fn name(&self, index: usize) -> &str {
        &self.members[index].name
    }

    /// Lets each, which began, run alone for `time`, and notes how long a round takes then. All are stopped
    /// afterwards.
    pub(crate) fn measure_rounds(&mut self, time: Duration) -> Result<()> {
        /// As many rounds as have a mean.
        const FEWEST: usize = 3;
        for index in 0..self.members.len() {
            self.begin(index)?;
            let begun = Instant::now();
            let mut rounds = Vec::new();
            while (begun.elapsed() < time || rounds.len() <= FEWEST) && !stopped() {
                std::thread::sleep(LOOK);
                let launched = self.launched(index)?;
                rounds.extend(launched.take_rounds());
                if let Some(status) = launched.ended()? {
                    bail!(
                        "workload {} ended before it was recorded ({status})",
                        self.name(index)
                    );
                }
            }
            self.freeze(index, true)?;
            // The first ones are slow: caches are cold.
            let warm = &rounds[rounds.len() / 2..];
            let (Some(first), Some(last)) = (warm.first(), warm.last()) else {
                bail!("stopped");
            };
            let time = (*last - *first).as_nanos() as f64;
            self.members[index].round_ns = Some(time / (warm.len() - 1).max(1) as f64);
        }
        Ok(())
    }

    /// Notes how long a round of workload number `index` takes when nothing holds it up.
    pub(crate) fn set_round_ms(&mut self, index: usize, round_ms: f64) {
        self.members[index].round_ns = Some(round_ms * 1e6);
    }

    /// Lets the first `count` workloads, which are stopped, go on: their time, and their rounds, count from now.
    pub(crate) fn resume(&mut self, count: usize) -> Result<()> {
        for index in 0..count {
            let launched = self.launched(index)?;
            drop(launched.take_rounds());
            launched.resume();
            self.freeze(index, false)?;
        }
        Ok(())
    }

    /// The running workload number `index`.
    pub(crate) fn launched(&mut self, index: usize) -> Result<&mut Launched> {
        let member = &mut self.members[index];
        let launched = member.launched.as_mut();
        launched.with_context(|| format!("workload {} was not started", member.name))
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Waits until all have ended, the time is over, or a stop is requested.
    pub(crate) fn wait(&mut self, time: Duration) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < time && !stopped() {
            let mut running = false;
            for launched in self
                .members
                .iter_mut()
                .filter_map(|member| member.launched.as_mut())
            {
                running |= launched.ended()?.is_none();
            }
            if !running {
                break;
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Each workload's name, command and how long it has run.
    pub(crate) fn described(&self) -> Vec<leasehold_lockscope::Workload> {
        let described = |member: &Member| leasehold_lockscope::Workload {
            name: member.name.clone(),
            what: member.command.clone(),
            ran_ns: member.launched.as_ref().map_or(0, Launched::ran_ns),
            own_ns: own_ns(member),
        };
        self.members.iter().map(described).collect()
    }

    /// Says which ones failed, and ends them all.
    pub(crate) fn end(self) -> Result<()> {
        for member in &self.members {
            if let Some(how) = member.launched.as_ref().and_then(Launched::failure) {
                eprintln!(
                    "lockscope: workload {} failed ({how}): {}",
                    member.name, member.command
                );
            }
        }
        self.groups.end()
    }
}

/// How long the rounds that it has told of since it was resumed take alone and untraced; 0 if unknown.
fn own_ns(member: &Member) -> u64 {
    let rounds = member.launched.as_ref().map(Launched::take_rounds);
    let own = (member.round_ns).zip(rounds.map(|rounds| rounds.len() as f64));
    own.map_or(0, |(round_ns, rounds)| (round_ns * rounds) as u64)
}

/// The processor that workload number `index` is pinned to.
fn processor_of(index: usize) -> Result<usize> {
    let allowed = sched_getaffinity(None).context("cannot tell the processors")?;
    let processors: Vec<_> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    // The first one is the first workload's alone.
    Ok(match (index, processors.len()) {
        (0, _) => processors[0],
        (_, 0 | 1) => bail!("--pin needs two processors; allowed here: {processors:?}"),
        (index, count) => processors[(index - 1) % (count - 1) + 1],
    })
}

/// Control groups of one run: one for each workload, in one of their own.
struct Groups {
    hierarchy: Hierarchy,
    parent: Cgroup,
    each: Vec<Cgroup>,
    ended: bool,
    // Dropped last: it sees that the group is gone.
    _guard: Guard,
}

impl Groups {
    fn create(setting: &Setting) -> Result<Self> {
        let hierarchy = Hierarchy::mounted()?;
        let parent = hierarchy.create(&format!("lockscope-{}", std::process::id()))?;
        let guard = match Guard::of(&parent) {
            Ok(guard) => guard,
            Err(error) => {
                parent.end()?;
                return Err(error.into());
            }
        };
        let groups = Self {
            hierarchy,
            _guard: guard,
            parent,
            each: Vec::new(),
            ended: false,
        };
        let controllers = [(setting.pin, "cpuset"), (setting.memory_groups, "memory")];
        for (_, controller) in controllers.into_iter().filter(|(asked, _)| *asked) {
            groups.hierarchy.turn_on(controller, &groups.parent)?;
        }
        Ok(groups)
    }

    fn add(&mut self, name: &str, processor: Option<usize>) -> Result<Cgroup> {
        let path = self.parent.name().join(name);
        let group = self.hierarchy.create(&path.to_string_lossy())?;
        self.each.push(group.clone());
        if let Some(processor) = processor {
            group.restrict_to(processor)?;
        }
        Ok(group)
    }

    fn end(mut self) -> Result<()> {
        self.ended = true;
        Ok(self.parent.end()?)
    }
}

/// Whatever happened, no workload is left running.
impl Drop for Groups {
    fn drop(&mut self) {
        if !self.ended
            && let Err(error) = self.parent.end()
        {
            eprintln!("lockscope: {error:#}");
        }
    }
}
