/* SPDX-License-Identifier: GPL-2.0 */
/* What the programs and the loader exchange. `src/tracer/layout.rs` is the other side. */
#pragma once

/* Targets that a recording may have. */
#define TARGETS 16
/* Locks that a task may hold at a time and have their times measured. */
#define HELD 16
/* Locks that a task may wait for at a time: one, and others while it sleeps or is interrupted. */
#define WAITS 4
/* Tasks that are kept apart by the low bits of their ids. */
#define TASKS 16384
/* Frames of a call chain. */
#define FRAMES 24

/* A control group whose members are a workload. */
struct target {
	u64 cgroup;
	u32 level;
	u32 workload;
};

struct config {
	u64 start_ns;
	u32 targets;
	/* Whether there are workloads that are given by their processes. */
	u32 processes;
	/* What an empty probe costs, by which each measured time is too long. */
	u64 probe_ns;
	struct target target[TARGETS];
};

/* One `Use` of the trace. `site` is a return address in the full mode; in the contended mode, the
 * number of a call chain. */
struct use_key {
	u64 lock;
	u64 site;
	u32 generation;
	u16 primitive;
	u8 workload;
	u8 zero;
};

struct use {
	u64 acquired;
	u64 contended;
	u64 held;
	u64 hold_ns;
	u64 hold_max_ns;
	u64 wait_ns;
	u64 wait_max_ns;
	u64 first_ns;
	u64 last_ns;
	/* Number of a call chain plus one; 0 is none. */
	u64 stack;
};

/* The object that a lock is in. */
struct origin {
	u64 object;
	/* What its slab has objects of: a key of the table of caches. */
	u64 cache;
};

#define NAME 40

struct cache {
	u64 users;
	char name[NAME];
};

/* Of a probe on a lock function: its number in the low half, and these. */
#define TRIES (1ULL << 16)
#define SPINS (1ULL << 17)
/* Several may hold the lock at a time. */
#define READS (1ULL << 18)
/* The first word of the lock says which task has it. */
#define OWNED (1ULL << 19)

/* The lock whose holds are made longer, and by how much. */
struct delay {
	u64 lock;
	u64 ns;
};

/* Holds that were made longer, and by how much in sum. */
struct delayed {
	u64 holds;
	u64 ns;
};

/* Times that a calibration keeps. */
#define SAMPLES 1024

/* Counters of what was lost. */
enum {
	LOST_ACQUISITIONS,
	LOST_STACKS,
	LOST_TIMES,
	LOST_BIRTHS,
	LOSSES,
};
