/* Samples in memory: the first ones of a file's part, as they were parsed, so that no epoch reads and parses
 * their lines again. It holds as many as fit into its bound. One thread at a time.
 */
#ifndef HUB_SAMPLE_STORE_H
#define HUB_SAMPLE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "trainer_client/hub/format/format.h"
#include "trainer_client/hub/format/sample.h"

struct hub_sample_store;

/* Makes an empty store for samples of `format` that takes at most bytes_max; NULL: no memory. */
struct hub_sample_store *hub_sample_store_create(const struct hub_format *format, size_t bytes_max);
void hub_sample_store_destroy(struct hub_sample_store *s); /* NULL is fine */
/* Most bytes that a sample of so many keys takes. */
size_t hub_sample_store_sample_bytes(const struct hub_format *format, uint32_t keys);
/* Makes it empty again. */
void hub_sample_store_clear(struct hub_sample_store *s);
/* Adds the next sample, the first one as number 0. Once one finds no room, all later ones are left out. */
void hub_sample_store_add(struct hub_sample_store *s, const struct hub_sample *sample);
/* Says that sample `next` will be read soon, and `later` after it: both are brought into the cache, in two
 * steps. */
void hub_sample_store_prefetch(const struct hub_sample_store *s, uint64_t next, uint64_t later);
/* Copies sample `index`; false: it was left out. */
bool hub_sample_store_get(const struct hub_sample_store *s, uint64_t index, struct hub_sample *sample);

#endif
