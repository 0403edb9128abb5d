/* SPDX-License-Identifier: GPL-2.0 */
/* What a lock is a part of: memory that was allocated, in slabs of objects that are alike. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "layout.h"

/* Where the kernel's map of all memory begins, that of its pages, and what comes after the first. */
extern const void page_offset_base __ksym __weak;
extern const void vmemmap_base __ksym __weak;
extern const void vmalloc_base __ksym __weak;

#define PAGE 4096

static __always_inline u64 variable(const void *address)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), address);
	return value;
}

/* Whether a page is the first one of a slab; -1 if this kernel does not say so in a known way. */
static __always_inline int is_slab(const struct page *page)
{
	if (bpf_core_enum_value_exists(enum pagetype, PGTY_slab)) {
		u32 type = BPF_CORE_READ(page, page_type);

		return type >> 24 == bpf_core_enum_value(enum pagetype, PGTY_slab);
	}
	if (bpf_core_enum_value_exists(enum pageflags, PG_slab)) {
		u64 flags = BPF_CORE_READ(page, flags);

		return flags >> bpf_core_enum_value(enum pageflags, PG_slab) & 1;
	}
	return -1;
}

/* Where the object begins that `lock` is a part of: in its slab, or with its pages if it is too large
 * for one. 0 if it is not allocated memory, or that cannot be told. `of` is what
 * its slab has objects of. */
static __always_inline u64 object_of(u64 lock, const struct kmem_cache **of)
{
	u64 memory, pages, head, start, bytes;
	const struct page *page;
	int slab;

	if (!bpf_ksym_exists(&page_offset_base) || !bpf_ksym_exists(&vmemmap_base) ||
	    !bpf_ksym_exists(&vmalloc_base))
		return 0;
	memory = variable(&page_offset_base);
	pages = variable(&vmemmap_base);
	if (!memory || lock < memory || lock >= variable(&vmalloc_base))
		return 0;
	bytes = bpf_core_type_size(struct page);
	page = (void *)(pages + (lock - memory) / PAGE * bytes);
	head = BPF_CORE_READ(page, compound_head);
	if (head & 1)
		page = (void *)(head - 1);
	start = memory + ((u64)page - pages) / bytes * PAGE;
	slab = is_slab(page);
	if (slab < 0)
		return 0;
	if (slab) {
		const struct kmem_cache *cache = BPF_CORE_READ((const struct slab *)page, slab_cache);
		u64 size = BPF_CORE_READ(cache, size);

		if (of)
			*of = cache;
		if (size)
			start += (lock - start) / size * size;
	}
	return start;
}

/* The objects of the locks that have rows, for their names. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct origin);
} origins SEC(".maps");

/* What slabs have objects of. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct cache);
} caches SEC(".maps");

/* Notes which object `lock` is in, and at which place. A table that is full loses names only. */
static __always_inline void note_origin(u64 lock)
{
	const struct kmem_cache *from = 0;
	struct origin origin = {};
	struct cache cache = {};

	origin.object = object_of(lock, &from);
	origin.cache = (u64)from;
	if (!from)
		return;
	bpf_map_update_elem(&origins, &lock, &origin, BPF_ANY);
	if (bpf_map_lookup_elem(&caches, &origin.cache))
		return;
	cache.users = BPF_CORE_READ(from, refcount);
	bpf_probe_read_kernel_str(cache.name, sizeof(cache.name), BPF_CORE_READ(from, name));
	bpf_map_update_elem(&caches, &origin.cache, &cache, BPF_NOEXIST);
}
