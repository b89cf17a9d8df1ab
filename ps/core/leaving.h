/* Features that a core serves no longer: replaced, taken back, or staged for a restore that failed. Giving
 * their memory back takes 45 ms for each GiB, so it is done in slices, between calls: by the core itself as
 * part of its upkeep, and by whoever waits for the memory.
 *
 * Belongs to the core's thread.
 */
#ifndef PS_LEAVING_H
#define PS_LEAVING_H

#include <stdbool.h>

struct ps_core;
struct ps_feature;
struct ps_node;

/* Takes the feature over; nobody may have it any more, and no cut may be at it. */
void ps_leaving_add(struct ps_core *core, struct ps_feature *f);
/* A slice: of one table or variable, as much as ps_table_destroy_some() or ps_variable_destroy_some() does.
 * True when there is more. */
bool ps_leaving_step(struct ps_core *core);
/* All of it at once: when the core ends. */
void ps_leaving_end(struct ps_core *core);
/* Waits until no core has any, helping with it slice by slice. Any thread but a core's. */
void ps_leaving_wait(struct ps_node *node);

#endif
