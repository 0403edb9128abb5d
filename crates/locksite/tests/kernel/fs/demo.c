#include <linux/fs.h>
#include "demo.h"

spinlock_t global_lock;
static rwlock_t tasklist;
static struct { unsigned long count; struct mutex lock; } registry;
static struct table table;
static spinlock_t stripes[32];
static struct demo_percpu { unsigned long n; raw_spinlock_t lock; } percpu_state;
struct super_block *root_sb;
static spinlock_t *chosen = &global_lock;

void member(struct inode *inode) { spin_lock(&inode->i_lock); work(inode); }
void member_of_member(struct inode *inode) { spin_lock(&inode->i_mapping.tree_lock); work(inode); }
void anonymous_member(struct inode *inode) { mutex_lock(&inode->i_dir_mutex); work(inode); }
void through_pointers(struct file *file) { down_write(&file->f_inode->i_sb->s_umount); work(file); }
void global(void) { spin_lock(&global_lock); work(NULL); }
void global_reader(void) { read_lock(&tasklist); work(NULL); }
void global_structure(void) { mutex_lock(&registry.lock); work(NULL); }
void global_pointer(void) { down_write(&root_sb->s_umount); work(NULL); }
void global_pointer_to_lock(void) { spin_lock(chosen); work(NULL); }

void static_local(void)
{
	static spinlock_t once;

	spin_lock(&once);
	work(NULL);
}

void array_of_locks(unsigned long key) { spin_lock(&stripes[key % 32]); work(NULL); }
void array_by_sum(unsigned long key) { spin_lock(stripes + key % 32); work(NULL); }
void hash_bucket(unsigned long key) { spin_lock(&table.buckets[key % 16].lock); work(NULL); }
void array_in_object(struct table *t, unsigned long key) { spin_lock(&t->locks[key % 8]); work(t); }
void lock_elsewhere(struct super_block *sb) { spin_lock(sb->s_shared_lock); work(sb); }

void local_pointer(struct file *file)
{
	struct inode *inode = file_inode(file);
	spinlock_t *lock;

	work(inode);
	lock = &inode->i_lock;
	spin_lock(lock);
	work(inode);
}

void local_reassigned(struct inode *inode, struct super_block *sb)
{
	spinlock_t *lock = &inode->i_lock;

	spin_lock(lock);
	work(inode);
	lock = &sb->s_wait.lock;
	spin_lock(lock);
	work(sb);
}

void outer_object(struct inode *inode) { spin_lock(&DEMO_I(inode)->d_lock); work(inode); }
void embedded_object(struct super_block *sb) { spin_lock(&sb->s_wait.lock); work(sb); }

void entry_of_list(struct super_block *sb, struct list_head *list)
{
	struct inode *inode = list_first_entry(list, struct inode, i_list);

	spin_lock(&inode->i_lock);
	work(sb);
}

void with_flags(struct inode *inode)
{
	unsigned long flags;

	spin_lock_irqsave(&inode->i_lock, flags);
	work(&flags);
}

void over_lines(struct inode *inode)
{
	unsigned long flags;

	spin_lock_irqsave(
		&inode->i_mapping.tree_lock,
		flags
	);
	work(&flags);
}

void guarded(struct inode *inode)
{
	guard(spinlock)(&inode->i_lock);
	work(&guarded);
}

void guarded_mutex(struct file *file)
{
	guard(mutex)(&file->f_pos_lock);
	work(&guarded);
}

void returned_lock(unsigned long key) { spin_lock(bucket_lock(&table, key)); work(NULL); }
void configured_lock(struct inode *inode) { spin_lock(tree_lock(inode)); work(inode); }

void either(struct inode *inode, struct super_block *sb, int which)
{
	spin_lock(which ? &inode->i_lock : sb->s_shared_lock);
	work(inode);
}

void from_nothing(void *data) { spin_lock(&((struct demo_inode *)data)->d_lock); work(data); }
void of_typedef(pool_t *pool) { spin_lock(&pool->lock); work(pool); }
void called_through_pointer(struct file *file) { down_write(&file->find(file)->i_rwsem); work(file); }
void read_once(struct file *file) { spin_lock(&READ_ONCE(file->f_inode)->i_lock); work(file); }
void own_copy(int cpu) { raw_spin_lock(&per_cpu(percpu_state, cpu).lock); work(NULL); }

void on_stack(void)
{
	struct wait_queue queue = { };

	spin_lock(&queue.lock);
	work(&queue);
}

int tried(struct inode *inode)
{
	if (!spin_trylock(&inode->i_lock))
		return 0;
	work(inode);
	return 1;
}

void two_on_a_line(struct inode *a, struct super_block *b)
{
	spin_lock(&a->i_lock); down_write(&b->s_umount);
	work(a);
}

/* An inline function that takes a lock is where the lock is taken, unless it is a wrapper. */
void inlined_taker(struct file *file) { inode_lock(file_inode(file)); work(file); }

#define lock_table(t, key) ({						\
	struct bucket *__b = &(t)->buckets[(key) % 16];			\
	spin_lock(&__b->lock);						\
	__b;								\
})
void by_macro(struct table *t, unsigned long key) { work(lock_table(t, key)); }

noinline void wrapper(spinlock_t *lock, unsigned long n)
{
	work(&n);
	spin_lock(lock);
	work(&n);
}

noinline void wrapper_of_wrapper(unsigned long n, spinlock_t *lock)
{
	wrapper(lock, n + 1);
	work(&n);
}

void calls_wrapper(struct inode *inode)
{
	wrapper(&inode->i_lock, 1);
	work(inode);
}

void calls_wrapper_twice_removed(struct super_block *sb)
{
	wrapper_of_wrapper(1, &sb->s_wait.lock);
	work(sb);
}

/* The last call is a jump: the wrapper is in no call chain. */
noinline void jumps(struct table *t, unsigned long n)
{
	work(&t);
	mutex_lock(&registry.lock);
}

static noinline void queue_lock(struct wait_queue *queue)
{
	work(queue);
	spin_lock(&queue->lock);
	work(queue);
}

void calls_queue_lock(struct super_block *sb)
{
	queue_lock(&sb->s_wait);
	work(sb);
}

static noinline void find_lock(struct inode *inode, spinlock_t **lockp)
{
	work(inode);
	*lockp = &inode->i_mapping.tree_lock;
}

void lock_from_argument(struct inode *inode)
{
	spinlock_t *lock;

	find_lock(inode, &lock);
	spin_lock(lock);
	work(inode);
}

#include "more.c"
