#include "ps/checkpoint/scrubber.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "ps/base/byte_rate.h"
#include "ps/base/counter.h"
#include "ps/base/cpu_affinity.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/checkpoint/checkpoint_chain.h"

#define BATCH 4u /* blocks at a time */

struct ps_scrubber {
    struct ps_scrubber_options options;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_ending;                   /* protected by the lock */
    _Atomic uint64_t bytes_per_s_max; /* that the rate is to have */
    struct ps_byte_rate rate;
};

/* The checkpoints of one directory, newest first. */
struct scan {
    struct ps_scrubber *scrubber;
    const char *directory;
    uint64_t *ids;
    bool *is_read; /* as part of a newer one's chain */
    uint32_t count, damaged;
};

/* Waits so long. False: the thread is to end. */
static bool wait_us(struct ps_scrubber *s, uint64_t us)
{
    const struct timespec until = mr_clock_after_us(us);
    int error = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->is_ending && error != ETIMEDOUT)
        error = pthread_cond_clockwait(&s->changed, &s->lock, CLOCK_MONOTONIC, &until);
    const bool goes_on = !s->is_ending;
    pthread_mutex_unlock(&s->lock);
    return goes_on;
}

/* ---- one chain ---- */

static enum mr_status scrubber_visit(void *arg, uint32_t link, const uint8_t *const *blocks, uint32_t count)
{
    struct ps_scrubber *s = arg;
    const uint64_t bytes = (uint64_t)count * PS_BLOCK_BYTES;
    (void)link;
    (void)blocks;
    ps_counter_add(&s->options.counters->bytes, bytes);
    s->rate.bytes_per_s_max = atomic_load_explicit(&s->bytes_per_s_max, memory_order_relaxed);
    while (!ps_byte_rate_take(&s->rate, bytes, mr_clock_us())) {
        const uint64_t now_us = mr_clock_us();
        if (!wait_us(s, s->rate.next_us > now_us ? s->rate.next_us - now_us : 0))
            return MR_CANCELLED;
    }
    return wait_us(s, 0) ? MR_OK : MR_CANCELLED;
}

static void mark_read(struct scan *scan, const struct ps_chain *chain)
{
    for (uint32_t link = 0; link < chain->count; link++)
        for (uint32_t i = 0; i < scan->count; i++)
            scan->is_read[i] |= scan->ids[i] == chain->links[link]->manifest.id;
}

static enum mr_status read_chain(struct scan *scan, uint64_t id, char *text)
{
    struct ps_reader *reader;
    enum mr_status status =
        ps_reader_open_unread(scan->scrubber->options.store, scan->directory, id, &reader, text);
    if (status != MR_OK)
        return status;
    mark_read(scan, ps_reader_chain(reader));
    status = ps_reader_blocks(reader, BATCH, 1, scrubber_visit, scan->scrubber, text);
    ps_reader_close(reader);
    return status;
}

/* ---- a round ---- */

/* False: the thread is to end. */
static bool scrubber_check(struct scan *scan, uint32_t i)
{
    char text[PS_TEXT_BYTES] = "";
    const uint64_t id = scan->ids[i];
    scan->is_read[i] = true;
    const enum mr_status status = read_chain(scan, id, text);
    if (status == MR_CANCELLED || !wait_us(scan->scrubber, 0)) /* the end cuts off what is being read */
        return false;
    /* Retention may have removed it meanwhile. */
    if ((status == MR_CHECKPOINT_CORRUPT || status == MR_IO_ERROR) &&
        ps_checkpoint_is_there(scan->scrubber->options.store, scan->directory, id)) {
        mr_log_with(MR_LOG_ERROR, MR_LOG_FIELDS({"checkpoint", .number = id}), "checkpoint_damaged",
                    "checkpoint %" PRIu64 " of %s cannot be restored, as reading it again has shown: %s", id,
                    scan->directory, text);
        scan->damaged++;
    }
    return true;
}

/* Reads all of a directory. *damaged_id is its newest checkpoint if that is damaged, else 0. False: the
 * thread is to end. */
static bool read_directory(struct scan *scan, uint64_t *damaged_id)
{
    uint64_t *ids = calloc(PS_SCRUBBER_IDS_MAX, sizeof(*ids));
    bool *is_read = calloc(PS_SCRUBBER_IDS_MAX, sizeof(*is_read));
    bool goes_on = true;
    scan->count = 0;
    *damaged_id = 0;
    if (ids != NULL && is_read != NULL &&
        ps_checkpoint_list_all(scan->scrubber->options.store, scan->directory, ids, PS_SCRUBBER_IDS_MAX,
                               &scan->count) == 0) {
        scan->ids = ids;
        scan->is_read = is_read;
        scan->count = scan->count < PS_SCRUBBER_IDS_MAX ? scan->count : PS_SCRUBBER_IDS_MAX;
        for (uint32_t i = 0; i < scan->count && goes_on; i++) {
            goes_on = is_read[i] || scrubber_check(scan, i);
            if (i == 0 && scan->damaged > 0)
                *damaged_id = ids[0];
        }
    }
    free(ids);
    free(is_read);
    return goes_on;
}

static void note_damaged_id(struct ps_scrubber *s, uint64_t id)
{
    const bool is_new = ps_counter_read(&s->options.counters->damaged_id) != id;
    ps_counter_set(&s->options.counters->damaged_id, id);
    if (is_new)
        sem_post(s->options.found);
}

/* False: the thread is to end. */
static bool read_all(struct ps_scrubber *s)
{
    struct ps_scrubber_counters *n = s->options.counters;
    const uint64_t bytes = ps_counter_read(&n->bytes);
    struct scan whole = {.scrubber = s, .directory = s->options.directory};
    char folder[PS_PATH_BYTES];
    uint64_t damaged_id, ignored;
    struct scan partial = {.scrubber = s, .directory = folder};
    if (!read_directory(&whole, &damaged_id) || !wait_us(s, 0))
        return false;
    note_damaged_id(s, damaged_id);
    if (ps_path_join(s->options.directory, PS_PARTIAL_NAME, folder) && !read_directory(&partial, &ignored))
        return false;
    if (!wait_us(s, 0))
        return false;
    const uint32_t count = whole.count + partial.count, damaged = whole.damaged + partial.damaged;
    if (count > 0)
        mr_log_with(
            MR_LOG_INFO, MR_LOG_FIELDS({"checkpoints", .number = count}, {"damaged", .number = damaged}),
            "scrubbed", "read %" PRIu32 " checkpoint%s of %s again, %" PRIu64 " MiB: %" PRIu32 " damaged",
            count, mr_plural(count), s->options.directory, (ps_counter_read(&n->bytes) - bytes) >> 20,
            damaged);
    ps_counter_set(&n->damaged, damaged);
    ps_counter_set(&n->last_s, (uint64_t)time(NULL));
    ps_counter_add(&n->rounds, 1);
    return true;
}

static void *scrubber_run(void *arg)
{
    struct ps_scrubber *s = arg;
    (void)pthread_setname_np(pthread_self(), "mr-scrubber");
    while (wait_us(s, s->options.every_us) && read_all(s)) {
    }
    return NULL;
}

/* ---- start and end ---- */

void ps_scrubber_set_rate(struct ps_scrubber *s, uint64_t bytes_per_s_max)
{
    if (s != NULL)
        atomic_store_explicit(&s->bytes_per_s_max, bytes_per_s_max, memory_order_relaxed);
}

struct ps_scrubber *ps_scrubber_start(const struct ps_scrubber_options *options)
{
    struct ps_scrubber *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->options = *options;
    if (options->stop != NULL)
        atomic_store(options->stop, false);
    atomic_init(&s->bytes_per_s_max, options->bytes_per_s_max);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, scrubber_run, s) != 0) {
        free(s);
        return NULL;
    }
    ps_cpu_affinity_avoid(s->thread, options->avoid_cpus, options->avoid_cpu_count);
    return s;
}

void ps_scrubber_stop(struct ps_scrubber *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_ending = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->options.stop != NULL)
        atomic_store(s->options.stop, true);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
