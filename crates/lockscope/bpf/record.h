/* SPDX-License-Identifier: GPL-2.0 */
/* What both modes have in common: the tables that are filled.
 *
 * These programs run inside the kernel's lock functions. So everything is allocated before they are
 * attached, no program prints or sends anything, none of them probes a return, and whatever cannot
 * be kept is counted. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "layout.h"
#include "object.h"
#include "workload.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct use_key);
	__type(value, struct use);
} uses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 32768);
	__uint(key_size, sizeof(u32));
	__uint(value_size, FRAMES * sizeof(u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSSES);
	__type(key, u32);
	__type(value, u64);
} losses SEC(".maps");

/* A lock that a task has taken, or is about to take. */
struct held {
	u64 lock;
	u64 since;
	/* What the programs had taken of the task's time until then. */
	u64 taken_ns;
	u64 site;
	u32 generation;
	u16 primitive;
	u8 workload;
	u8 zero;
	u64 flags;
	/* How often the task had been switched away from, if it must not be while it holds the lock. */
	u64 switches;
};

/* A lock that a task waits for. */
struct wait {
	u64 lock;
	u64 since;
	u64 taken_ns;
	/* How long the walk of the stack took, which came before. */
	u64 walk_ns;
	u64 stack;
	u64 flags;
};

/* What a task holds and waits for. Only the task itself uses its slot, so nothing here is atomic.
 * A table that is indexed by the low bits of the id needs neither a lock nor an allocation nor a
 * word from a task that exits; two living tasks whose ids are a multiple of TASKS apart lose each
 * other's times, and no counts. */
struct task {
	u32 tid;
	u32 depth;
	u32 victim;
	u32 waiting;
	u64 mmap_lock;
	u64 mmap_wait_ns;
	/* What the programs have taken of the task's time, and tasks that were given its processor. */
	u64 taken_ns;
	/* Since when another task has its processor, though it did not go to sleep; 0 if it has it. */
	u64 preempted_at;
	struct held held[HELD];
	struct wait waits[WAITS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TASKS);
	__type(key, u32);
	__type(value, struct task);
} tasks SEC(".maps");

static __always_inline void lose(u32 what)
{
	u64 *count = bpf_map_lookup_elem(&losses, &what);

	if (count)
		*count += 1;
}

/* The slot of the current task; emptied, if another task had it. */
static __always_inline struct task *claim_slot(void)
{
	u32 tid = bpf_get_current_pid_tgid();
	u32 index = tid % TASKS;
	struct task *task = bpf_map_lookup_elem(&tasks, &index);

	if (task && task->tid != tid) {
		task->tid = tid;
		task->depth = 0;
		task->waiting = 0;
		task->mmap_lock = 0;
		task->preempted_at = 0;
	}
	return task;
}

/* The slot of the current task if it has one: only members of workloads do. */
static __always_inline struct task *own_slot(void)
{
	u32 tid = bpf_get_current_pid_tgid();
	u32 index = tid % TASKS;
	struct task *task = bpf_map_lookup_elem(&tasks, &index);

	return task && task->tid == tid ? task : 0;
}

/* The row of `key`, made if it is new, with the call chain of `ctx` and the object of the lock if these
 * are wanted. */
static __always_inline struct use *row(void *ctx, const struct use_key *key, u64 now, bool chain,
				       bool object)
{
	struct use *use = bpf_map_lookup_elem(&uses, key);

	if (!use) {
		struct use empty = {};

		if (chain) {
			s64 stack = bpf_get_stackid(ctx, &stacks, 0);

			if (stack >= 0)
				empty.stack = stack + 1;
			else
				lose(LOST_STACKS);
		}
		if (object)
			note_origin(key->lock);
		/* Another processor may have been first, which is as good. */
		bpf_map_update_elem(&uses, key, &empty, BPF_NOEXIST);
		use = bpf_map_lookup_elem(&uses, key);
		if (!use) {
			lose(LOST_ACQUISITIONS);
			return 0;
		}
	}
	if (!use->first_ns)
		use->first_ns = now - config.start_ns;
	use->last_ns = now - config.start_ns;
	return use;
}

/* The time from `since` to `now`, less what the programs took of it. Clocks of two processors may
 * differ, and what an empty probe costs is an estimate: never below zero. */
static __always_inline u64 elapsed(u64 since, u64 now, u64 taken_ns)
{
	u64 ns = now > since ? now - since : 0;

	return ns > taken_ns ? ns - taken_ns : 0;
}

/* Accounts a program that began at `began` to the task, up to now, which is returned: the last
 * thing that a program does which begins a time. */
static __always_inline u64 end_program(struct task *task, u64 began, u64 probe_ns)
{
	u64 now = bpf_ktime_get_ns();

	task->taken_ns += elapsed(began, now, 0) + probe_ns;
	return now;
}

static __always_inline void waited(struct use *use, u64 ns)
{
	use->contended += 1;
	use->wait_ns += ns;
	if (ns > use->wait_max_ns)
		use->wait_max_ns = ns;
}

/* Notes that the task begins to wait for `lock`, and says where; NULL if it did already (a mutex that
 * first spins and then sleeps begins twice) or waits too deep. Waits nest: who sleeps for a mutex
 * takes the lock of a run queue, and an interrupt any lock. */
static __always_inline struct wait *begin_wait(struct task *task, u64 lock)
{
	u32 waiting = task->waiting;

	if (waiting && task->waits[(waiting - 1) % WAITS].lock == lock)
		return 0;
	if (waiting >= WAITS) {
		/* Ends that never came: a task that was ended in its sleep, and its id given away. */
		task->waiting = 0;
		lose(LOST_TIMES);
		return 0;
	}
	task->waiting = waiting + 1;
	task->waits[waiting % WAITS].lock = lock;
	return &task->waits[waiting % WAITS];
}

/* The wait for `lock`, which ends now with all that began after it; NULL if it was not seen. */
static __always_inline struct wait *end_wait(struct task *task, u64 lock)
{
	u32 waiting = task->waiting;

	for (u32 i = 1; i <= WAITS; i++) {
		u32 at = waiting - i;

		if (at >= WAITS)
			break;
		if (task->waits[at].lock == lock) {
			task->waiting = at;
			return &task->waits[at];
		}
	}
	return 0;
}

#define SLEEPS (~0ULL)

/* How often the current task was switched away from. */
static __always_inline u64 switches(void)
{
	struct task_struct *current = bpf_get_current_task_btf();

	return current->nvcsw + current->nivcsw;
}

/* Whether an entry is of an attempt that failed: its lock is free, or another task's, or the task was
 * switched away from since, which it is not while it holds a lock that spins. */
static __always_inline bool has_failed(const struct held *held, u64 switched)
{
	u64 word = 0;

	if (held->flags & SPINS && held->switches != switched)
		return true;
	if (!(held->flags & TRIES))
		return false;
	if (bpf_probe_read_kernel(&word, held->flags & SPINS ? 4 : 8, (void *)held->lock))
		return true;
	if (held->flags & OWNED)
		return (word & ~7ULL) != (u64)bpf_get_current_task_btf();
	return !word;
}

/* A place for a lock that is taken where every place is in use. */
static __always_inline u32 free_place(struct task *task)
{
	u64 switched = switches();

	for (u32 i = 0; i < HELD; i++) {
		if (has_failed(&task->held[i], switched))
			return i;
	}
	lose(LOST_TIMES);
	return task->victim++ % HELD;
}

/* Notes that the task has `key`'s lock from now on. A task takes a lock once at a time, unless it
 * reads; so another entry for it is of an attempt that failed. The caller says since when. */
static __always_inline struct held *hold(struct task *task, const struct use_key *key, u64 flags,
					 u64 switched)
{
	u32 depth = task->depth;
	u32 at = depth;

	for (u32 i = 0; i < HELD; i++) {
		if (i >= depth)
			break;
		if (task->held[i].lock == key->lock &&
		    (task->held[i].flags & TRIES || !(flags & READS))) {
			at = i;
			break;
		}
	}
	if (at >= HELD)
		at = free_place(task);
	else if (at == depth)
		task->depth = depth + 1;
	struct held *held = &task->held[at % HELD];
	held->lock = key->lock;
	held->site = key->site;
	held->generation = key->generation;
	held->primitive = key->primitive;
	held->workload = key->workload;
	held->flags = flags;
	held->switches = switched;
	return held;
}

/* Where `lock` is among what the task holds, the latest first; HELD if it is not. */
static __always_inline u32 find_held(const struct task *task, u64 lock)
{
	u32 depth = task->depth;

	for (u32 i = 1; i <= HELD; i++) {
		u32 at = depth - i;

		if (at >= HELD)
			break;
		if (task->held[at].lock == lock)
			return at;
	}
	return HELD;
}

static __always_inline void let_go(struct task *task, u32 at)
{
	u32 last = task->depth - 1;

	if (at < HELD && last < HELD) {
		task->held[at] = task->held[last];
		task->depth = last;
	}
}

/* The row that `held` is accounted to. */
static __always_inline struct use *row_of(const struct held *held)
{
	struct use_key key = {
		.lock = held->lock,
		.site = held->site,
		.generation = held->generation,
		.primitive = held->primitive,
		.workload = held->workload,
	};
	return bpf_map_lookup_elem(&uses, &key);
}

/* When a lock was let go of last by a task that excluded all others. The next holder has it since
 * then at the earliest: so a wait is seen that the kernel does not announce, such as that of the
 * first task that spins. Two locks may meet in a place and lose each other's times. */
struct release {
	u64 lock;
	u64 at;
};

#ifdef EVERY_RELEASE
#define RELEASES 16384

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RELEASES);
	__type(key, u32);
	__type(value, struct release);
} releases SEC(".maps");

static __always_inline struct release *release_of(u64 lock)
{
	u32 index = (lock * 0x9e3779b97f4a7c15ULL) >> 50;

	return bpf_map_lookup_elem(&releases, &index);
}
#else
static __always_inline struct release *release_of(u64 lock)
{
	(void)lock;
	return 0;
}
#endif

/* Accounts the hold of `lock`, which ended at `now`. */
static __always_inline void release(u64 lock, u64 now, u64 probe_ns)
{
	struct task *task = own_slot();
	u64 since, taken_ns;
	u32 at;

	if (!task)
		return;
	at = find_held(task, lock);
	if (at >= HELD)
		goto out;
	struct held *held = &task->held[at];
	struct use *use = row_of(held);
	struct release *last = release_of(lock);

	/* The lock of a run queue is taken by one task and released by the next one. What this task
	 * releases after it was switched to again is not what it took then. */
	if (held->switches != SLEEPS && held->switches != switches())
		use = 0;
	since = held->since;
	taken_ns = task->taken_ns - held->taken_ns + probe_ns;
	if (use) {
		if (last && last->lock == lock && last->at > since && last->at < now) {
			waited(use, elapsed(since, last->at, 0));
			since = last->at;
		}
		u64 ns = elapsed(since, now, taken_ns);

		use->held += 1;
		use->hold_ns += ns;
		if (ns > use->hold_max_ns)
			use->hold_max_ns = ns;
		if (held->flags & TRIES)
			use->acquired += 1;
	}
	bool excludes = !(held->flags & READS);
	let_go(task, at);
	if (last && excludes) {
		last->lock = lock;
		last->at = end_program(task, now, probe_ns);
		return;
	}
out:
	end_program(task, now, probe_ns);
}

/* Processes inherit their workload. */
SEC("tp_btf/sched_process_fork")
int process_forked(u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0];
	struct task_struct *child = (void *)ctx[1];
	u32 from = parent->tgid;
	u32 to = child->tgid;
	u32 *workload;

	if (from == to)
		return 0;
	workload = bpf_map_lookup_elem(&processes, &from);
	if (workload)
		bpf_map_update_elem(&processes, &to, workload, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int process_exited(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 process = task->tgid;

	if (task->pid == task->tgid)
		bpf_map_delete_elem(&processes, &process);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
