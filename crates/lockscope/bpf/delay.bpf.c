// SPDX-License-Identifier: GPL-2.0
/* Causal isolation: makes the holds of one lock by the workload longer by a known time.
 *
 * The program is on the entry of the functions that release locks. The lock is still held there, its
 * address is the first argument, and an attempt to take a lock that failed never comes there. A probe on
 * the return of a function that takes locks would have none of the three, and such probes have hung
 * machines. */
#include "workload.h"
#include "interrupt.h"

/* Looks at the clock that a delay ends after, should the clock stand still. */
#define LOOKS (1 << 16)

/* Written while the workloads stand still. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct delay);
} delays SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct delayed);
} sums SEC(".maps");

/* Whether the time is over: not 0 ends the loop. */
static long is_over(u32 look, u64 *until)
{
	(void)look;
	return bpf_ktime_get_ns() >= *until;
}

SEC("kprobe.multi")
int lock_kept(struct pt_regs *ctx)
{
	u32 only = 0;
	struct delay *delay = bpf_map_lookup_elem(&delays, &only);
	struct delayed *sum;
	u64 began, until;

	if (!delay || ctx->di != delay->lock)
		return 0;
	if (current_workload() < 0 || in_interrupt())
		return 0;
	sum = bpf_map_lookup_elem(&sums, &only);
	if (!sum)
		return 0;
	began = bpf_ktime_get_ns();
	until = began + delay->ns;
	if (delay->ns)
		bpf_loop(LOOKS, is_over, &until, 0);
	sum->holds += 1;
	sum->ns += bpf_ktime_get_ns() - began;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
