/* The last marks of a node (dataplane/wire/format/mr_mark.h): what clients set, and what the log says. Any
 * thread; the lock is held for a copy of some hundred bytes, and marks are rare. */
#ifndef PS_MARKS_H
#define PS_MARKS_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_mark.h"

#define PS_MARKS_KEPT 256u

struct ps_marks;

/* NULL: no memory. */
struct ps_marks *ps_marks_create(void);
void ps_marks_destroy(struct ps_marks *m);
/* Adds a mark of a client ("": of the node), and forgets the oldest if there is no room. Texts that are too
 * long are cut between characters. `m` may be NULL: nothing is kept. */
void ps_marks_add(struct ps_marks *m, const char *event, const char *client, const char *text);
/* Copies marks after number `since`, the oldest first, at most PS_MARKS_KEPT. Returns how many; *last is the
 * number of the newest, and *missed counts those after `since` that are forgotten. */
uint32_t ps_marks_read(struct ps_marks *m, uint64_t since, struct mr_mark *out, uint64_t *last,
                       uint64_t *missed);

#endif
