// SPDX-License-Identifier: GPL-2.0
/* What an empty probe costs: the time between the last thing that one program does and the first
 * thing that the next one does, on two functions of which one calls the other almost at once. Each
 * hold that is measured contains just that. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "layout.h"

struct calibration {
	u64 since;
	u64 count;
	u64 sample[SAMPLES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct calibration);
} calibrations SEC(".maps");

/* The process that calls the function. */
const volatile u32 caller;

static __always_inline struct calibration *own(void)
{
	u32 only = 0;

	if (bpf_get_current_pid_tgid() >> 32 != caller)
		return 0;
	return bpf_map_lookup_elem(&calibrations, &only);
}

SEC("kprobe.multi")
int outer_entered(struct pt_regs *ctx)
{
	struct calibration *calibration = own();

	(void)ctx;
	if (calibration)
		calibration->since = bpf_ktime_get_ns();
	return 0;
}

SEC("kprobe.multi")
int inner_entered(struct pt_regs *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct calibration *calibration = own();

	(void)ctx;
	if (!calibration || !calibration->since)
		return 0;
	if (now >= calibration->since && calibration->count < SAMPLES)
		calibration->sample[calibration->count++ % SAMPLES] = now - calibration->since;
	calibration->since = 0;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
