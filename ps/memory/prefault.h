/* The thread that makes huge pages ready before they are needed, and gives them back
 * (ps/memory/huge_pages.h): one per node, beside the data cores. It sleeps until it is woken. Attaching
 * and detaching may be done from any thread; they wait for a huge page that is just being made ready. */
#ifndef PS_PREFAULT_H
#define PS_PREFAULT_H

#include <stdint.h>

struct ps_prefault;
struct ps_huge_pages;

/* avoid_cpus: where the data cores are; the thread keeps off them as far as the process has others. NULL when
 * there is no memory or no thread to be had. */
struct ps_prefault *ps_prefault_create(const int *avoid_cpus, uint32_t cpu_count);
void ps_prefault_destroy(struct ps_prefault *p); /* nothing may be attached; NULL is fine */
void ps_prefault_attach(struct ps_prefault *p, struct ps_huge_pages *huge_pages);
/* `huge pages` are not touched from here on. What was ready stays so. Fine when they are attached nowhere. */
void ps_prefault_detach(struct ps_huge_pages *huge_pages);

#endif
