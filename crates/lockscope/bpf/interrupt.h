/* SPDX-License-Identifier: GPL-2.0 */
/* What is not the current task's own doing. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

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
