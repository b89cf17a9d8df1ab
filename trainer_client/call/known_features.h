/* What the client knows about the node's features, by number: enough to find the cores that own a key or a
 * variable. It comes from mr_create() and LIST, and is cleared when the node restarts. Under the client's
 * lock. */
#ifndef MRC_KNOWN_FEATURES_H
#define MRC_KNOWN_FEATURES_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"

struct mrc_features {
    struct mrc_known_feature *known;
    uint32_t count, capacity;
    uint32_t void_count;
    bool complete; /* the node has listed all features since its last start */
};

/* Returns a feature; NULL when it is unknown. Valid until the next add or clear. */
const struct mr_feature *mrc_features_get(const struct mrc_features *f, uint32_t id);
/* Adds a feature, or replaces the one with this number. MR_NO_MEMORY. */
enum mr_status mrc_features_add(struct mrc_features *f, uint32_t id, const struct mr_feature *feature);
/* Returns the i-th feature by number. */
const struct mr_feature *mrc_features_at(const struct mrc_features *f, uint32_t i, uint32_t *id);
/* Sets whether a number is void: the node has another feature under it. Does nothing for an unknown
 * number. */
void mrc_features_set_void(struct mrc_features *f, uint32_t id, bool is_void);
bool mrc_features_is_void(const struct mrc_features *f, uint32_t id);
void mrc_features_clear(struct mrc_features *f);
void mrc_features_free(struct mrc_features *f);

#endif
