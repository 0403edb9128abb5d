//! What a workload can have for itself, so that it no longer meets another one in a lock.
//!
//! A lock is said to be of what its structure belongs to: a `journal_s` belongs to a file system, a `lruvec` to a memory
//! cgroup. Structures that are a part of many (a wait queue, a counter) belong to what the functions that take them work on. A
//! variable of the kernel, a table that all share, and whatever is not listed here takes a kernel of its own: what is not known to
//! be separated counts as shared.

use serde::Serialize;

use crate::place::Object;

/// What a workload has for itself; the cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Separation {
    /// Processors between which and those of others the kernel moves nothing: an isolated partition of `cpuset`.
    Processors,
    /// A memory cgroup, for its lists of pages and what it has to write back.
    MemoryGroup,
    /// IPC and network namespaces.
    Namespaces,
    /// A file system, which may be on the same device.
    FileSystem,
    /// A device for its file system.
    Device,
    /// A kernel: a virtual machine.
    Kernel,
}

use Separation::{Device, FileSystem, Kernel, MemoryGroup, Namespaces, Processors};

/// Structures, by the beginning of their names, and what they belong to. The first that fits counts.
const STRUCTURES: &[(&str, Separation)] = &[
    // A pipe and a socket between two workloads are there for both.
    ("pipe_inode_info", Kernel),
    ("socket", Kernel),
    ("unix_sock", Kernel),
    ("rq", Processors),
    ("cfs_rq", Processors),
    ("dl_rq", Processors),
    ("rt_rq", Processors),
    ("root_domain", Processors),
    ("per_cpu_pages", Processors),
    ("hrtimer_cpu_base", Processors),
    ("timer_base", Processors),
    ("lruvec", MemoryGroup),
    ("mem_cgroup", MemoryGroup),
    ("list_lru_one", MemoryGroup),
    ("bdi_writeback", MemoryGroup),
    ("ipc_ids", Namespaces),
    ("ipc_namespace", Namespaces),
    ("net", Namespaces),
    ("netns_", Namespaces),
    ("nf_", Namespaces),
    ("fib_", Namespaces),
    ("super_block", FileSystem),
    // The lists of a file system's unused entries, before Linux 6.13.
    ("list_lru_node", FileSystem),
    ("blockgroup_lock", FileSystem),
    ("journal_", FileSystem),
    ("transaction_s", FileSystem),
    ("ext4_", FileSystem),
    ("xfs_", FileSystem),
    ("btrfs_", FileSystem),
    ("shmem_", FileSystem),
    ("inode", FileSystem),
    ("address_space", FileSystem),
    ("dentry", FileSystem),
    ("buffer_head", FileSystem),
    ("fuse_", FileSystem),
    ("loop_device", Device),
    ("request_queue", Device),
    ("blk_", Device),
    ("elevator_", Device),
    ("nvme_", Device),
    ("virtio_blk", Device),
];

/// Structures that are a part of many others.
const PARTS: &[&str] = &["wait_queue_head", "percpu_counter", "xarray", "percpu_ref"];

/// Functions, by the beginning of their names without underscores, and what they work on.
const FUNCTIONS: &[(&str, Separation)] = &[
    // They wait in a table that all share.
    ("wait_on_bit", Kernel),
    ("out_of_line_wait", Kernel),
    ("wake_up_bit", Kernel),
    ("folio_w", Kernel),
    ("ext4_", FileSystem),
    ("jbd2_", FileSystem),
    ("xfs_", FileSystem),
    ("btrfs_", FileSystem),
    ("shmem_", FileSystem),
    ("filemap_", FileSystem),
    ("blk_mq_", Device),
    ("loop_", Device),
];

/// Callers that are looked at: farther out is what led there, and not what the lock is of.
const CALLERS: usize = 4;

impl Separation {
    /// What keeps workloads from meeting in a lock of this object, which is taken in the call `chain`, the innermost first.
    pub(crate) fn of<'a>(object: &Object, chain: impl Iterator<Item = &'a str>) -> Self {
        let structure = match object {
            Object::Member { structure, .. } => structure,
            Object::Element { container, .. } => container,
            Object::Variable { .. } | Object::Unknown { .. } => return Kernel,
        };
        let structure = structure.split('.').next().unwrap_or_default();
        if PARTS.contains(&structure) {
            let of_function = |function: &str| {
                let name = function.trim_start_matches('_');
                let known = FUNCTIONS.iter().find(|(begin, _)| name.starts_with(begin));
                known.map(|&(_, separation)| separation)
            };
            return chain.take(CALLERS).find_map(of_function).unwrap_or(Kernel);
        }
        let known = STRUCTURES
            .iter()
            .find(|(begin, _)| match begin.ends_with('_') {
                true => structure.starts_with(begin),
                // A field of many, such as an inode in a file system's own, has the name of that.
                false => structure == *begin,
            });
        match known {
            Some(&(_, separation)) => separation,
            None if structure.ends_with("_inode_info") || structure.ends_with("_sb_info") => {
                FileSystem
            }
            None => Kernel,
        }
    }
}

impl std::fmt::Display for Separation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Processors => "processors of its own, in an isolated cpuset partition",
            MemoryGroup => "a memory cgroup of its own",
            Namespaces => "IPC and network namespaces of its own",
            FileSystem => "a file system of its own",
            Device => "a device of its own for its file system",
            Kernel => "a kernel of its own: a virtual machine",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Object, Separation};

    fn of(structure: &str, chain: &[&str]) -> Separation {
        let object = Object::Member {
            structure: structure.into(),
            field: "lock".into(),
            offset: None,
        };
        Separation::of(&object, chain.iter().copied())
    }

    #[test]
    fn a_lock_goes_with_what_its_structure_belongs_to() {
        assert_eq!(of("rq", &[]), Separation::Processors);
        assert_eq!(of("lruvec", &[]), Separation::MemoryGroup);
        assert_eq!(of("journal_s", &[]), Separation::FileSystem);
        assert_eq!(of("shmem_inode_info", &[]), Separation::FileSystem);
        assert_eq!(of("proc_inode_info", &[]), Separation::FileSystem);
        assert_eq!(of("loop_device", &[]), Separation::Device);
        // Not `request_queue`, and no structure that is known.
        assert_eq!(of("request_sock", &[]), Separation::Kernel);
        assert_eq!(of("pipe_inode_info", &[]), Separation::Kernel);
        let element = Object::Element {
            container: "blockgroup_lock.locks".into(),
            field: "lock".into(),
        };
        let separation = Separation::of(&element, std::iter::empty());
        assert_eq!(separation, Separation::FileSystem);
    }

    #[test]
    fn a_part_of_many_goes_with_what_takes_it_and_no_further_than_its_near_callers() {
        let journal = ["__wake_up", "stop_this_handle", "jbd2_journal_stop", "f"];
        assert_eq!(of("wait_queue_head", &journal), Separation::FileSystem);
        let bit = [
            "__wait_on_bit",
            "out_of_line_wait_on_bit",
            "__ext4_get_inode_loc",
        ];
        assert_eq!(of("wait_queue_head", &bit), Separation::Kernel);
        let files = [
            "percpu_counter_add_batch",
            "alloc_empty_file",
            "path_openat",
        ];
        assert_eq!(of("percpu_counter", &files), Separation::Kernel);
        let far = ["a", "b", "c", "d", "ext4_create"];
        assert_eq!(of("percpu_counter", &far), Separation::Kernel);
    }

    #[test]
    fn what_all_of_the_kernel_has_once_takes_a_kernel() {
        let variable = Object::Variable {
            name: "inode_hash_lock".into(),
        };
        let unknown = Object::Unknown {
            reason: String::new(),
        };
        for object in [variable, unknown] {
            let separation = Separation::of(&object, ["ext4_create"].into_iter());
            assert_eq!(separation, Separation::Kernel);
        }
    }
}
