/* The stores that a node works with, by the directories in them: the disk, and those of URLs, each opened
 * when it is named first. One thread at a time; the stores themselves are for any thread.
 */
#ifndef PS_STORES_H
#define PS_STORES_H

#include <stdatomic.h>
#include <stdbool.h>
#include "ps/io/store.h"
#include "ps/store/remote_store.h"

#define PS_STORES_SAVE_TRIES        3u /* of a request of a save: pushes may wait for it */
#define PS_STORES_SAVE_PAUSE_MS_MAX 1000u

/* What a place is for. */
enum ps_place_use {
    PS_PLACE_READ,
    PS_PLACE_SAVE,  /* gives up sooner */
    PS_PLACE_ASIDE, /* the same, for what is not cut off with a save */
    PS_PLACE_SCRUB, /* as PS_PLACE_READ, for what is not cut off with that */
};

/* A directory in a store; valid as long as the stores. */
struct ps_place {
    const struct ps_store *store;
    char path[PS_PATH_BYTES]; /* in that store */
    /* True cuts its requests off. NULL: it is on this machine. */
    _Atomic bool *stop;
};

struct ps_stores;

/* credentials: a file, "": from the environment; it must outlive them. pause_ms_max: between two tries of a
 * request; 0: PS_HTTP_PAUSE_MS_MAX. NULL: no memory. */
struct ps_stores *ps_stores_create(const char *credentials, uint32_t pause_ms_max);
void ps_stores_destroy(struct ps_stores *stores); /* NULL is fine */

/* Finds the place of a path or URL; nothing is asked of the store. MR_INVALID_ARGUMENT, MR_NO_MEMORY: `text`
 * (PS_TEXT_BYTES) says what is wrong with URL or credentials. */
enum mr_status ps_stores_place(struct ps_stores *stores, const char *directory, enum ps_place_use use,
                               struct ps_place *out, char *text);

#endif
