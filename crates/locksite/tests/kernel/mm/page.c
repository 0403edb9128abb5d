#include <linux/spinlock.h>

/* Another file has a structure of the same name. */
struct private { spinlock_t lock; };

void same_name_elsewhere(struct private *p) { spin_lock(&p->lock); work(p); }
