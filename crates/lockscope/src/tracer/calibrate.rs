//! What an empty probe costs on this machine, now.

use libbpf_rs::{KprobeMultiOpts, MapCore, MapFlags, ObjectBuilder};
use rustix::process::{getpid, getppid};

use crate::tracer::layout::SAMPLES;

const PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/calibrate.bpf.o"));

/// A system call, and a function that it calls almost at once.
const OUTER: &str = "__x64_sys_getppid";
const INNER: &str = "__task_pid_nr_ns";

/// The time between the last thing that the probe of a lock function does and the first thing that
/// the probe of its unlock function does, of a hold that takes no time: the median of 1,024, in
/// nanoseconds. `None` where the kernel lets neither be probed.
pub(crate) fn empty_probe_ns() -> Option<u64> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(PROGRAMS).ok()?;
    let caller = getpid().as_raw_nonzero().get().to_ne_bytes();
    for mut map in open.maps_mut() {
        if map.name().to_string_lossy().ends_with(".rodata") {
            map.set_initial_value(&caller).ok()?;
        }
    }
    let object = open.load().ok()?;
    let links: Option<Vec<_>> = object
        .progs_mut()
        .map(|program| {
            let function = match program.name().to_str()? {
                "outer_entered" => OUTER,
                _ => INNER,
            };
            let options = KprobeMultiOpts {
                symbols: vec![function.to_owned()],
                ..KprobeMultiOpts::default()
            };
            program.attach_kprobe_multi_with_opts(options).ok()
        })
        .collect();
    // Twice as many: the first ones are slow.
    for _ in 0..2 * SAMPLES {
        let _ = getppid();
    }
    drop(links?);
    let map = object.maps().find(|map| map.name() == "calibrations")?;
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    median(&bytes)
}

/// The median of the samples in a `struct calibration`.
fn median(bytes: &[u8]) -> Option<u64> {
    let words: Vec<_> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|at| word[at])))
        .collect();
    let count = usize::try_from(*words.get(1)?).ok()?.min(SAMPLES);
    let mut samples = words.get(2..2 + count)?.to_vec();
    samples.sort_unstable();
    samples.get(count / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_those_that_were_taken() {
        let bytes = |words: &[u64]| {
            let words = words.iter().flat_map(|word| word.to_ne_bytes());
            words.collect::<Vec<_>>()
        };
        assert_eq!(median(&bytes(&[9, 3, 70, 10, 20, 999])), Some(20));
        assert_eq!(median(&bytes(&[9, 0, 70])), None);
        assert_eq!(median(&bytes(&[9])), None);
    }
}
