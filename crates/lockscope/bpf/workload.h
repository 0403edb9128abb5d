/* SPDX-License-Identifier: GPL-2.0 */
/* Which tasks are of which workload. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "layout.h"

const volatile struct config config;

/* Workloads that are given by their processes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, u32);
} processes SEC(".maps");

/* The workload that the current task belongs to, or -1. */
static __always_inline int current_workload(void)
{
	u64 ancestor = 0;
	u32 level = ~0;

	if (config.processes) {
		u32 process = bpf_get_current_pid_tgid() >> 32;
		u32 *workload = bpf_map_lookup_elem(&processes, &process);
		if (workload)
			return *workload;
	}
	for (u32 i = 0; i < TARGETS; i++) {
		if (i >= config.targets)
			break;
		if (config.target[i].level != level) {
			level = config.target[i].level;
			ancestor = bpf_get_current_ancestor_cgroup_id(level);
		}
		if (ancestor == config.target[i].cgroup)
			return config.target[i].workload;
	}
	return -1;
}
