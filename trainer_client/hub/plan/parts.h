/* The parts of a plan. Each has its samples, its batches, and its stream on the server: a plan over files or
 * standard input is one part, a plan over a Kafka topic has one for each partition, also for those that are
 * added to the topic. Trainers see one plan.
 *
 * Under the hub's lock; no function waits.
 */
#ifndef HUB_PARTS_H
#define HUB_PARTS_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/op.h"
#include "trainer_client/hub/plan/plan.h"

#define HUB_PARTS_MAX 1024u

struct hub_part {
    struct mr_plan identity; /* what the server's record knows it by */
    uint32_t stream;         /* the one had last; 0 before */
    bool has_stream;         /* without one, nothing of it is fed */
    struct hub_plan plan;
    uint64_t record_us; /* when the server last said what it has applied; 0: it is asked at once */
    uint64_t lag;       /* of a partition: messages that are not applied yet */
};

struct hub_parts {
    struct hub_part *all;
    uint32_t count;
    uint32_t turn; /* the part that hands out first */
};

/* Sums over the parts; plan.h says what they mean. */
struct hub_parts_counts {
    uint64_t fed, handed_out, handed_again, expired, applied, ahead;
};

/* New parts in the place of others, if there are any. `parts` is all zero at first. False: no memory, and
 * nothing has changed. */
bool hub_parts_make(struct hub_parts *parts, uint32_t count);
/* `count` parts, of which those that there are stay as they are, but may move in memory. False: as above. */
bool hub_parts_grow(struct hub_parts *parts, uint32_t count);
void hub_parts_free(struct hub_parts *parts);
/* NULL: none of them has it. */
struct hub_part *hub_parts_find(const struct hub_parts *parts, uint32_t stream);
bool hub_parts_at_end(const struct hub_parts *parts);
struct hub_parts_counts hub_parts_count(const struct hub_parts *parts);
/* The batches of all; 0: the number of some is not known yet. */
uint64_t hub_parts_batches(const struct hub_parts *parts);
/* As hub_plan_hand_out(), from the parts in turn. NULL: none now. */
struct hub_part *hub_parts_hand_out(struct hub_parts *parts, uint64_t now_us, uint64_t *sequence);
/* As of hub_plan, of all parts. */
void hub_parts_expire(struct hub_parts *parts, uint64_t now_us);
void hub_parts_server_restarted(struct hub_parts *parts);

#endif
