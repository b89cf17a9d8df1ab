/* The last annotations of a node (dataplane/wire/format/mr_annotation.h): what clients set, and what the
 * log says. Any thread; the lock is held for a copy of some hundred bytes, and annotations are rare. */
#ifndef PS_ANNOTATIONS_H
#define PS_ANNOTATIONS_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_annotation.h"

#define PS_ANNOTATIONS_KEPT 256u

struct ps_annotations;

/* NULL: no memory. */
struct ps_annotations *ps_annotations_create(void);
void ps_annotations_destroy(struct ps_annotations *m);
/* Adds an annotation of a client ("": of the node), and forgets the oldest if there is no room. Texts that
 * are too long are cut between characters. `m` may be NULL: nothing is kept. */
void ps_annotations_add(struct ps_annotations *m, const char *event, const char *client, const char *text);
/* Copies annotations after number `since`, the oldest first, at most PS_ANNOTATIONS_KEPT. Returns how
 * many; *last is the number of the newest, and *missed counts those after `since` that are forgotten. */
uint32_t ps_annotations_read(struct ps_annotations *m, uint64_t since, struct mr_annotation *out,
                             uint64_t *last, uint64_t *missed);

#endif
