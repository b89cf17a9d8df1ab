/* The thread that prepares huge pages before they are needed, and returns them to the kernel
 * (ps/memory/huge_pages.h): one per node, beside the data cores. It sleeps until a huge page is ordered. Any
 * thread may attach and detach; that waits for a huge page that is just being prepared. */
#ifndef PS_PREFAULT_H
#define PS_PREFAULT_H

#include <stdint.h>

struct ps_prefault;
struct ps_huge_pages;

/* Starts the thread. avoid_cpus: the processors of the data cores, which it avoids as far as the process has
 * others. NULL when there is no memory, or the thread cannot be started. */
struct ps_prefault *ps_prefault_create(const int *avoid_cpus, uint32_t cpu_count);
void ps_prefault_destroy(struct ps_prefault *p); /* nothing may be attached; NULL is fine */
void ps_prefault_attach(struct ps_prefault *p, struct ps_huge_pages *huge_pages);
/* Detaches huge pages: they are not touched from here on, and those that are ready stay so. Does nothing when
 * they are not attached. */
void ps_prefault_detach(struct ps_huge_pages *huge_pages);

#endif
