//! Which structure the objects of a slab are, and which field a lock in one is, by the kernel's own type
//! information: names without debug packages and sources.

use libbpf_rs::btf::types::{Composite, MemberAttr};
use libbpf_rs::btf::{Btf, BtfType};

/// Caches of the allocator, and the structures in them, where the name does not tell.
const STRUCTURES: [(&str, &str); 17] = [
    ("TCP", "tcp_sock"),
    ("TCPv6", "tcp6_sock"),
    ("UDP", "udp_sock"),
    ("UNIX", "unix_sock"),
    ("UNIX-STREAM", "unix_sock"),
    ("bdev_cache", "bdev_inode"),
    ("eventpoll_epi", "epitem"),
    ("files_cache", "files_struct"),
    ("filp", "file"),
    ("fs_cache", "fs_struct"),
    ("inode_cache", "inode"),
    ("mnt_cache", "mount"),
    ("proc_inode_cache", "proc_inode"),
    ("radix_tree_node", "xa_node"),
    ("sighand_cache", "sighand_struct"),
    ("signal_cache", "signal_struct"),
    ("sock_inode_cache", "socket_alloc"),
];

/// Types of locks, as the kernel names them.
const LOCKS: [&str; 10] = [
    "spinlock",
    "spinlock_t",
    "raw_spinlock",
    "raw_spinlock_t",
    "rwlock_t",
    "mutex",
    "rw_semaphore",
    "rt_mutex",
    "rt_mutex_base",
    "qspinlock",
];

/// As deep as structures are looked into.
const DEPTH: u32 = 12;

/// The structure and the field of a lock that lies `offset` bytes into an object of the cache `cache`;
/// `None` unless there is a lock in the structure at just that place.
pub(crate) fn field(types: &Btf<'_>, cache: &str, offset: u64) -> Option<(String, String)> {
    candidates(cache).into_iter().find_map(|structure| {
        let whole = types.type_by_name::<Composite<'_>>(&structure)?;
        let path = lock_at(types, *whole, offset, DEPTH)?;
        Some((structure, path.join(".")))
    })
}

/// Names that the structure of a cache may have.
fn candidates(cache: &str) -> Vec<String> {
    if let Some((_, structure)) = STRUCTURES.iter().find(|(name, _)| *name == cache) {
        return vec![(*structure).to_owned()];
    }
    let mut names = vec![cache.to_owned()];
    if let Some(of) = cache.strip_suffix("_cache") {
        names.extend([format!("{of}_info"), of.to_owned(), format!("{of}_struct")]);
    }
    names
}

/// The names of the fields that lead to the lock at `offset` in `whole`.
fn lock_at(types: &Btf<'_>, whole: BtfType<'_>, offset: u64, depth: u32) -> Option<Vec<String>> {
    let named = |ty: &BtfType<'_>| {
        let name = ty.name().and_then(|name| name.to_str()).unwrap_or("");
        LOCKS.contains(&name)
    };
    let inner = whole.skip_mods_and_typedefs();
    if offset == 0 && (named(&whole) || named(&inner)) {
        return Some(Vec::new());
    }
    let composite = Composite::try_from(inner).ok()?;
    let depth = depth.checked_sub(1)?;
    let mut members: Vec<_> = composite
        .iter()
        .filter_map(|member| match member.attr {
            MemberAttr::Normal { offset: bits } if u64::from(bits / 8) <= offset => {
                Some((u64::from(bits / 8), member))
            }
            _ => None,
        })
        .collect();
    // The last one that begins before the place is the one that it is in, but for unions.
    members.sort_by_key(|(begin, _)| std::cmp::Reverse(*begin));
    members.into_iter().find_map(|(begin, member)| {
        let ty = types.type_by_id::<BtfType<'_>>(member.ty)?;
        let rest = lock_at(types, ty, offset - begin, depth)?;
        let name = member.name.and_then(|name| name.to_str());
        let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
        Some(name.into_iter().chain(rest).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_of_the_structure_that_its_name_says() {
        assert_eq!(candidates("filp"), ["file"]);
        assert_eq!(candidates("dentry"), ["dentry"]);
        assert!(candidates("ext4_inode_cache").contains(&"ext4_inode_info".to_owned()));
    }

    #[test]
    fn the_lock_of_an_inode_is_found_where_it_is_and_only_there() {
        let Ok(types) = Btf::from_vmlinux() else {
            eprintln!("skipped: this kernel has no type information");
            return;
        };
        let found = (0..2_000).filter_map(|offset| field(&types, "inode_cache", offset));
        let fields: Vec<_> = found
            .map(|(structure, field)| format!("{structure}.{field}"))
            .collect();
        for expected in ["inode.i_lock", "inode.i_rwsem", "inode.i_rwsem.wait_lock"] {
            assert_eq!(
                fields.iter().filter(|field| *field == expected).count(),
                1,
                "{fields:?}"
            );
        }
    }
}
