#ifndef LINUX_FS_H
#define LINUX_FS_H
#include <linux/spinlock.h>

struct list_head { struct list_head *next, *prev; };
#define list_first_entry(head, type, member) container_of((head)->next, type, member)

struct wait_queue { spinlock_t lock; struct list_head head; };

struct super_block {
	unsigned long flags;
	struct rw_semaphore s_umount;
	spinlock_t *s_shared_lock;
	struct wait_queue s_wait;
};

struct inode {
	unsigned long i_ino;
	spinlock_t i_lock;
	struct rw_semaphore i_rwsem;
	struct super_block *i_sb;
	struct list_head i_list;
	union {
		struct { struct mutex i_dir_mutex; };
		unsigned long i_other;
	};
	struct {
		unsigned long pages;
		spinlock_t tree_lock;
	} i_mapping;
};

struct file {
	struct inode *f_inode;
	struct mutex f_pos_lock;
	struct inode *(*find)(struct file *file);
};

/* An inode of a file system, with the generic one inside. */
struct demo_inode {
	unsigned long generation;
	spinlock_t d_lock;
	struct inode vfs;
};

typedef struct {
	unsigned long used;
	spinlock_t lock;
} pool_t;

struct bucket { spinlock_t lock; struct list_head chain; };
struct table { unsigned long size; struct bucket buckets[16]; spinlock_t locks[8]; };

static inline struct inode *file_inode(struct file *file)
{
	return file->f_inode;
}

static inline struct demo_inode *DEMO_I(struct inode *inode)
{
	return container_of(inode, struct demo_inode, vfs);
}

static inline void inode_lock(struct inode *inode)
{
	down_write(&inode->i_rwsem);
}

static inline spinlock_t *bucket_lock(struct table *table, unsigned long key)
{
	return &table->buckets[key & 15].lock;
}

#ifdef CONFIG_SPLIT
static inline spinlock_t *tree_lock(struct inode *inode)
{
	return &inode->i_mapping.tree_lock;
}
#else
static inline spinlock_t *tree_lock(struct inode *inode)
{
	return &inode->i_lock;
}
#endif

#endif
