/* Number of distinct keys in bounded memory: exact while they fit, then an estimate from an adaptive sample
 * of their hashes (Flajolet, "On adaptive sampling", Computing 43, 1990), off by about 1.2 / sqrt(capacity).
 * One thread.
 */
#ifndef HUB_DISTINCT_H
#define HUB_DISTINCT_H

#include <stdbool.h>
#include <stdint.h>

struct hub_distinct;

/* Counts exactly up to half of table_entries, a power of two. NULL: no memory. */
struct hub_distinct *hub_distinct_create(uint32_t table_entries);
void hub_distinct_destroy(struct hub_distinct *d); /* NULL is fine */
void hub_distinct_add(struct hub_distinct *d, uint64_t key);
uint64_t hub_distinct_count(const struct hub_distinct *d);
bool hub_distinct_is_exact(const struct hub_distinct *d);

#endif
