/* Every feature of the node, by number and by name. The control thread's. */
#ifndef PS_CATALOG_H
#define PS_CATALOG_H

#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"

/* What a refusal says when no number is left. */
#define PS_NUMBERS_GONE                                                                                      \
    ", and all numbers that it may give them have been given: begin with an empty checkpoint.directory, "    \
    "and "                                                                                                   \
    "restore by name into it what is to go on"

struct ps_catalog {
    uint32_t count;
    uint32_t ids[MR_FEATURE_MAX];
    struct mr_feature features[MR_FEATURE_MAX]; /* beside its id, in the order of creation */
};

/* The feature's place of that name or number, or `count` when there is none. */
uint32_t ps_catalog_find(const struct ps_catalog *c, const char *name);
uint32_t ps_catalog_find_id(const struct ps_catalog *c, uint32_t id);
/* The highest number in use; 0: none is. */
uint32_t ps_catalog_last_id(const struct ps_catalog *c);
/* There must be room, and neither name nor number in use. */
void ps_catalog_add(struct ps_catalog *c, uint32_t id, const struct mr_feature *feature);
/* Take out the one of that number, which must be there; the others keep their order. */
void ps_catalog_remove(struct ps_catalog *c, uint32_t id);
/* Take back the newest. */
void ps_catalog_pop(struct ps_catalog *c);

#endif
