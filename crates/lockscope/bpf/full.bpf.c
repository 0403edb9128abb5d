// SPDX-License-Identifier: GPL-2.0
/* The full mode: every acquisition of the primitives of LockScope table 3, by probes on the entry
 * of the lock and unlock functions. Waits are seen where the kernel announces them: a return probe
 * on a spin lock can hang the machine. */
#define EVERY_RELEASE
#include "record.h"
#include "interrupt.h"

/* A lock that a workload used. Which one it is of those that were at its address: how often it was
 * initialised there, where the kernel calls a function for that, and how often the object ended that
 * it was a part of. */
struct birth {
	/* Where its object begins; 0 if it is in none that is allocated. */
	u64 object;
	union {
		struct {
			/* How often an object at that address had begun or ended. */
			u32 seen;
			u32 generation;
		};
		u64 both;
	};
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct birth);
} births SEC(".maps");

/* The objects of these locks, and how often one began or ended at their address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, u32);
} objects SEC(".maps");

/* How often an object began or ended at `object`, counted from now on. */
static __always_inline u32 watch(u64 object)
{
	u32 *count, none = 0;

	if (!object)
		return 0;
	count = bpf_map_lookup_elem(&objects, &object);
	if (count)
		return *count;
	if (bpf_map_update_elem(&objects, &object, &none, BPF_NOEXIST))
		lose(LOST_BIRTHS);
	return 0;
}

static __always_inline u32 generation_of(u64 lock)
{
	struct birth *birth = bpf_map_lookup_elem(&births, &lock);
	struct birth old, new = {};
	u64 object;
	u32 *count;

	if (!birth) {
		new.object = object_of(lock, 0);
		new.seen = watch(new.object);
		if (bpf_map_update_elem(&births, &lock, &new, BPF_NOEXIST))
			lose(LOST_BIRTHS);
		return 0;
	}
	object = birth->object;
	if (!object)
		return birth->generation;
	count = bpf_map_lookup_elem(&objects, &object);
	old.both = birth->both;
	if (!count || *count == old.seen)
		return old.generation;
	/* Another object now, which may begin elsewhere. */
	new.object = object_of(lock, 0);
	new.seen = watch(new.object);
	new.generation = old.generation + 1;
	/* Another processor may have been first. */
	if (__sync_val_compare_and_swap(&birth->both, old.both, new.both) == old.both)
		birth->object = new.object;
	return birth->generation;
}

SEC("kprobe.multi")
int lock_entered(struct pt_regs *ctx)
{
	u64 began = bpf_ktime_get_ns();
	int workload = current_workload();
	struct use_key key = {};
	struct task *task;
	struct held *held;
	struct use *use;
	u64 cookie, now;

	if (workload < 0)
		return 0;
	if (in_interrupt()) {
		task = own_slot();
		if (task)
			end_program(task, began, config.probe_ns);
		return 0;
	}
	task = claim_slot();
	if (!task)
		return 0;
	cookie = bpf_get_attach_cookie(ctx);
	key.lock = ctx->di;
	key.primitive = cookie;
	key.workload = workload;
	bpf_probe_read_kernel(&key.site, sizeof(key.site), (void *)ctx->sp);
	key.generation = generation_of(key.lock);
	use = row(ctx, &key, began, true, true);
	if (!use) {
		end_program(task, began, config.probe_ns);
		return 0;
	}
	if (!(cookie & TRIES))
		use->acquired += 1;
	held = hold(task, &key, cookie, cookie & SPINS ? switches() : SLEEPS);
	now = end_program(task, began, config.probe_ns);
	held->taken_ns = task->taken_ns;
	held->since = now;
	return 0;
}

SEC("kprobe.multi")
int lock_released(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_ns();

	release(ctx->di, now, config.probe_ns);
	return 0;
}

SEC("kprobe.multi")
int lock_born(struct pt_regs *ctx)
{
	u64 began = bpf_ktime_get_ns();
	u64 lock = ctx->di;
	struct birth *birth = bpf_map_lookup_elem(&births, &lock);
	struct task *task = own_slot();

	if (birth)
		__sync_fetch_and_add(&birth->generation, 1);
	if (task)
		end_program(task, began, config.probe_ns);
	return 0;
}

/* Something begins or ends at `object`. Both are looked at: the kernel frees many at once, and
 * allocates many at once, without saying so. */
static __always_inline int renewed(u64 object)
{
	u64 began = bpf_ktime_get_ns();
	u32 *count = bpf_map_lookup_elem(&objects, &object);
	struct task *task = own_slot();

	if (count)
		__sync_fetch_and_add(count, 1);
	if (task)
		end_program(task, began, 0);
	return 0;
}

SEC("raw_tp/kmem_cache_alloc")
int object_allocated(u64 *ctx)
{
	return renewed(ctx[1]);
}

SEC("raw_tp/kmem_cache_free")
int object_freed(u64 *ctx)
{
	return renewed(ctx[1]);
}

SEC("raw_tp/kmalloc")
int memory_allocated(u64 *ctx)
{
	return renewed(ctx[1]);
}

SEC("raw_tp/kfree")
int memory_freed(u64 *ctx)
{
	return renewed(ctx[1]);
}

/* The slot of `thread`, if it has one. */
static __always_inline struct task *slot_of(u32 thread)
{
	u32 index = thread % TASKS;
	struct task *task = bpf_map_lookup_elem(&tasks, &index);

	return task && task->tid == thread ? task : 0;
}

/* How long a lock is held is the holder's doing: not for how long another task had its processor before it
 * came to release it. A holder that goes to sleep holds it meanwhile. */
SEC("tp_btf/sched_switch")
int switched(u64 *ctx)
{
	struct task_struct *from = (void *)ctx[1];
	struct task_struct *to = (void *)ctx[2];
	u64 now = bpf_ktime_get_ns();
	bool runnable = !(u32)ctx[3];
	struct task *task = slot_of(from->pid);

	if (task)
		task->preempted_at = runnable ? now : 0;
	task = slot_of(to->pid);
	if (task && task->preempted_at) {
		task->taken_ns += elapsed(task->preempted_at, now, 0);
		task->preempted_at = 0;
	}
	return 0;
}

SEC("tp_btf/contention_begin")
int wait_began(u64 *ctx)
{
	struct task *task = own_slot();
	struct wait *wait;

	if (!task || in_interrupt())
		return 0;
	wait = begin_wait(task, ctx[0]);
	if (!wait)
		return 0;
	wait->taken_ns = task->taken_ns;
	wait->since = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/contention_end")
int wait_ended(u64 *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct task *task = own_slot();
	u64 lock = ctx[0];
	int error = ctx[1];
	struct held *held;
	struct wait *wait;
	struct use *use;
	u32 at;

	if (!task || in_interrupt())
		return 0;
	wait = end_wait(task, lock);
	at = find_held(task, lock);
	if (!wait || at >= HELD)
		goto out;
	held = &task->held[at];
	use = row_of(held);
	if (error) {
		/* Interrupted: the lock was not taken after all. */
		if (use && !(held->flags & TRIES))
			use->acquired -= 1;
		let_go(task, at);
		goto out;
	}
	if (use)
		waited(use, elapsed(wait->since, now, task->taken_ns - wait->taken_ns));
	now = end_program(task, now, 0);
	held->taken_ns = task->taken_ns;
	held->since = now;
	return 0;
out:
	end_program(task, now, 0);
	return 0;
}
