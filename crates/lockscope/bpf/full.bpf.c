// SPDX-License-Identifier: GPL-2.0
/* The full mode: every acquisition of the primitives of LockScope table 3, by probes on the entry
 * of the lock and unlock functions. Waits are seen where the kernel announces them: a return probe
 * on a spin lock can hang the machine. */
#include "record.h"

/* Mutexes and semaphores that a workload used, and how often each was initialised since: the
 * kernel calls functions for that, which it does not for spin locks. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, u32);
} births SEC(".maps");

extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot pcpu_hot __ksym __weak;

/* Serving a softirq, a hardware interrupt or an NMI: bits of the preemption count. */
#define INTERRUPTS 0x00ff0100

/* Whether this is not the current task's own doing (LockScope §5.2 leaves such locks out). */
static __always_inline bool in_interrupt(void)
{
	int count = 0;

	if (bpf_ksym_exists(&__preempt_count)) {
		const int *here = bpf_this_cpu_ptr(&__preempt_count);
		count = *here;
	} else if (bpf_ksym_exists(&pcpu_hot)) {
		const struct pcpu_hot *here = bpf_this_cpu_ptr(&pcpu_hot);
		count = here->preempt_count;
	}
	return count & INTERRUPTS;
}

static __always_inline u32 generation_of(u64 lock)
{
	u32 *generation = bpf_map_lookup_elem(&births, &lock);
	u32 none = 0;

	if (generation)
		return *generation;
	if (bpf_map_update_elem(&births, &lock, &none, BPF_NOEXIST))
		lose(LOST_BIRTHS);
	return 0;
}

SEC("kprobe.multi")
int lock_entered(struct pt_regs *ctx)
{
	int workload = current_workload();
	struct use_key key = {};
	struct task *task;
	struct use *use;
	u64 cookie, now;

	if (workload < 0 || in_interrupt())
		return 0;
	cookie = bpf_get_attach_cookie(ctx);
	key.lock = ctx->di;
	key.primitive = cookie;
	key.workload = workload;
	bpf_probe_read_kernel(&key.site, sizeof(key.site), (void *)ctx->sp);
	if (cookie & BORN)
		key.generation = generation_of(key.lock);
	now = bpf_ktime_get_ns();
	use = row(ctx, &key, now, true);
	if (!use)
		return 0;
	if (!(cookie & TRIES))
		use->acquired += 1;
	task = claim_slot();
	if (task)
		hold(task, &key, now, cookie & TRIES, cookie & SPINS ? switches() : SLEEPS);
	return 0;
}

SEC("kprobe.multi")
int lock_released(struct pt_regs *ctx)
{
	release(ctx->di);
	return 0;
}

SEC("kprobe.multi")
int lock_born(struct pt_regs *ctx)
{
	u64 lock = ctx->di;
	u32 *generation = bpf_map_lookup_elem(&births, &lock);

	if (generation)
		__sync_fetch_and_add(generation, 1);
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
	if (wait)
		wait->since = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/contention_end")
int wait_ended(u64 *ctx)
{
	struct task *task = own_slot();
	u64 lock = ctx[0];
	int error = ctx[1];
	struct wait *wait;
	struct use *use;
	u64 now;
	u32 at;

	if (!task || in_interrupt())
		return 0;
	wait = end_wait(task, lock);
	at = find_held(task, lock);
	if (!wait || at >= HELD)
		return 0;
	now = bpf_ktime_get_ns();
	use = row_of(&task->held[at]);
	if (error) {
		/* Interrupted: the lock was not taken after all. */
		if (use && !task->held[at].tries)
			use->acquired -= 1;
		let_go(task, at);
		return 0;
	}
	if (use)
		waited(use, now - wait->since);
	task->held[at].since = now;
	return 0;
}
