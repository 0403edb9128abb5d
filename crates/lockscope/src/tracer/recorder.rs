//! Loading the programs, attaching them, and making a trace of what they counted.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;

use libbpf_rs::btf::Btf;
use libbpf_rs::query::{LinkTypeInfo, ProgInfoIter};
use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ObjectBuilder, Program};
use rustix::time::{ClockId, clock_gettime};

use crate::place::{Object as LockObject, Place};
use crate::primitive::{
    INIT_FUNCTIONS, LOCK_FUNCTIONS, MMAP_LOCK, UNLOCK_FUNCTIONS, contended_primitives,
    is_interrupt_text, is_lock_text,
};
use crate::trace::{
    Access, Class, Losses, Mode, PlaceId, Primitive, PrimitiveId, Stack, StackId, Trace, Use,
    Workload, WorkloadId,
};
use crate::tracer::cache_line::move_ns;
use crate::tracer::error::TracerError;
use crate::tracer::layout::{
    FRAMES, Key, Loss, OWNED, Origin, READS, Row, SPINS, TRIES, cache_name,
};
use crate::tracer::loading::{config_of, listen, probe, what_was_said};
use crate::tracer::offer::Offer;
use crate::tracer::symbols::Symbols;
use crate::tracer::target::Target;
use crate::tracer::{calibrate, kernel, objects};

const FULL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/full.bpf.o"));
const CONTENDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/contended.bpf.o"));

/// The number of a call chain that stands for none, in a site of the contended mode.
const NO_STACK: u64 = u64::MAX;

/// What to record.
#[derive(Debug, Clone)]
pub struct Options {
    /// How.
    pub mode: Mode,
    /// Which locks; all that the mode can see if empty.
    pub classes: Vec<Class>,
    /// Rows in the table of uses: 24 bytes, and 80 for each processor. Where it is full,
    /// acquisitions are lost, and counted.
    pub rows: u32,
}

impl Options {
    /// The usual size of the table of uses.
    pub const ROWS: u32 = 65_536;
}

/// A tracer, loaded into the kernel. Dropping it, or killing its process, leaves nothing there.
#[derive(Debug)]
pub struct Recorder {
    object: Object,
    links: Vec<Link>,
    offer: Offer,
    options: Options,
    symbols: Symbols,
    loaded_ns: u64,
    attached_ns: u64,
    probe_ns: Option<u64>,
    move_ns: Option<u64>,
}

impl Recorder {
    /// Loads the programs; nothing is recorded yet. The number of a workload is the place of its
    /// targets in `workloads`.
    ///
    /// # Errors
    /// The kernel refuses, or there are too many targets.
    pub fn load(
        offer: &Offer,
        options: &Options,
        workloads: &[Vec<Target>],
    ) -> Result<Self, TracerError> {
        let symbols = Symbols::of_the_kernel()?;
        listen();
        let probe_ns = match options.mode {
            Mode::Full => calibrate::empty_probe_ns(),
            Mode::Contended => None,
        };
        let loaded_ns = now_ns();
        let (mut config, processes) = config_of(workloads, loaded_ns)?;
        config.probe_ns = probe_ns.unwrap_or(0);
        let (name, bytes) = match options.mode {
            Mode::Full => ("full", FULL),
            Mode::Contended => ("contended", CONTENDED),
        };
        let failed = |doing: &str| {
            let doing = format!("cannot {doing} the {name} mode's BPF programs");
            move |source| TracerError::Bpf {
                doing: format!("{doing}{}", what_was_said()),
                source,
            }
        };
        let mut builder = ObjectBuilder::default();
        let mut open = builder.open_memory(bytes).map_err(failed("open"))?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name.ends_with(".rodata") {
                map.set_initial_value(&config.bytes())
                    .map_err(failed("configure"))?;
            } else if ["uses", "births", "objects", "origins"].contains(&&*name) {
                map.set_max_entries(options.rows)
                    .map_err(failed("configure"))?;
            }
        }
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let wanted = match name.as_str() {
                "process_forked" | "process_exited" => config.processes,
                name if name.starts_with("mmap_lock_") => offer.has_mmap_lock(),
                "object_allocated" => offer.has_tracepoint("kmem_cache_alloc"),
                "object_freed" => offer.has_tracepoint("kmem_cache_free"),
                "memory_allocated" => offer.has_tracepoint("kmalloc"),
                "memory_freed" => offer.has_tracepoint("kfree"),
                _ => true,
            };
            program.set_autoload(wanted);
        }
        let object = open.load().map_err(failed("load"))?;
        let recorder = Self {
            object,
            links: Vec::new(),
            offer: offer.clone(),
            options: options.clone(),
            symbols,
            loaded_ns,
            attached_ns: loaded_ns,
            probe_ns,
            move_ns: move_ns(),
        };
        let map = recorder.map("processes");
        for (process, workload) in processes {
            map.update(
                &process.to_ne_bytes(),
                &workload.to_ne_bytes(),
                MapFlags::ANY,
            )
            .map_err(failed("configure"))?;
        }
        Ok(recorder)
    }

    /// Begins to record. Takes about a second in the full mode.
    ///
    /// # Errors
    /// The kernel refuses; nothing stays attached.
    pub fn attach(&mut self) -> Result<(), TracerError> {
        let programs: Vec<_> = self
            .object
            .progs_mut()
            .filter(|program| program.autoload())
            .collect();
        let mut links = Vec::new();
        for program in programs {
            let name = program.name().to_string_lossy().into_owned();
            let attached = match name.as_str() {
                "lock_entered" => probe(&program, self.entries()),
                "lock_released" => probe(&program, self.others(UNLOCK_FUNCTIONS)),
                "lock_born" => probe(&program, self.others(INIT_FUNCTIONS)),
                _ => program.attach().map(Some),
            };
            links.extend(attached.map_err(|source| TracerError::Bpf {
                doing: format!("cannot attach {name}"),
                source,
            })?);
        }
        self.links = links;
        self.attached_ns = now_ns();
        Ok(())
    }

    /// Ends the recording and makes a trace of it. `workloads` are described as in [`load`], in
    /// the same order. Detaches before it reads.
    ///
    /// [`load`]: Self::load
    ///
    /// # Errors
    /// A table cannot be read.
    pub fn finish(
        mut self,
        workloads: Vec<Workload>,
        name: String,
        platform: String,
    ) -> Result<Trace, TracerError> {
        let duration_ns = now_ns() - self.attached_ns;
        let missed = self.links.iter().map(missed_by).sum::<u64>();
        let skipped = missed + self.recursions();
        self.links.clear();
        let trace = self.read(workloads, duration_ns, skipped)?;
        Ok(Trace {
            name,
            platform,
            ..trace
        })
    }

    /// What was recorded until now, and goes on. For the contended mode: to read its tables does not
    /// switch tracepoints off, as it does probes.
    ///
    /// # Errors
    /// A table cannot be read.
    pub fn so_far(&self, workloads: Vec<Workload>) -> Result<Trace, TracerError> {
        self.read(workloads, now_ns() - self.attached_ns, self.recursions())
    }

    fn read(
        &self,
        workloads: Vec<Workload>,
        duration_ns: u64,
        skipped: u64,
    ) -> Result<Trace, TracerError> {
        let primitives = self.primitives();
        let mut stacks = Stacks::new(self.map("stacks"), &self.symbols);
        let mut uses = Vec::new();
        for (key, row) in self.rows()? {
            let class = primitives[usize::from(key.primitive)].class;
            if row.acquired == 0 || !self.wants(class) {
                continue;
            }
            let chain = match self.options.mode {
                Mode::Full => row.stack,
                Mode::Contended if key.site == NO_STACK => row.stack,
                Mode::Contended => u32::try_from(key.site).ok(),
            };
            if self.options.mode == Mode::Contended && stacks.is_of_interrupt(chain) {
                continue;
            }
            let stack = chain.and_then(|chain| stacks.id_of(chain, self.site_of(&key)));
            uses.push(self.use_of(&key, &row, stack, &stacks));
        }
        uses.sort_by_key(|used| (used.lock, used.generation, used.workload, used.site));
        let places = self.known_places(&mut uses);
        let losses = Losses {
            acquisitions: self.lost(Loss::Acquisitions)?,
            stacks: self.lost(Loss::Stacks)?,
            times: self.lost(Loss::Times)?,
            births: self.lost(Loss::Births)?,
            skipped,
        };
        let kernel = kernel::running(&self.symbols);
        let mut trace = Trace {
            name: String::new(),
            mode: self.options.mode,
            kernel,
            platform: String::new(),
            classes: self.classes(&primitives),
            duration_ns,
            workloads,
            losses,
            probe_ns: self.probe_ns,
            move_ns: self.move_ns,
            primitives,
            stacks: stacks.list,
            symbols: Vec::new(),
            uses,
            places,
        };
        trace.symbols = self.symbols_of(&trace);
        Ok(trace)
    }

    fn wants(&self, class: Class) -> bool {
        self.options.classes.is_empty() || self.options.classes.contains(&class)
    }

    /// The lock functions that the kernel has, with what their probe is told.
    fn entries(&self) -> Vec<(&'static str, u64)> {
        let numbered = LOCK_FUNCTIONS.iter().zip(0u64..);
        let present = numbered.filter(|(function, _)| {
            self.wants(function.class()) && self.offer.has_function(function.name)
        });
        let told = present.map(|(function, number)| {
            let when = |is: bool, flag: u64| if is { flag } else { 0 };
            let flags = [
                when(function.tries(), TRIES),
                when(matches!(function.class(), Class::Spin | Class::Rw), SPINS),
                when(function.access() == Access::Shared, READS),
                when(function.class() == Class::Mutex, OWNED),
            ];
            (
                function.name,
                flags.iter().fold(number, |all, flag| all | flag),
            )
        });
        told.collect()
    }

    fn others(&self, functions: &[(&'static str, Class)]) -> Vec<(&'static str, u64)> {
        functions
            .iter()
            .filter(|(name, class)| self.wants(*class) && self.offer.has_function(name))
            .map(|(name, _)| (*name, 0))
            .collect()
    }

    fn primitives(&self) -> Vec<Primitive> {
        match self.options.mode {
            Mode::Full => LOCK_FUNCTIONS.iter().map(|lock| lock.primitive()).collect(),
            Mode::Contended => contended_primitives(),
        }
    }

    /// The classes that were looked at.
    fn classes(&self, primitives: &[Primitive]) -> Vec<Class> {
        let classes: BTreeSet<_> = primitives.iter().map(|primitive| primitive.class).collect();
        classes
            .into_iter()
            .filter(|class| self.wants(*class))
            .collect()
    }

    /// Every map is declared in the programs' source.
    fn map(&self, name: &str) -> Map<'_> {
        let named = |map: &Map<'_>| map.name() == name;
        let found = self.object.maps().find(named);
        found.unwrap_or_else(|| unreachable!("the programs have a map {name}"))
    }

    /// The table of uses, summed over processors.
    fn rows(&self) -> Result<Vec<(Key, Row)>, TracerError> {
        let uses = self.map("uses");
        let mut rows = Vec::new();
        for bytes in uses.keys() {
            let values = uses
                .lookup_percpu(&bytes, MapFlags::ANY)
                .map_err(|source| cannot_read("uses", source))?;
            let (Some(key), Some(values)) = (Key::from_bytes(&bytes), values) else {
                continue;
            };
            let mut sum = Row::default();
            for row in values.iter().filter_map(|value| Row::from_bytes(value)) {
                sum.add(&row);
            }
            rows.push((key, sum));
        }
        Ok(rows)
    }

    fn lost(&self, what: Loss) -> Result<u64, TracerError> {
        let losses = self.map("losses");
        let values = losses
            .lookup_percpu(&(what as u32).to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| cannot_read("losses", source))?;
        let counts = values.unwrap_or_default();
        let count = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(0, u64::from_ne_bytes);
        Ok(counts.iter().map(count).sum())
    }

    /// How often a program was not run because one of them was running on that processor.
    fn recursions(&self) -> u64 {
        let own: BTreeSet<_> = self
            .object
            .progs()
            .filter(|program| program.autoload())
            .filter_map(|program| Program::id_from_fd(program.as_fd()).ok())
            .collect();
        ProgInfoIter::default()
            .filter(|info| own.contains(&info.id))
            .map(|info| info.recursion_misses)
            .sum()
    }

    fn site_of(&self, key: &Key) -> Option<u64> {
        (self.options.mode == Mode::Full).then_some(key.site)
    }

    fn use_of(&self, key: &Key, row: &Row, stack: Option<StackId>, stacks: &Stacks<'_>) -> Use {
        let before = self.attached_ns - self.loaded_ns;
        let site = self.site_of(key).or_else(|| stacks.innermost(stack?));
        Use {
            lock: key.lock,
            generation: key.generation,
            workload: WorkloadId(key.workload),
            primitive: PrimitiveId(key.primitive),
            site: site.unwrap_or(0),
            stack,
            acquired: row.acquired,
            contended: row.contended,
            held: row.held,
            hold_ns: row.hold_ns,
            hold_max_ns: row.hold_max_ns,
            wait_ns: row.wait_ns,
            wait_max_ns: row.wait_max_ns,
            first_ns: row.first_ns.saturating_sub(before),
            last_ns: row.last_ns.saturating_sub(before),
            place: None,
        }
    }

    /// What is known without an analyzer: the tracepoints of `mmap_lock` say what it is, and of a lock
    /// in an object the slab and the kernel's types.
    fn known_places(&self, uses: &mut [Use]) -> Vec<Place> {
        let mut places = Vec::new();
        let mut known = HashMap::new();
        let types = Btf::from_vmlinux().ok();
        let mut place = |object: LockObject, file: &str| {
            let id = known.entry(object.clone()).or_insert_with(|| {
                places.push(Place {
                    function: String::new(),
                    file: file.into(),
                    line: 0,
                    object,
                });
                PlaceId(places.len() as u32 - 1)
            });
            Some(*id)
        };
        let mut fields = HashMap::new();
        for used in uses.iter_mut() {
            if self.options.mode == Mode::Contended && used.primitive.0 >= MMAP_LOCK {
                let object = LockObject::Member {
                    structure: "mm_struct".into(),
                    field: "mmap_lock".into(),
                    offset: None,
                };
                used.place = place(object, "mm/mmap_lock.c");
                continue;
            }
            let (Some(types), Some((cache, offset))) = (&types, self.origin_of(used.lock)) else {
                continue;
            };
            let field = fields
                .entry((cache, offset))
                .or_insert_with_key(|(cache, offset)| objects::field(types, cache, *offset));
            if let Some((structure, field)) = field.clone() {
                let offset = Some(offset);
                let object = LockObject::Member {
                    structure,
                    field,
                    offset,
                };
                used.place = place(object, "");
            }
        }
        places
    }

    /// The name of the cache that the object of `lock` is from, and where in it the lock is.
    fn origin_of(&self, lock: u64) -> Option<(String, u64)> {
        let look_up = |map: &str, key: u64| {
            let found = self.map(map).lookup(&key.to_ne_bytes(), MapFlags::ANY);
            found.ok().flatten()
        };
        let origin = Origin::from_bytes(&look_up("origins", lock)?)?;
        let name = cache_name(&look_up("caches", origin.cache)?)?;
        Some((name, lock.checked_sub(origin.object)?))
    }

    /// Names of the code in the call chains and of the locks that are variables.
    fn symbols_of(&self, trace: &Trace) -> Vec<crate::trace::Symbol> {
        let code = trace.stacks.iter().flat_map(|stack| &stack.0);
        let sites = trace.uses.iter().map(|used| &used.site);
        let returns: BTreeSet<u64> = code
            .chain(sites)
            .copied()
            .filter(|&site| site != 0)
            .collect();
        let locks = trace.uses.iter().map(|used| used.lock);
        let variables: BTreeSet<u64> = locks.filter(|lock| trace.is_variable(*lock)).collect();
        let named_code = returns
            .iter()
            .filter_map(|site| self.symbols.of_return(*site));
        // Where the table has no variables, the nearest symbol is the end of the code: no name.
        let named = |lock: &u64| {
            self.symbols
                .of(*lock)
                .filter(|symbol| symbol.name != "_etext")
        };
        let mut symbols: Vec<_> = named_code
            .chain(variables.iter().filter_map(named))
            .collect();
        symbols.sort_by_key(|symbol| symbol.address);
        symbols.dedup_by_key(|symbol| symbol.address);
        symbols
    }
}

/// The call chains that uses refer to, each read once.
struct Stacks<'a> {
    map: Map<'a>,
    symbols: &'a Symbols,
    ids: HashMap<(u32, Option<u64>), Option<StackId>>,
    list: Vec<Stack>,
}

impl<'a> Stacks<'a> {
    fn new(map: Map<'a>, symbols: &'a Symbols) -> Self {
        Self {
            map,
            symbols,
            ids: HashMap::new(),
            list: Vec::new(),
        }
    }

    /// The chain with the kernel's number `chain`, from `site` outwards; from the first frame
    /// outside the locks if the site is not known.
    fn id_of(&mut self, chain: u32, site: Option<u64>) -> Option<StackId> {
        if let Some(id) = self.ids.get(&(chain, site)) {
            return *id;
        }
        let stack = self.read(chain, site);
        let id = stack.map(|stack| {
            self.list.push(stack);
            StackId(self.list.len() as u32 - 1)
        });
        self.ids.insert((chain, site), id);
        id
    }

    /// Whether the chain goes through the entry of an interrupt.
    fn is_of_interrupt(&self, chain: Option<u32>) -> bool {
        let frames = chain
            .and_then(|chain| self.frames(chain))
            .unwrap_or_default();
        let mut named = frames
            .iter()
            .filter_map(|frame| self.symbols.of_return(*frame));
        named.any(|symbol| is_interrupt_text(&symbol.name))
    }

    fn frames(&self, chain: u32) -> Option<Vec<u64>> {
        let bytes = self
            .map
            .lookup(&chain.to_ne_bytes(), MapFlags::ANY)
            .ok()??;
        let frames = bytes
            .chunks_exact(8)
            .take(FRAMES)
            .filter_map(|frame| frame.try_into().ok().map(u64::from_ne_bytes))
            .take_while(|&frame| frame != 0);
        Some(frames.collect())
    }

    fn read(&self, chain: u32, site: Option<u64>) -> Option<Stack> {
        let frames = self.frames(chain)?;
        // A frame without a name is of a BPF program; one at the first byte of a function is the
        // probed function itself.
        let inside = |frame: &u64| {
            let names = [self.symbols.of_return(*frame), self.symbols.of(*frame)];
            let mut lock_text = names.iter().map(|symbol| {
                symbol
                    .as_ref()
                    .is_none_or(|symbol| is_lock_text(&symbol.name))
            });
            lock_text.any(|inside| inside)
        };
        let begin = site
            .and_then(|site| frames.iter().position(|frame| *frame == site))
            .or_else(|| frames.iter().position(|frame| !inside(frame)))?;
        Some(Stack(frames[begin..].to_vec()))
    }

    fn innermost(&self, stack: StackId) -> Option<u64> {
        self.list.get(stack.0 as usize)?.0.first().copied()
    }
}

/// How often the kernel could not run the programs of `link`.
fn missed_by(link: &Link) -> u64 {
    match link.info().map(|info| info.info) {
        Ok(LinkTypeInfo::KprobeMulti(info)) => info.missed,
        _ => 0,
    }
}

fn cannot_read(map: &str, source: libbpf_rs::Error) -> TracerError {
    TracerError::Bpf {
        doing: format!("cannot read the table of {map}"),
        source,
    }
}

/// The clock that the programs read.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
