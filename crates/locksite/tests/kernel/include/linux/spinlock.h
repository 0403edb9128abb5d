/* Locks of a kernel that does not exist: the shapes in which a real one takes its locks. */
#ifndef LINUX_SPINLOCK_H
#define LINUX_SPINLOCK_H

typedef unsigned long size_t;
#define NULL ((void *)0)
#define offsetof(type, member) __builtin_offsetof(type, member)
#define container_of(ptr, type, member) ({				\
	void *__at = (void *)(ptr);					\
	((type *)(__at - offsetof(type, member))); })
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define per_cpu(var, cpu) (*({ (__typeof__(var) *)((char *)&(var) + (cpu) * 4096UL); }))

typedef struct raw_spinlock { unsigned raw; } raw_spinlock_t;
typedef struct spinlock {
	union {
		struct raw_spinlock rlock;
	};
} spinlock_t;
struct mutex { unsigned owner; raw_spinlock_t wait_lock; };
struct rw_semaphore { long count; };
typedef struct { unsigned cnts; } rwlock_t;

void _raw_spin_lock(raw_spinlock_t *lock);
unsigned long _raw_spin_lock_irqsave(raw_spinlock_t *lock);
int _raw_spin_trylock(raw_spinlock_t *lock);
void _raw_read_lock(rwlock_t *lock);
void mutex_lock(struct mutex *lock);
void down_write(struct rw_semaphore *sem);
void work(void *with);

#define raw_spin_lock(lock) _raw_spin_lock(lock)
#ifdef CONFIG_DEBUG
#define raw_spin_lock_irqsave(lock, flags) debug_lock(lock)
#else
#define raw_spin_lock_irqsave(lock, flags)				\
	do {								\
		flags = _raw_spin_lock_irqsave(lock);			\
	} while (0)
#endif
#define read_lock(lock) _raw_read_lock(lock)

static __always_inline raw_spinlock_t *spinlock_check(spinlock_t *lock)
{
	return &lock->rlock;
}

static __always_inline void spin_lock(spinlock_t *lock)
{
	raw_spin_lock(&lock->rlock);
}

static __always_inline int spin_trylock(spinlock_t *lock)
{
	return _raw_spin_trylock(&lock->rlock);
}

#define spin_lock_irqsave(lock, flags)					\
do {									\
	raw_spin_lock_irqsave(spinlock_check(lock), flags);		\
} while (0)

/* Guards, made by one macro for each kind of lock. */
#define DEFINE_GUARD(name, type, lock_it)				\
typedef struct { type *lock; } class_##name##_t;			\
static __always_inline class_##name##_t class_##name##_constructor(type *l) \
{									\
	class_##name##_t t = { .lock = l }, *_T = &t;			\
	lock_it;							\
	return t;							\
}
DEFINE_GUARD(spinlock, spinlock_t, spin_lock(_T->lock))
DEFINE_GUARD(mutex, struct mutex, mutex_lock(_T->lock))
#define CLASS(name, var) class_##name##_t var = class_##name##_constructor
#define guard(name) CLASS(name, guarded)

#endif
