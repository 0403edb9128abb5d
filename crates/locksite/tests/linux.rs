//! Call sites of a real kernel whose locks were verified by hand, in its source and its machine
//! code. They need the lab's kernel: `lab/fetch debug && lab/fetch source`, then
//! `cargo test -p leasehold-locksite --test linux -- --ignored`.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use leasehold_locksite::{Code, Kernel, Paths};

/// A function of Linux 6.12, and a lock that it takes: by itself, in what is inlined into it, or
/// through macros.
const SITES: [(&str, &str); 34] = [
    ("__pud_alloc", "mm_struct.page_table_lock"),
    ("atkbd_event_work", "atkbd.mutex"),
    ("bdev_thaw", "block_device.bd_fsfreeze_mutex"),
    ("d_parent_ino", "lockref.lock in dentry.d_lockref"),
    ("dma_pool_alloc", "dma_pool.lock"),
    ("dmar_msi_read", "intel_iommu.register_lock"),
    ("do_close_on_exec", "files_struct.file_lock"),
    ("dquot_add_inodes", "dquot.dq_dqb_lock"),
    ("environ_read", "mm_struct.arg_lock"),
    ("ext4_inline_data_truncate", "ext4_inode_info.i_data_sem"),
    (
        "first_packet_length",
        "sk_buff_head.lock in sock.sk_receive_queue",
    ),
    ("genl_lock", "genl_mutex"),
    (
        "inet_csk_reqsk_queue_add",
        "request_sock_queue.rskq_lock in inet_connection_sock.icsk_accept_queue",
    ),
    ("io_ring_exit_work", "io_ring_ctx.uring_lock"),
    ("irq_create_fwspec_mapping", "irq_domain.mutex"),
    (
        "jbd2_trans_will_send_data_barrier",
        "journal_s.j_state_lock",
    ),
    ("lock_sock_nested", "socket_lock_t.slock in sock.sk_lock"),
    ("process_echoes", "n_tty_data.output_lock"),
    ("ptp_clock_release", "ptp_clock.tsevqs_lock"),
    ("pipe_release", "inode.i_lock"),
    ("put_swap_folio", "swap_info_struct.lock"),
    ("rcu_sync_exit", "wait_queue_head.lock in rcu_sync.gp_wait"),
    ("rpm_resume", "dev_pm_info.lock in device.power"),
    ("rtc_set_alarm", "rtc_device.ops_lock"),
    ("seq_read_iter", "seq_file.lock"),
    ("serio_driver_probe", "serio.drv_mutex"),
    (
        "filemap_remove_folio",
        "xarray.xa_lock in address_space.i_pages",
    ),
    ("timerfd_show", "wait_queue_head.lock in timerfd_ctx.wqh"),
    (
        "try_wait_for_completion",
        "swait_queue_head.lock in completion.wait",
    ),
    ("tty_write_lock", "tty_struct.atomic_write_lock"),
    ("unix_peek_fpl", "unix_peek_lock"),
    ("vfs_readlink", "inode.i_lock"),
    ("vmpressure_work_fn", "vmpressure.events_lock"),
    (
        "xfrm_state_insert",
        "netns_xfrm.xfrm_state_lock in net.xfrm",
    ),
];

fn is_primitive(name: &str) -> bool {
    let named = |prefix: &str| name.starts_with(prefix) && !name.contains("unlock");
    [
        "_raw_spin_",
        "_raw_read_",
        "_raw_write_",
        "mutex_lock",
        "mutex_trylock",
        "down_read",
        "down_write",
    ]
    .into_iter()
    .any(named)
}

#[test]
#[ignore = "needs lab/fetch debug and lab/fetch source"]
fn locks_of_linux_are_those_that_were_verified_by_hand() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lab = std::env::var_os("LEASEHOLD_LAB").map_or(root.join("target/lab"), PathBuf::from);
    let paths = Paths::of_package(&lab.join("kernel"), &lab.join("source")).unwrap();
    let calls = common::calls(&fs::read(&paths.vmlinux).unwrap());
    let kernel = Kernel::open(&paths).unwrap();
    let mut wrong = Vec::new();
    for (function, expected) in SITES {
        let none = Vec::new();
        let calls = calls.get(function).unwrap_or(&none).iter();
        let found: BTreeSet<String> = calls
            .filter(|(callee, _)| is_primitive(callee))
            .map(|(callee, after)| {
                kernel
                    .site(callee, &[Code::Linked(*after)])
                    .unwrap()
                    .lock
                    .to_string()
            })
            .collect();
        if !found.contains(expected) {
            wrong.push(format!(
                "{function}: found {found:?}, expected {expected:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
