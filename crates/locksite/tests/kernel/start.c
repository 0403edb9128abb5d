/* What the rest of the kernel would define. */
#include <linux/spinlock.h>
void _raw_spin_lock(raw_spinlock_t *lock) { lock->raw = 1; }
unsigned long _raw_spin_lock_irqsave(raw_spinlock_t *lock) { lock->raw = 1; return 0; }
int _raw_spin_trylock(raw_spinlock_t *lock) { return lock->raw = 1; }
void _raw_read_lock(rwlock_t *lock) { lock->cnts = 1; }
void mutex_lock(struct mutex *lock) { lock->owner = 1; }
void down_write(struct rw_semaphore *sem) { sem->count = 1; }
void work(void *with) { *(volatile char *)with; }
void _start(void) { }
