/* What the client knows of the node's features, by number: enough to find the cores that own a key or a
 * variable. Learnt from mr_create() and LIST; forgotten when the node restarts. Under the client's lock. */
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
    bool complete; /* the node has listed all of them since its last (re)start */
};

/* NULL when unknown. Valid until the next add or clear. */
const struct mr_feature *mrc_features_get(const struct mrc_features *f, uint32_t id);
/* Replaces what was known under this number. MR_NO_MEMORY. */
enum mr_status mrc_features_add(struct mrc_features *f, uint32_t id, const struct mr_feature *feature);
/* The i-th by number. */
const struct mr_feature *mrc_features_at(const struct mrc_features *f, uint32_t i, uint32_t *id);
/* A number is void while the node has something else under it. Nothing for one that is not known. */
void mrc_features_set_void(struct mrc_features *f, uint32_t id, bool is_void);
bool mrc_features_is_void(const struct mrc_features *f, uint32_t id);
void mrc_features_clear(struct mrc_features *f);
void mrc_features_free(struct mrc_features *f);

#endif
