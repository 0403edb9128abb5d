// SPDX-License-Identifier: GPL-2.0
/* The contended mode, for kernels without kprobes: acquisitions that had to wait, by the kernel's
 * own tracepoints; and of `mmap_lock`, which has tracepoints of its own, all of them. */
#include "record.h"

/* `mmap_lock` for reading and for writing, after the 64 combinations of the tracepoint's flags. */
#define MMAP_LOCK 64
#define CONTENTION_FLAGS 63
/* Call chains are numbered from 0. */
#define NO_STACK (~0ULL)
/* What a wait takes that ends at once: its lock was free again before the stack was walked. */
#define AT_ONCE_NS 500

/* Locks that are taken in interrupts are told by their call chains, later (LockScope §5.2): a kernel
 * like this one may not say where its preemption count is. */

SEC("tp_btf/contention_begin")
int wait_began(u64 *ctx)
{
	int workload = current_workload();
	u64 began = bpf_ktime_get_ns();
	u64 lock = ctx[0];
	struct task *task;
	struct wait *wait;
	s64 stack;

	if (workload < 0)
		return 0;
	task = claim_slot();
	wait = task ? begin_wait(task, lock) : 0;
	if (!wait)
		return 0;
	wait->flags = ctx[1];
	if (lock != task->mmap_lock) {
		/* Taken now, while there is time, rather than when the lock is held. */
		stack = bpf_get_stackid(ctx, &stacks, 0);
		if (stack < 0)
			lose(LOST_STACKS);
		wait->stack = stack < 0 ? NO_STACK : stack;
	}
	wait->since = bpf_ktime_get_ns();
	wait->walk_ns = elapsed(began, wait->since, 0);
	return 0;
}

SEC("tp_btf/contention_end")
int wait_ended(u64 *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct task *task = own_slot();
	struct use_key key = {};
	u64 lock = ctx[0];
	int error = ctx[1];
	struct wait *wait;
	struct use *use;
	int workload;
	u64 ns;

	wait = task ? end_wait(task, lock) : 0;
	if (!wait || error)
		return 0;
	ns = elapsed(wait->since, now, 0);
	/* A lock that was still taken after the walk would have been waited for without it, too. */
	if (ns > AT_ONCE_NS)
		ns += wait->walk_ns;
	if (lock == task->mmap_lock) {
		task->mmap_wait_ns += ns;
		return 0;
	}
	workload = current_workload();
	if (workload < 0)
		return 0;
	key.lock = lock;
	key.site = wait->stack;
	key.primitive = wait->flags & CONTENTION_FLAGS;
	key.workload = workload;
	use = row(ctx, &key, now, false, true);
	if (!use)
		return 0;
	use->acquired += 1;
	waited(use, ns);
	return 0;
}

SEC("tp_btf/mmap_lock_start_locking")
int mmap_lock_wanted(u64 *ctx)
{
	struct mm_struct *mm = (void *)ctx[0];
	struct task *task;

	if (current_workload() < 0)
		return 0;
	task = claim_slot();
	if (!task)
		return 0;
	task->mmap_lock = (u64)&mm->mmap_lock;
	task->mmap_wait_ns = 0;
	return 0;
}

SEC("tp_btf/mmap_lock_acquire_returned")
int mmap_lock_taken(u64 *ctx)
{
	struct mm_struct *mm = (void *)ctx[0];
	bool write = (u8)ctx[1];
	bool success = (u8)ctx[2];
	u64 lock = (u64)&mm->mmap_lock;
	struct task *task = own_slot();
	struct use_key key = {};
	struct use *use;
	struct held *held;
	int workload;
	u64 now;

	if (!task || task->mmap_lock != lock)
		return 0;
	task->mmap_lock = 0;
	if (!success)
		return 0;
	workload = current_workload();
	if (workload < 0)
		return 0;
	now = bpf_ktime_get_ns();
	key.lock = lock;
	key.site = NO_STACK;
	key.generation = mm->context.ctx_id;
	key.primitive = MMAP_LOCK + write;
	key.workload = workload;
	/* Which object this is, its name says. */
	use = row(ctx, &key, now, true, false);
	if (!use)
		return 0;
	use->acquired += 1;
	if (task->mmap_wait_ns)
		waited(use, task->mmap_wait_ns);
	held = hold(task, &key, write ? 0 : READS, SLEEPS);
	held->taken_ns = task->taken_ns;
	held->since = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/mmap_lock_released")
int mmap_lock_released(u64 *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct mm_struct *mm = (void *)ctx[0];

	release((u64)&mm->mmap_lock, now, config.probe_ns);
	return 0;
}
