#include "ps/store/copier.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/number.h"
#include "dataplane/wire/base/plural.h"
#include "ps/base/counter.h"
#include "ps/base/cpu_affinity.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/state_file.h"
#include "ps/store/copy.h"

/* A directory of the disk, and where its checkpoints go. */
struct place {
    char here[PS_PATH_BYTES], there[PS_PATH_BYTES];
    uint32_t behind;  /* checkpoints that are missing there */
    uint64_t last_id; /* the newest there, or that need not go there any more; protected by the lock */
};

enum { WHOLE, PARTIAL, PLACES };

struct copied {
    uint32_t place; /* PLACES: none */
    uint64_t id, at_ms;
};

struct ps_copier {
    struct ps_copier_options options;
    struct ps_remote *remote;
    struct ps_copy copy; /* without directories and rate */
    struct place places[PLACES];
    pthread_t thread;
    atomic_bool stop; /* what is going on ends at once */
    _Atomic uint64_t bytes_per_s_max;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct ps_retention retention;
    bool is_woken, is_idle, is_failing;
    bool is_ending; /* the thread ends when it has nothing to do, or fails */
    struct copied copied[PS_COPIER_COPIED_MAX];
    uint32_t copied_count; /* of all time */

    /* the thread's own */
    uint64_t behind_since_us; /* 0: nothing is missing there */
    uint32_t failures;        /* in a row */
    char last_text[PS_TEXT_BYTES];
    char *history; /* as it is there; NULL: not known */
};

/* ---- what is missing there ---- */

static enum mr_status list_ids(const struct ps_store *store, const char *directory, uint64_t *ids,
                               uint32_t ids_max, uint32_t *count, char *text)
{
    const int error = ps_checkpoint_list_all(store, directory, ids, ids_max, count);
    if (error == 0)
        return MR_OK;
    ps_text_io(text, "list", directory, -error);
    return MR_IO_ERROR;
}

static enum mr_status newest_there(const struct ps_copier *c, const struct place *p, uint64_t *id, char *text)
{
    uint32_t count = 0;
    *id = 0;
    return list_ids(&c->remote->store, p->there, id, 1, &count, text);
}

/* The newest one there was copied from this disk, or the disk has nothing newer: two nodes that copy to one
 * directory would remove each other's checkpoints. */
static enum mr_status check_whose(const struct ps_copier *c, const struct place *p, uint64_t there,
                                  char *text)
{
    struct ps_manifest ours, theirs;
    enum mr_status status = ps_manifest_read(ps_store_local(), p->here, there, &ours, text);
    if (status != MR_OK) /* removed here, or of another node or a later version: copying will find out */
        return status == MR_CHECKPOINT_NOT_FOUND || status == MR_CHECKPOINT_NEWER ? MR_OK : status;
    status = ps_manifest_read(&c->remote->store, p->there, there, &theirs, text);
    if (status == MR_OK) {
        if (!ps_hash_equal(ours.hash, theirs.hash)) {
            (void)snprintf(text, PS_TEXT_BYTES,
                           "%.110s holds another node's checkpoint %" PRIu64 ": set checkpoint.remote to a "
                           "directory of this node's own",
                           p->there, there);
            status = MR_INVALID_ARGUMENT;
        }
        ps_manifest_clear(&theirs);
    }
    ps_manifest_clear(&ours);
    return status;
}

static enum mr_status refuse_older(const struct place *p, uint64_t there, uint64_t here, char *text)
{
    (void)snprintf(text, PS_TEXT_BYTES,
                   "%.90s holds checkpoint %" PRIu64 ", and the newest here is %" PRIu64
                   ": name an empty directory, or start without checkpoints here to go on from there",
                   p->there, there, here);
    return MR_INVALID_ARGUMENT;
}

static void note_behind(struct ps_copier *c)
{
    struct ps_copier_counters *n = c->options.counters;
    const uint32_t behind = c->places[WHOLE].behind + c->places[PARTIAL].behind;
    if (behind == 0)
        c->behind_since_us = 0;
    else if (c->behind_since_us == 0)
        c->behind_since_us = mr_clock_us();
    ps_counter_set(&n->behind, behind);
    ps_counter_set(&n->behind_s, behind > 0 ? (mr_clock_us() - c->behind_since_us) / 1000000 : 0);
}

static void note_there(struct ps_copier *c, struct place *p, uint64_t id)
{
    pthread_mutex_lock(&c->lock);
    p->last_id = id;
    pthread_mutex_unlock(&c->lock);
    if (p != &c->places[WHOLE])
        return;
    ps_counter_set(&c->options.counters->last_id, id);
    if (c->options.copied != NULL)
        sem_post(c->options.copied);
}

/* Compares what is here, newest first, with what is there. *id is the oldest here that is newer than all
 * there and than `after`; 0: there is none. */
static enum mr_status compare(struct ps_copier *c, struct place *p, const uint64_t *ids, uint32_t count,
                              uint64_t after, uint64_t *id, char *text)
{
    uint64_t there;
    enum mr_status status = newest_there(c, p, &there, text);
    if (status != MR_OK)
        there = p->last_id; /* as far as is known */
    p->behind = 0;
    for (; p->behind < count && ids[p->behind] > there; p->behind++)
        *id = ids[p->behind] > after ? ids[p->behind] : *id;
    if (status == MR_OK && count > 0 && ids[0] < there)
        status = refuse_older(p, there, ids[0], text);
    if (status == MR_OK && there != 0 && count > 0)
        status = check_whose(c, p, there, text);
    if (status == MR_OK)
        note_there(c, p, there);
    note_behind(c);
    return status;
}

/* Most nodes have no partial checkpoints, and need not ask the store for them. */
static enum mr_status next_missing(struct ps_copier *c, struct place *p, uint64_t after, uint64_t *id,
                                   char *text)
{
    uint64_t *ids = calloc(PS_COPIER_IDS_MAX, sizeof(*ids));
    uint32_t count = 0;
    *id = 0;
    if (!ids)
        return ps_checkpoint_fail(text, "list", p->here, -ENOMEM);
    enum mr_status status = list_ids(NULL, p->here, ids, PS_COPIER_IDS_MAX, &count, text);
    count = count < PS_COPIER_IDS_MAX ? count : PS_COPIER_IDS_MAX;
    if (status == MR_OK && (count > 0 || p == &c->places[WHOLE]))
        status = compare(c, p, ids, count, after, id, text);
    free(ids);
    return status;
}

/* ---- copying ---- */

static void count_bytes(void *arg, uint64_t bytes)
{
    struct ps_copier *c = arg;
    ps_counter_add(&c->options.counters->bytes, bytes);
    if (c->behind_since_us != 0)
        ps_counter_set(&c->options.counters->behind_s, (mr_clock_us() - c->behind_since_us) / 1000000);
}

static void count_kept(void *arg, uint64_t bytes)
{
    ps_counter_add(&((struct ps_copier *)arg)->options.counters->bytes_kept, bytes);
}

static void count_again(void *arg, uint64_t bytes)
{
    ps_counter_add(&((struct ps_copier *)arg)->options.counters->bytes_again, bytes);
}

static struct ps_copy copy_between(const struct ps_copier *c, const struct place *p)
{
    struct ps_copy copy = c->copy;
    copy.from_directory = p->here;
    copy.to_directory = p->there;
    copy.bytes_per_s_max = atomic_load(&c->bytes_per_s_max);
    return copy;
}

static void note_copied(struct ps_copier *c, struct place *p, uint64_t id)
{
    pthread_mutex_lock(&c->lock);
    c->copied[c->copied_count++ % PS_COPIER_COPIED_MAX] =
        (struct copied){.place = (uint32_t)(p - c->places), .id = id, .at_ms = mr_clock_unix_ms()};
    pthread_mutex_unlock(&c->lock);
    note_there(c, p, id);
}

/* Copies one checkpoint. One that retention removes from the disk meanwhile need not be copied any more. */
static enum mr_status copy_one(struct ps_copier *c, struct place *p, uint64_t id, char *text)
{
    const uint64_t began_us = mr_clock_us();
    const struct ps_copy copy = copy_between(c, p);
    const enum mr_status status = ps_copy_chain(&copy, id, text);
    if (status == MR_OK) {
        ps_counter_add(&c->options.counters->copies_good, 1);
        note_copied(c, p, id);
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"checkpoint", .number = id}, {"to", .text = p->there}),
                    "copied", "copied checkpoint %" PRIu64 " to %s in %" PRIu64 " ms", id, p->there,
                    (mr_clock_us() - began_us) / 1000);
        pthread_mutex_lock(&c->lock);
        const struct ps_retention retention = c->retention;
        pthread_mutex_unlock(&c->lock);
        ps_checkpoint_retain(&c->remote->store, p->there, &retention);
        return MR_OK;
    }
    return ps_checkpoint_is_there(NULL, p->here, id) ? status : MR_OK;
}

/* Copies all that is missing, the oldest first. One that is damaged, or that a later version wrote, is passed
 * over: the next one that is not takes its place. */
static enum mr_status copy_missing(struct ps_copier *c, struct place *p, char *text)
{
    char why[PS_TEXT_BYTES] = "";
    uint64_t id = 0, damaged = 0;
    enum mr_status damage = MR_OK;
    enum mr_status status = next_missing(c, p, 0, &id, text);
    while (status == MR_OK && id != 0) {
        ps_counter_set(&c->options.counters->state, PS_COPIER_COPYING);
        status = copy_one(c, p, id, text);
        if (status == MR_CHECKPOINT_CORRUPT || status == MR_CHECKPOINT_NOT_FOUND ||
            status == MR_CHECKPOINT_NEWER) {
            damaged = id;
            damage = status;
            memcpy(why, text, sizeof(why));
            status = MR_OK;
        } else if (status == MR_OK && damaged != 0) {
            mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"checkpoint", .number = damaged}), "copy_passed_over",
                        "checkpoint %" PRIu64 " is not copied, but a newer one is: %s", damaged, why);
            damaged = 0;
        }
        if (status == MR_OK)
            status = next_missing(c, p, damaged, &id, text);
    }
    if (status != MR_OK || damaged == 0)
        return status;
    memcpy(text, why, sizeof(why));
    return damage;
}

static enum mr_status copy_place(struct ps_copier *c, struct place *p, char *text)
{
    const enum mr_status status = copy_missing(c, p, text);
    if (status == MR_OK) {
        const struct ps_copy copy = copy_between(c, p);
        ps_copy_abandon(&copy);
    }
    return status;
}

/* ---- the history ---- */

/* To be freed; NULL with MR_OK: there is none. */
static enum mr_status read_history(const struct ps_store *store, const char *directory, char **history,
                                   char *text)
{
    bool is_there = false;
    *history = malloc(PS_HISTORY_BYTES_MAX);
    if (!*history)
        return ps_checkpoint_fail(text, "read the history of", directory, -ENOMEM);
    const enum mr_status status = ps_state_file_read(store, directory, PS_HISTORY_NAME, *history,
                                                     PS_HISTORY_BYTES_MAX, &is_there, text, PS_TEXT_BYTES);
    if (is_there && status == MR_OK)
        return MR_OK;
    free(*history);
    *history = NULL;
    return status;
}

static enum mr_status write_history(struct ps_copier *c, const char *history, char *text)
{
    const struct place *p = &c->places[WHOLE];
    const struct ps_store *to = &c->remote->store;
    enum mr_status status = ps_state_directory(to, p->there, text, PS_TEXT_BYTES);
    if (status == MR_OK)
        status = ps_state_file_write(to, p->there, PS_HISTORY_NAME, history, text, PS_TEXT_BYTES);
    return status;
}

/* Only where all checkpoints have gone before: so it is known that the store is this node's, and has what
 * the history names. */
static enum mr_status copy_history(struct ps_copier *c, char *text)
{
    char *history;
    enum mr_status status = read_history(NULL, c->places[WHOLE].here, &history, text);
    if (status != MR_OK || !history)
        return status;
    if (!c->history)
        status = read_history(&c->remote->store, c->places[WHOLE].there, &c->history, text);
    if (status != MR_OK || (c->history && strcmp(c->history, history) == 0)) {
        free(history);
        return status;
    }
    status = write_history(c, history, text);
    free(c->history);
    c->history = status == MR_OK ? history : NULL;
    if (status != MR_OK)
        free(history);
    return status;
}

/* ---- all of it ---- */

/* Copies all that is missing. */
static enum mr_status copy_all(struct ps_copier *c, char *text)
{
    enum mr_status status = copy_place(c, &c->places[WHOLE], text);
    if (status == MR_OK)
        status = copy_history(c, text);
    return status == MR_OK ? copy_place(c, &c->places[PARTIAL], text) : status;
}

/* A line when something else goes wrong, and when it is over; not one for each try. */
static void report(struct ps_copier *c, enum mr_status status, const char *text)
{
    struct ps_copier_counters *n = c->options.counters;
    ps_counter_set(&n->last_status, status);
    if (status == MR_OK) {
        if (c->failures > 0)
            mr_log_info("copies_again", "copies to %s succeed again, after %u failed tr%s",
                        c->remote->directory, c->failures, c->failures == 1 ? "y" : "ies");
        c->failures = 0;
        c->last_text[0] = '\0';
        ps_counter_set(&n->state, PS_COPIER_IDLE);
        return;
    }
    c->failures++;
    ps_counter_set(&n->state, PS_COPIER_FAILING);
    ps_counter_add(&n->copies_failed, 1);
    if (strcmp(c->last_text, text) != 0)
        mr_log_warning("copy_failed", "checkpoints are not copied, which is tried again: %s", text);
    (void)snprintf(c->last_text, sizeof(c->last_text), "%s", text);
}

/* ---- the thread ---- */

static uint32_t pause_s(const struct ps_copier *c)
{
    /* A stop is no failure. */
    const uint32_t doublings = c->failures > 0 ? mr_min_u32(c->failures - 1, 6) : 0;
    return mr_min_u32(PS_COPIER_PAUSE_S_MIN << doublings, PS_COPIER_PAUSE_S_MAX);
}

/* Waits for a checkpoint, or for the next try. False: the thread is to end. */
static bool wait_for_work(struct ps_copier *c, bool is_failing)
{
    const struct timespec until = mr_clock_after_us(is_failing ? pause_s(c) * UINT64_C(1000000) : 0);
    pthread_mutex_lock(&c->lock);
    c->is_idle = !is_failing && !c->is_woken;
    c->is_failing = is_failing;
    pthread_cond_broadcast(&c->changed);
    bool is_over = false;
    while (!c->is_ending && !is_over && (is_failing || !c->is_woken))
        if (is_failing)
            is_over = pthread_cond_clockwait(&c->changed, &c->lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT;
        else
            (void)pthread_cond_wait(&c->changed, &c->lock);
    /* At the end what has been published since is still copied, unless the store fails. */
    const bool goes_on = !atomic_load(&c->stop) && (c->is_ending ? c->is_woken && !is_failing : true);
    c->is_woken = c->is_idle = false;
    pthread_mutex_unlock(&c->lock);
    return goes_on;
}

static void *copier_run(void *arg)
{
    struct ps_copier *c = arg;
    char text[PS_TEXT_BYTES];
    enum mr_status status;
    (void)pthread_setname_np(pthread_self(), "mr-copier");
    ps_cpu_affinity_avoid(pthread_self(), c->options.avoid_cpus, c->options.avoid_cpu_count);
    do {
        text[0] = '\0';
        status = copy_all(c, text);
        if (!atomic_load(&c->stop))
            report(c, status, text);
    } while (wait_for_work(c, status != MR_OK));
    pthread_mutex_lock(&c->lock);
    c->is_idle = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Opens the store and sets the places. */
static enum mr_status open_remote(struct ps_copier *c, char *text)
{
    const struct ps_remote_options options = {
        .credentials = c->options.credentials, .pause_ms_max = c->options.pause_ms_max, .stop = &c->stop};
    struct place *whole = &c->places[WHOLE], *partial = &c->places[PARTIAL];
    const enum mr_status status = ps_remote_open(c->options.url, &options, &c->remote, text);
    if (status != MR_OK)
        return status;
    (void)snprintf(whole->here, sizeof(whole->here), "%s", c->options.directory);
    (void)snprintf(whole->there, sizeof(whole->there), "%s", c->remote->directory);
    if (ps_path_join(whole->here, PS_PARTIAL_NAME, partial->here) &&
        ps_path_join(whole->there, PS_PARTIAL_NAME, partial->there))
        return MR_OK;
    ps_remote_close(c->remote);
    return ps_checkpoint_fail(text, "open", c->options.url, -ENAMETOOLONG);
}

enum mr_status ps_copier_start(const struct ps_copier_options *options, struct ps_copier **out, char *text)
{
    struct ps_copier *c = calloc(1, sizeof(*c));
    if (!c)
        return ps_checkpoint_fail(text, "copy", options->directory, -ENOMEM);
    c->options = *options;
    atomic_init(&c->stop, false);
    c->retention = options->retention;
    atomic_init(&c->bytes_per_s_max, options->bytes_per_s_max);
    const enum mr_status status = open_remote(c, text);
    if (status != MR_OK) {
        free(c);
        return status;
    }
    c->copy = (struct ps_copy){.from = ps_store_local(),
                               .to = &c->remote->store,
                               .stop = &c->stop,
                               .avoid_cpus = options->avoid_cpus,
                               .avoid_cpu_count = options->avoid_cpu_count,
                               .keeps_record = true,
                               .progress = count_bytes,
                               .kept = count_kept,
                               .again = count_again,
                               .arg = c};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    if (pthread_create(&c->thread, NULL, copier_run, c) != 0) {
        ps_remote_close(c->remote);
        free(c);
        return ps_checkpoint_fail(text, "copy", options->directory, -EAGAIN);
    }
    *out = c;
    return MR_OK;
}

enum ps_copied ps_copier_look(struct ps_copier *c, bool is_partial, uint64_t id, uint64_t *at_ms)
{
    const uint32_t place = is_partial ? PARTIAL : WHOLE;
    enum ps_copied found = PS_COPIED_NOT_YET;
    *at_ms = 0;
    pthread_mutex_lock(&c->lock);
    if (c->places[place].last_id > id)
        found = PS_COPIED_NEVER;
    for (uint32_t i = 0; i < mr_min_u32(c->copied_count, PS_COPIER_COPIED_MAX); i++) {
        if (c->copied[i].place == place && c->copied[i].id == id) {
            found = PS_COPIED_THERE;
            *at_ms = c->copied[i].at_ms;
        }
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

void ps_copier_wake(struct ps_copier *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_woken = true;
    c->is_idle = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

void ps_copier_set_limits(struct ps_copier *c, const struct ps_retention *retention, uint64_t bytes_per_s_max)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    c->retention = *retention;
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->bytes_per_s_max, bytes_per_s_max);
}

void ps_copier_stop(struct ps_copier *c, uint32_t wait_s)
{
    if (!c)
        return;
    const struct timespec until = mr_clock_after_us(wait_s * UINT64_C(1000000));
    pthread_mutex_lock(&c->lock);
    c->is_ending = true;
    pthread_cond_broadcast(&c->changed);
    bool is_over = false;
    while (!c->is_idle && !c->is_failing && !is_over)
        is_over = pthread_cond_clockwait(&c->changed, &c->lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT;
    const bool is_left = !c->is_idle;
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->stop, true);
    (void)pthread_join(c->thread, NULL);
    if (is_left)
        mr_log_warning("copies_missing",
                       "some checkpoints of %s are not in %s yet; the next start copies them",
                       c->options.directory, c->remote->directory);
    ps_remote_close(c->remote);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->history);
    free(c);
}

/* ---- in the other direction ---- */

static enum mr_status fetch_from(const struct ps_copier *c, const struct place *p, uint64_t *id, char *text)
{
    const struct ps_copy copy = {.from = &c->remote->store,
                                 .to = ps_store_local(),
                                 .from_directory = p->there,
                                 .to_directory = p->here,
                                 .avoid_cpus = c->options.avoid_cpus,
                                 .avoid_cpu_count = c->options.avoid_cpu_count};
    const enum mr_status status = *id == 0 ? newest_there(c, p, id, text) : MR_OK;
    return status == MR_OK && *id != 0 ? ps_copy_chain(&copy, *id, text) : status;
}

enum mr_status ps_copier_fetch(const struct ps_copier_options *options, uint64_t *id, char *text)
{
    struct ps_copier c = {.options = *options};
    enum mr_status status = open_remote(&c, text);
    if (status != MR_OK)
        return status;
    status = fetch_from(&c, &c.places[WHOLE], id, text);
    uint64_t partial_id = 0;
    char why[PS_TEXT_BYTES];
    if (status == MR_OK && *id != 0 && fetch_from(&c, &c.places[PARTIAL], &partial_id, why) != MR_OK)
        mr_log_warning("partial_not_copied",
                       "restore: the newest partial checkpoint of the store was not copied: %s", why);
    ps_remote_close(c.remote);
    return status;
}

enum mr_status ps_copier_fetch_history(const struct ps_copier_options *options, bool *is_there, char *text)
{
    struct ps_copier c = {.options = *options};
    char *history = NULL;
    *is_there = false;
    enum mr_status status = open_remote(&c, text);
    if (status != MR_OK)
        return status;
    status = read_history(&c.remote->store, c.places[WHOLE].there, &history, text);
    if (status == MR_OK && history) {
        *is_there = true;
        status =
            ps_state_file_write(NULL, c.places[WHOLE].here, PS_HISTORY_NAME, history, text, PS_TEXT_BYTES);
    }
    free(history);
    ps_remote_close(c.remote);
    return status;
}
