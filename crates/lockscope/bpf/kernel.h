/* SPDX-License-Identifier: GPL-2.0 */
/* The few types of the kernel that the programs touch. Offsets are not taken from here: each access
 * is relocated to the running kernel when the program is loaded (CO-RE). */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;
typedef _Bool bool;
enum { false = 0, true = 1 };

/* Of the kernel's user-space interface, <linux/bpf.h>. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };

#define RELOCATED __attribute__((preserve_access_index))

struct pt_regs {
	unsigned long di;
	unsigned long sp;
} RELOCATED;

struct task_struct {
	int pid;
	int tgid;
	unsigned long nvcsw;
	unsigned long nivcsw;
} RELOCATED;

struct rw_semaphore {
	long count;
};

typedef struct {
	u64 ctx_id;
} RELOCATED mm_context_t;

struct mm_struct {
	struct rw_semaphore mmap_lock;
	/* Its number is never used again, unlike its address. */
	mm_context_t context;
} RELOCATED;

/* What is allocated in pieces: where an object begins follows from its slab. */
struct page {
	unsigned long flags;
	unsigned long compound_head;
	unsigned int page_type;
} RELOCATED;

struct kmem_cache {
	unsigned int size;
	/* Caches whose objects are of one size are merged. */
	int refcount;
	const char *name;
} RELOCATED;

struct slab {
	struct kmem_cache *slab_cache;
} RELOCATED;

/* How a page says that it is a slab: by its type since 6.12, by a flag before 6.10. */
enum pagetype {
	PGTY_slab = 0xf5,
};
enum pageflags {
	PG_slab = 9,
};

/* Where x86 keeps the preemption count: a variable of its own before 6.2 and since 6.15, a field of
 * this one between. */
struct pcpu_hot {
	int preempt_count;
} RELOCATED;
