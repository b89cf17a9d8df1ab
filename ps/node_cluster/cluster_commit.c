#include "ps/node_cluster/cluster_commit.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/format/cluster.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/checkpoint/cluster_retain.h"
#include "ps/store/stores.h"

enum work { NOTHING, LOOK, WRITE, RETAIN, STOP };

struct ps_cluster_commit {
    struct ps_cluster_commit_options options;
    struct ps_stores *stores;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t asked;
    enum work work;
    uint64_t id; /* that `state` and `text` are of */
    enum ps_commit_state state;
    char text[PS_TEXT_BYTES];
    struct ps_cluster_manifest manifest; /* of a WRITE; the thread's own until it has ended */
};

#define IDS_MAX 4096u

enum mr_status ps_cluster_commit_newest(const struct ps_cluster_commit_options *options, uint64_t *id,
                                        char *text)
{
    struct ps_place place = {.store = NULL};
    struct ps_stores *stores = ps_stores_create(options->credentials, options->pause_ms_max);
    uint64_t *ids = calloc(IDS_MAX, sizeof(*ids));
    uint32_t count = 0;
    enum mr_status status = MR_NO_MEMORY;
    if (stores == NULL || ids == NULL)
        ps_text_path(text, options->directory, "no memory");
    else
        status = ps_stores_place(stores, options->directory, PS_PLACE_READ, &place, text);
    if (status == MR_OK && ps_checkpoint_list_clusters(place.store, place.path, ids, IDS_MAX, &count) != 0) {
        ps_text_path(text, options->directory, "its checkpoints cannot be listed");
        status = MR_IO_ERROR;
    }
    *id = count > 0 ? ids[0] : 0;
    free(ids);
    ps_stores_destroy(stores);
    return status;
}

/* ---- on its thread ---- */

/* Checks a part, and adds what it needs to what the whole needs. */
static enum mr_status check_part(const struct ps_place *place, struct ps_cluster_manifest *m, uint32_t part,
                                 char *text)
{
    char path[PS_PATH_BYTES];
    struct ps_manifest found;
    if (!ps_path_join(place->path, m->parts[part].name, path)) {
        ps_text_path(text, place->path, "the path of a node's part is too long");
        return MR_INVALID_ARGUMENT;
    }
    const enum mr_status status = ps_manifest_read(place->store, path, m->id, &found, text);
    if (status != MR_OK)
        return status;
    const bool is_it = ps_hash_equal(found.hash, m->parts[part].manifest_hash) &&
                       found.file_count == m->parts[part].core_count;
    m->needs |= found.needs;
    ps_manifest_clear(&found);
    return is_it ? MR_OK
                 : ps_checkpoint_corrupt(text, path, "its part is not the one that the node reported");
}

static enum ps_commit_state write_it(const struct ps_place *place, struct ps_cluster_manifest *m, char *text)
{
    m->needs = m->part_count > MR_CLUSTER_FEW_NODES ? MR_CAN(MANY_NODES) : 0;
    for (uint32_t part = 0; part < m->part_count; part++)
        if (check_part(place, m, part, text) != MR_OK)
            return PS_COMMIT_FAILED;
    return ps_cluster_manifest_write(place->store, place->path, m, text) == MR_OK ? PS_COMMIT_THERE
                                                                                  : PS_COMMIT_FAILED;
}

/* Only a store that answers says that it is not there. */
static enum ps_commit_state look_for(const struct ps_place *place, uint64_t id, char *text)
{
    struct ps_cluster_manifest found;
    switch (ps_cluster_manifest_read(place->store, place->path, id, &found, text)) {
    case MR_OK:
        return PS_COMMIT_THERE;
    case MR_CHECKPOINT_NOT_FOUND:
        return PS_COMMIT_ABSENT;
    default:
        return PS_COMMIT_FAILED;
    }
}

static enum ps_commit_state do_it(struct ps_cluster_commit *c, enum work work, uint64_t id, char *text)
{
    struct ps_place place;
    if (ps_stores_place(c->stores, c->options.directory, PS_PLACE_READ, &place, text) != MR_OK)
        return PS_COMMIT_FAILED;
    if (work == RETAIN)
        ps_cluster_retain(place.store, place.path, id, &c->options.retention);
    return work == WRITE  ? write_it(&place, &c->manifest, text)
           : work == LOOK ? look_for(&place, id, text)
                          : PS_COMMIT_THERE;
}

static void *cluster_commit_run(void *arg)
{
    struct ps_cluster_commit *c = arg;
    (void)pthread_setname_np(pthread_self(), "mr-commit");
    pthread_mutex_lock(&c->lock);
    while (c->work != STOP) {
        if (c->work == NOTHING) {
            pthread_cond_wait(&c->asked, &c->lock);
            continue;
        }
        const enum work work = c->work;
        const uint64_t id = c->id;
        char text[PS_TEXT_BYTES] = "";
        pthread_mutex_unlock(&c->lock);
        const enum ps_commit_state state = do_it(c, work, id, text);
        if (state == PS_COMMIT_FAILED)
            mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"checkpoint", .number = id}), "cluster_commit_failed",
                        "checkpoint %" PRIu64 " of the cluster: %s", id, text);
        pthread_mutex_lock(&c->lock);
        c->state = state;
        memcpy(c->text, text, sizeof(c->text));
        c->work = c->work == STOP ? STOP : NOTHING;
        pthread_mutex_unlock(&c->lock);
        if (state != PS_COMMIT_FAILED) /* a store that fails is asked again in the next round */
            c->options.ended(c->options.context);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- asking ---- */

enum ps_commit_state ps_cluster_commit_state(struct ps_cluster_commit *c, uint64_t id, char *text)
{
    pthread_mutex_lock(&c->lock);
    enum ps_commit_state state = c->id == id ? c->state : PS_COMMIT_UNKNOWN;
    if (c->work != NOTHING)
        state = PS_COMMIT_BUSY;
    memcpy(text, c->text, sizeof(c->text));
    pthread_mutex_unlock(&c->lock);
    return state;
}

static void cluster_commit_ask(struct ps_cluster_commit *c, enum work work, uint64_t id,
                               const struct ps_cluster_manifest *manifest)
{
    pthread_mutex_lock(&c->lock);
    if (c->work == NOTHING) {
        c->work = work;
        c->id = id;
        if (manifest != NULL)
            c->manifest = *manifest;
        pthread_cond_signal(&c->asked);
    }
    pthread_mutex_unlock(&c->lock);
}

void ps_cluster_commit_look(struct ps_cluster_commit *c, uint64_t id)
{
    cluster_commit_ask(c, LOOK, id, NULL);
}

void ps_cluster_commit_write(struct ps_cluster_commit *c, const struct ps_cluster_manifest *manifest)
{
    cluster_commit_ask(c, WRITE, manifest->id, manifest);
}

void ps_cluster_commit_retain(struct ps_cluster_commit *c, uint64_t committed)
{
    cluster_commit_ask(c, RETAIN, committed, NULL);
}

struct ps_cluster_commit *ps_cluster_commit_start(const struct ps_cluster_commit_options *options)
{
    struct ps_cluster_commit *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return NULL;
    c->options = *options;
    c->stores = ps_stores_create(options->credentials, options->pause_ms_max);
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->asked, NULL);
    if (c->stores != NULL && pthread_create(&c->thread, NULL, cluster_commit_run, c) == 0)
        return c;
    ps_stores_destroy(c->stores);
    (void)pthread_cond_destroy(&c->asked);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

void ps_cluster_commit_stop(struct ps_cluster_commit *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    c->work = STOP;
    pthread_cond_signal(&c->asked);
    pthread_mutex_unlock(&c->lock);
    (void)pthread_join(c->thread, NULL);
    ps_stores_destroy(c->stores);
    (void)pthread_cond_destroy(&c->asked);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
}
