#include "trainer_client/hub/kafka/kafka_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/list.h"
#include "trainer_client/hub/kafka/kafka_path.h"
#include "trainer_client/hub/kafka/kafka_topic.h"
#include "trainer_client/hub/kafka/message_samples.h"
#include "trainer_client/hub/plan/parts.h"
#include "trainer_client/hub/samples/permutation.h"
#include "trainer_client/hub/plan/plan.h"

/* A data word: the offset where a partition starts, and digests of the message there and of the format. */
#define START_BITS   44
#define MESSAGE_BITS 10
#define FORMAT_BITS  10

#define ANSWERS_LIMIT_US UINT64_C(10000000)
#define GROUP_NAME       "millrace-hub-%016" PRIx64   /* of a plan; the first word of its identity */
#define PLACE_BYTES      (HUB_KAFKA_TOPIC_BYTES + 24) /* "kafka:TOPIC[1023]" */

struct partition {
    bool is_reading;
    uint64_t reached;                 /* all messages below it have been taken, or looked at */
    struct hub_kafka_message pending; /* the next one, looked at; no owner: none */
    bool has_answered;                /* whether there is a first message is known */
    bool has_first;
    uint64_t first; /* offset of the first message that there is */
    uint32_t first_digest;
    uint64_t start;          /* of its batch 0 */
    bool is_growing;         /* `growing` has some of batch `sequence` */
    uint64_t sequence, next; /* ... and the offset at which the one after the last begun batch begins */
    struct hub_growing growing;
    uint32_t taken;       /* messages of it, with or without samples */
    uint64_t first_taken; /* ... and the offset of the first one */
    uint64_t built;       /* one past the highest batch built */
    uint64_t counted;     /* lines of messages below it are counted */
};

struct kafka_source {
    struct hub_batch_source base;
    struct hub_kafka_path path;
    struct hub_kafka_topic *topic;
    struct hub_message_samples samples;
    struct hub_sample_file_info info;
    struct partition partitions[HUB_PARTS_MAX];
    uint32_t partition_count;
    uint32_t messages; /* of a batch */
    uint64_t format_digest;
    uint64_t opened_us;
    bool is_finishing;
    char no_shape[HUB_ERROR_BYTES]; /* why a first message did not give the shape; "": none was looked at */
};

static void place_of(const struct kafka_source *s, uint32_t partition, char place[PLACE_BYTES])
{
    snprintf(place, PLACE_BYTES, "kafka:%s[%u]", s->path.topic, partition);
}

static enum mr_status kafka_source_fill(struct kafka_source *s, const struct hub_batch_source_options *o,
                                        char *error)
{
    enum mr_status status = hub_kafka_path_parse(o->request->path, &s->path, error);
    if (status != MR_OK)
        return status;
    s->messages = s->path.messages != 0 ? s->path.messages : o->request->batch_samples;
    status = hub_message_samples_init(&s->samples, o, error);
    const struct hub_format *format = s->samples.builder.format;
    if (status == MR_OK && format != NULL && !format->is_built_in)
        s->format_digest = format->digest; /* another description makes other samples */
    return status;
}

static struct kafka_source *kafka_source_of(const struct hub_batch_source *base)
{
    return MR_CONTAINER(base, struct kafka_source, base);
}

static void kafka_source_close(struct hub_batch_source *base)
{
    struct kafka_source *s = kafka_source_of(base);
    for (uint32_t i = 0; i < s->partition_count; i++) {
        hub_kafka_message_free(&s->partitions[i].pending);
        hub_batch_free(&s->partitions[i].growing.batch);
    }
    hub_kafka_close(s->topic);
    hub_message_samples_free(&s->samples);
    free(s);
}

static const struct hub_sample_file_info *kafka_source_info(struct hub_batch_source *base)
{
    struct kafka_source *s = kafka_source_of(base);
    s->info = (struct hub_sample_file_info){.format = &s->samples.builder.shape,
                                            .broken_lines = s->samples.builder.broken};
    return &s->info;
}

static uint32_t kafka_source_partitions(struct hub_batch_source *base)
{
    struct kafka_source *s = kafka_source_of(base);
    return s->partition_count = hub_kafka_partitions(s->topic);
}

static uint64_t kafka_source_salt(const struct hub_batch_source *base, uint32_t partition)
{
    const struct kafka_source *s = kafka_source_of(base);
    return hub_mix(hub_kafka_cluster(s->topic), partition) | 1;
}

static const char *kafka_source_trouble(const struct hub_batch_source *base)
{
    const struct kafka_source *s = kafka_source_of(base);
    return hub_kafka_trouble(s->topic);
}

/* ---- where a partition begins ---- */

static enum mr_status start_reading(struct kafka_source *s, uint32_t partition, uint64_t offset, char *error)
{
    struct partition *p = &s->partitions[partition];
    hub_kafka_message_free(&p->pending);
    enum mr_status status = hub_kafka_start(s->topic, partition, offset, error);
    p->is_reading = status == MR_OK;
    p->reached = offset == HUB_KAFKA_OLDEST ? 0 : offset;
    return status;
}

/* Has the next message pending, or `reached` at the end. MR_NOT_READY: neither now. */
static enum mr_status look_ahead(struct kafka_source *s, uint32_t partition, char *error)
{
    struct partition *p = &s->partitions[partition];
    if (p->pending.owner != NULL)
        return MR_OK;
    struct hub_kafka_message m;
    switch (hub_kafka_next(s->topic, partition, &m, error)) {
    case HUB_KAFKA_MESSAGE:
        p->pending = m;
        p->has_answered = true;
        p->reached = m.offset;
        return MR_OK;
    case HUB_KAFKA_END:
        p->has_answered = true;
        p->reached = m.offset > p->reached ? m.offset : p->reached;
        return MR_OK;
    case HUB_KAFKA_NONE:
        return MR_NOT_READY;
    case HUB_KAFKA_FAILED:
        p->is_reading = false;
        return MR_IO_ERROR;
    }
    return MR_INTERNAL;
}

static uint32_t digest_of(const struct hub_kafka_message *m)
{
    const uint64_t hash = XXH3_64bits_withSeed(m->bytes, m->size, (uint64_t)m->timestamp_ms);
    return (uint32_t)(hash & ((1u << MESSAGE_BITS) - 1));
}

/* Finds the first message of the partition. MR_NOT_READY: there is none yet. */
static enum mr_status find_first(struct kafka_source *s, uint32_t partition, char *error)
{
    struct partition *p = &s->partitions[partition];
    if (p->has_first)
        return MR_OK;
    enum mr_status status = p->is_reading ? MR_OK : start_reading(s, partition, HUB_KAFKA_OLDEST, error);
    while (status == MR_OK && p->pending.owner == NULL)
        status = look_ahead(s, partition, error);
    if (status != MR_OK)
        return status;
    p->first = p->next = p->start = p->pending.offset;
    p->first_digest = digest_of(&p->pending);
    p->has_first = true;
    return MR_OK;
}

/* Looks for the shape of samples in a partition that has a first message. Messages without a value are passed
 * over, as they are when they are taken: no sample of a batch is lost with them. */
static enum mr_status look_for_shape(struct kafka_source *s, uint32_t partition, char *error)
{
    struct partition *p = &s->partitions[partition];
    enum mr_status status = p->is_reading ? MR_OK : start_reading(s, partition, p->reached, error);
    while (status == MR_OK && (p->pending.owner == NULL || p->pending.size == 0)) {
        if (p->pending.owner != NULL)
            p->reached = p->pending.offset + 1;
        hub_kafka_message_free(&p->pending);
        status = look_ahead(s, partition, error);
    }
    if (status != MR_OK)
        return status;
    const char *wrong = hub_message_samples_look(&s->samples, p->pending.bytes, p->pending.size);
    if (wrong != NULL)
        snprintf(s->no_shape, sizeof(s->no_shape),
                 "kafka:%s[%u]: the message at offset %" PRIu64
                 ", from which the shape of samples is taken, cannot be used: %s",
                 s->path.topic, partition, p->pending.offset, wrong);
    return MR_OK;
}

static enum mr_status kafka_source_ready(struct hub_batch_source *base, char *error)
{
    struct kafka_source *s = kafka_source_of(base);
    bool have_answered = true;
    for (uint32_t i = 0; i < s->partition_count; i++) {
        enum mr_status status = find_first(s, i, error);
        if (status == MR_OK && !s->samples.builder.has_shape)
            status = look_for_shape(s, i, error);
        if (status != MR_OK && status != MR_NOT_READY)
            return status;
        have_answered &= s->partitions[i].has_answered;
    }
    /* What is wrong with a partition is best found before the plan begins; one without a leader may come
     * later. */
    have_answered |= mr_clock_us() - s->opened_us >= ANSWERS_LIMIT_US;
    if (have_answered && !s->samples.builder.has_shape && s->no_shape[0] != '\0') {
        snprintf(error, HUB_ERROR_BYTES, "%s", s->no_shape);
        return MR_BAD_MESSAGE;
    }
    return s->samples.builder.has_shape && have_answered ? MR_OK : MR_NOT_READY;
}

static uint64_t word_of(const struct kafka_source *s, const struct partition *p)
{
    const uint64_t format = s->format_digest & ((1u << FORMAT_BITS) - 1);
    return p->first << (MESSAGE_BITS + FORMAT_BITS) | (uint64_t)p->first_digest << FORMAT_BITS | format;
}

static uint64_t start_of(uint64_t word)
{
    return word >> (MESSAGE_BITS + FORMAT_BITS);
}

/* Whether a partition with this word may be the one that is read: offsets only rise, and the first message,
 * unless it was deleted since, is still the same. */
static bool is_same(const struct kafka_source *s, const struct partition *p, uint64_t word)
{
    const uint64_t formats = (UINT64_C(1) << FORMAT_BITS) - 1, now = word_of(s, p);
    return p->first == start_of(word) ? word == now
                                      : p->first > start_of(word) && (word & formats) == (now & formats);
}

static enum mr_status kafka_source_begin(struct hub_batch_source *base, uint32_t partition,
                                         const uint64_t *known, uint64_t *data, char *error)
{
    struct kafka_source *s = kafka_source_of(base);
    struct partition *p = &s->partitions[partition];
    enum mr_status status = find_first(s, partition, error);
    if (status != MR_OK)
        return status;
    if (p->first >> START_BITS != 0) {
        snprintf(error, HUB_ERROR_BYTES, "kafka:%s[%u] begins at offset %" PRIu64 "; a plan's is below 2^%d",
                 s->path.topic, partition, p->first, START_BITS);
        return MR_INVALID_ARGUMENT;
    }
    *data = known != NULL && is_same(s, p, *known) ? *known : word_of(s, p);
    p->start = start_of(*data);
    return MR_OK;
}

static enum mr_status kafka_source_look(struct hub_batch_source *base, uint32_t partition, char *error)
{
    struct kafka_source *s = kafka_source_of(base);
    return find_first(s, partition, error);
}

/* ---- batches ---- */

static uint64_t kafka_source_batches(struct hub_batch_source *base, uint32_t partition)
{
    struct kafka_source *s = kafka_source_of(base);
    return s->is_finishing ? s->partitions[partition].built : HUB_BATCHES_UNKNOWN;
}

static void kafka_source_finish(struct hub_batch_source *base)
{
    struct kafka_source *s = kafka_source_of(base);
    s->is_finishing = true;
}

/* The partition is read from the batch's first offset on. */
static enum mr_status kafka_source_begin_batch(struct kafka_source *s, uint32_t partition, uint64_t sequence,
                                               char *error)
{
    struct partition *p = &s->partitions[partition];
    const uint64_t from = p->start + sequence * s->messages;
    enum mr_status status = MR_OK;
    if (!p->is_reading || p->next != from || p->is_growing)
        status = start_reading(s, partition, from, error);
    if (status != MR_OK)
        return status;
    hub_batch_builder_begin(&s->samples.builder, &p->growing);
    p->taken = 0;
    p->sequence = sequence;
    p->is_growing = true;
    p->next = from + s->messages;
    return MR_OK;
}

static enum mr_status take_pending(struct kafka_source *s, uint32_t partition, char *error)
{
    struct partition *p = &s->partitions[partition];
    char place[PLACE_BYTES];
    place_of(s, partition, place);
    const struct hub_message message = {.place = place,
                                        .offset = p->pending.offset,
                                        .bytes = p->pending.bytes,
                                        .size = p->pending.size,
                                        .is_again = p->pending.offset < p->counted};
    enum mr_status status = hub_message_samples_take(&s->samples, &message, &p->growing, error);
    p->first_taken = p->taken == 0 ? message.offset : p->first_taken;
    p->taken++;
    p->reached = message.offset + 1;
    p->counted = p->reached > p->counted ? p->reached : p->counted;
    hub_kafka_message_free(&p->pending);
    return status;
}

/* Takes messages until all of the batch have come. */
static enum mr_status grow_batch(struct kafka_source *s, uint32_t partition, char *error)
{
    struct partition *p = &s->partitions[partition];
    enum mr_status status = MR_OK;
    while (status == MR_OK && p->reached < p->next)
        if (p->pending.owner == NULL)
            status = look_ahead(s, partition, error);
        else
            status = take_pending(s, partition, error);
    return status;
}

static enum mr_status kafka_source_build(struct hub_batch_source *base, uint32_t partition, uint64_t sequence,
                                         struct hub_batch *batch, char *error)
{
    struct kafka_source *s = kafka_source_of(base);
    struct partition *p = &s->partitions[partition];
    enum mr_status status = MR_OK;
    if (s->is_finishing && sequence >= p->built)
        return MR_NOT_READY;
    if (!p->is_growing || p->sequence != sequence)
        status = kafka_source_begin_batch(s, partition, sequence, error);
    if (status == MR_OK)
        status = grow_batch(s, partition, error);
    if (status != MR_OK && status != MR_NOT_READY)
        p->is_growing = p->is_reading = false; /* read anew if the plan is started again */
    if (status != MR_OK)
        return status;
    const struct hub_batch used = *batch;
    *batch = p->growing.batch;
    p->growing.batch = used;
    p->is_growing = false;
    batch->samples = p->growing.placed;
    batch->sequence = sequence;
    batch->epoch = 0;
    batch->first_sample = sequence * s->messages;
    p->built = p->built > sequence ? p->built : sequence + 1;
    return MR_OK;
}

static void kafka_source_release(struct hub_batch_source *base, uint32_t partition, uint64_t oldest)
{
    struct kafka_source *s = kafka_source_of(base);
    const struct partition *p = &s->partitions[partition];
    if (!p->is_growing || p->sequence != oldest)
        return;
    const uint64_t from = p->start + oldest * s->messages;
    const uint64_t to = p->taken > 0               ? p->first_taken
                        : p->pending.owner != NULL ? p->pending.offset
                                                   : p->reached;
    if (to > from)
        hub_kafka_keep_gap(s->topic, partition, from, to);
}

static uint64_t kafka_source_lag(const struct hub_batch_source *base, uint32_t partition, uint64_t oldest)
{
    const struct kafka_source *s = kafka_source_of(base);
    const struct partition *p = &s->partitions[partition];
    const uint64_t high = hub_kafka_high(s->topic, partition);
    const uint64_t applied = p->start + oldest * s->messages;
    if (!p->has_first || high <= applied)
        return 0;
    if (!p->is_growing || p->sequence != oldest)
        return high - applied;
    /* Of the batch that comes next it is known which offsets are messages: ends of transactions are none. */
    const bool has_pending = p->pending.owner != NULL;
    const uint64_t seen = has_pending ? p->pending.offset + 1 : p->reached;
    return p->taken + has_pending + (high > seen ? high - seen : 0);
}

static const struct hub_batch_source_functions kafka_source_functions = {
    .is_live = true,
    .close = kafka_source_close,
    .info = kafka_source_info,
    .ready = kafka_source_ready,
    .parts = kafka_source_partitions,
    .salt = kafka_source_salt,
    .begin = kafka_source_begin,
    .look = kafka_source_look,
    .batches = kafka_source_batches,
    .release = kafka_source_release,
    .lag = kafka_source_lag,
    .trouble = kafka_source_trouble,
    .finish = kafka_source_finish,
    .build = kafka_source_build,
};

enum mr_status hub_kafka_source_open(const struct hub_batch_source_options *o, struct hub_batch_source **out,
                                     char *error)
{
    struct kafka_source *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory");
        return MR_NO_MEMORY;
    }
    s->base.functions = &kafka_source_functions;
    enum mr_status status = kafka_source_fill(s, o, error);
    if (status == MR_OK) {
        char group[HUB_KAFKA_TOPIC_BYTES];
        snprintf(group, sizeof(group), GROUP_NAME, hub_request_plan(o->request, 0, 0).request[0]);
        const struct hub_kafka_options options = {.brokers = o->kafka_brokers,
                                                  .config_path = o->kafka_config,
                                                  .topic = s->path.topic,
                                                  /* a plan that scores begins anew at each start */
                                                  .group = o->request->held_out ? NULL : group,
                                                  .stop = o->stop,
                                                  .on_messages = o->on_batch,
                                                  .arg = o->arg};
        status = hub_kafka_open(&options, &s->topic, error);
    }
    if (status != MR_OK) {
        kafka_source_close(&s->base);
        return status;
    }
    s->partition_count = hub_kafka_partitions(s->topic);
    s->opened_us = mr_clock_us();
    *out = &s->base;
    return MR_OK;
}
