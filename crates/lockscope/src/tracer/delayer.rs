//! Causal isolation: a program that makes the holds of one lock by one workload longer by a known time.
//!
//! It is attached for one lock at a time, and stays while the delay changes: what the program itself costs
//! is then the same with any delay, and with none.

use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};

use crate::primitive::UNLOCK_FUNCTIONS;
use crate::trace::Class;
use crate::tracer::error::TracerError;
use crate::tracer::layout::{Delay, delayed};
use crate::tracer::loading::{config_of, listen, probe, what_was_said};
use crate::tracer::offer::Offer;
use crate::tracer::target::Target;

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/delay.bpf.o"));

/// The longest delay in nanoseconds: a lock may be one that is held with interrupts off.
pub const LONGEST_DELAY_NS: u64 = 100_000;

/// The only entry of each table.
const ONLY: [u8; 4] = 0u32.to_ne_bytes();

/// Makes holds of a workload longer. Dropping it, or killing its process, leaves nothing in the kernel.
#[derive(Debug)]
pub struct Delayer {
    object: Object,
    offer: Offer,
    link: Option<Link>,
    lock: u64,
}

/// Holds that were made longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delayed {
    /// How many.
    pub holds: u64,
    /// By how many nanoseconds in sum, as the program measured it.
    pub ns: u64,
}

impl Delayer {
    /// Loads the program for the tasks of `workload`; no hold is made longer yet.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn load(offer: &Offer, workload: &[Target]) -> Result<Self, TracerError> {
        listen();
        let (config, _) = config_of(&[workload.to_vec()], 0)?;
        let mut builder = ObjectBuilder::default();
        let mut open = builder.open_memory(PROGRAM).map_err(failed("open"))?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                map.set_initial_value(&config.bytes())
                    .map_err(failed("configure"))?;
            }
        }
        Ok(Self {
            object: open.load().map_err(failed("load"))?,
            offer: offer.clone(),
            link: None,
            lock: 0,
        })
    }

    /// Whether the functions that release locks of `class` can be probed.
    #[must_use]
    pub fn reaches(&self, class: Class) -> bool {
        !self.releases(class).is_empty()
    }

    /// Attaches the program to the functions that release the `lock`, with a delay of nothing, in place of
    /// those of the lock before.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn aim(&mut self, lock: u64, class: Class) -> Result<(), TracerError> {
        self.link = None;
        self.lock = lock;
        self.set(0)?;
        let releases = self.releases(class);
        let program = self.object.progs_mut().next();
        let program = program.unwrap_or_else(|| unreachable!("the object has a program"));
        self.link = probe(&program, releases).map_err(failed("attach"))?;
        Ok(())
    }

    /// Makes each hold longer by `ns` from now on, [`LONGEST_DELAY_NS`] at most, and counts from nothing. The
    /// workloads must stand still.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set(&mut self, ns: u64) -> Result<(), TracerError> {
        let delay = Delay {
            lock: self.lock,
            ns: ns.min(LONGEST_DELAY_NS),
        };
        let none = vec![vec![0; 16]; libbpf_rs::num_possible_cpus().map_err(failed("configure"))?];
        for map in self.object.maps() {
            let written = match map.name().to_string_lossy().as_ref() {
                "delays" => map.update(&ONLY, &delay.bytes(), MapFlags::ANY),
                "sums" => map.update_percpu(&ONLY, &none, MapFlags::ANY),
                _ => Ok(()),
            };
            written.map_err(failed("configure"))?;
        }
        Ok(())
    }

    /// The holds that were made longer since the delay was set. The workloads must stand still.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn delayed(&self) -> Result<Delayed, TracerError> {
        let mut sum = Delayed::default();
        for map in self.object.maps().filter(|map| map.name() == "sums") {
            let values = map
                .lookup_percpu(&ONLY, MapFlags::ANY)
                .map_err(failed("read the sums of"))?;
            for (holds, ns) in values.iter().flatten().filter_map(|bytes| delayed(bytes)) {
                sum.holds += holds;
                sum.ns += ns;
            }
        }
        Ok(sum)
    }

    fn releases(&self, class: Class) -> Vec<(&'static str, u64)> {
        let functions = UNLOCK_FUNCTIONS.iter();
        let present = functions.filter(|(name, of)| *of == class && self.offer.has_function(name));
        present.map(|(name, _)| (*name, 0)).collect()
    }
}

fn failed(doing: &str) -> impl FnOnce(libbpf_rs::Error) -> TracerError {
    let doing = format!("cannot {doing} the BPF program that delays");
    move |source| TracerError::Bpf {
        doing: format!("{doing}{}", what_was_said()),
        source,
    }
}
