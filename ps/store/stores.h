/* The stores that a node works with, by the directories in them: the disk, and those of URLs, each opened
 * when it is named first. One thread at a time; the stores themselves are for any thread.
 */
#ifndef PS_STORES_H
#define PS_STORES_H

#include <stdatomic.h>
#include <stdbool.h>
#include "ps/checkpoint/checkpoint_store.h"
#include "ps/store/remote_store.h"

#define PS_STORES_SAVE_TRIES        3u /* of a request of a save: pushes may wait for it */
#define PS_STORES_SAVE_PAUSE_MS_MAX 1000u

/* A directory in a store; valid as long as the stores. */
struct ps_place {
    const struct ps_store *store;
    char path[PS_PATH_BYTES]; /* in that store */
    _Atomic bool *stop; /* of a place to save to: true cuts its requests off; NULL: it is on this machine */
};

struct ps_stores;

/* credentials: a file, "": from the environment; it must outlive them. NULL: no memory. */
struct ps_stores *ps_stores_create(const char *credentials);
void ps_stores_destroy(struct ps_stores *stores); /* NULL is fine */

/* Finds the place of a path or URL; nothing is asked of the store. MR_INVALID_ARGUMENT, MR_NO_MEMORY: `text`
 * (PS_TEXT_BYTES) says what is wrong with URL or credentials. */
enum mr_status ps_stores_place(struct ps_stores *stores, const char *directory, struct ps_place *out,
                               char *text);
/* The same for a save, which gives up sooner. */
enum mr_status ps_stores_place_to_save(struct ps_stores *stores, const char *directory, struct ps_place *out,
                                       char *text);

#endif
