#include "ps/move/migration_target.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>
#include "dataplane/udp/address.h"
#include "dataplane/udp/udp_endpoint.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/format/move.h"
#include "dataplane/wire/session/key_file.h"
#include "ps/base/cpu_affinity.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/move/copy_shadow.h"
#include "ps/move/copy_source.h"
#include "ps/move/load.h"

#define BLOCK_MEMORY   (512u << 10) /* of the endpoint: two blocks of each of the source's cores, ... */
#define MEMORY_MIN     (8u << 20)   /* ... and some more */
#define CALL_US        2000000u     /* then it is asked once more */
#define WAIT_US_MAX    20000u
#define SEGMENTS       64u
#define BURSTS_MAX     16u   /* of datagrams, before rows are loaded and asked for again */
#define NOT_READY_US   5000u /* between two questions */
#define EMPTY_US       1000u
#define COLLECT_US     1000u /* a backup lets records come together for so long */
#define FENCED_US      100u
#define CONFIRM_US     2000u
#define FENCE_BYTES    (256u << 10) /* less is left: calls are to wait */
#define FENCE_SHARE_US 4000u        /* or what takes as long as that */
#define FENCE_LATER_US 20000000u    /* after so long the bound is doubled, again and again */
#define ADDRESSES_MAX  8u
#define ADDRESS_US     500000u /* for an answer from one of them */

/* One of the source's cores. */
struct source_core {
    struct ps_migration_target *target;
    struct mr_client_session *session;
    struct ps_partition_set partitions; /* of the migration, that it has */
    struct mr_call *asked;              /* NULL: nothing is */
    struct mr_call *answered;           /* its block is still to be loaded */
    struct ps_move_block block;
    struct ps_move_load *load; /* of the block before, which is in the answer to `loaded`; NULL: none */
    struct mr_call *loaded;
    uint32_t load_bytes;
    uint64_t position; /* of the block that is asked for */
    uint64_t came_us;  /* when the last block came, or the first was asked for */
    uint64_t next_us;  /* not before */
    uint64_t left_bytes;
    bool has_begun, is_first, is_through;
    bool is_refused; /* the last answer: not yet */
    struct ps_move_collected records;
    struct core_stream {
        uint8_t *bytes; /* of the stream, that are not loaded yet */
        size_t count, room;
        size_t whole;  /* those of complete records, which are loaded next, or now */
        bool is_whole; /* its cursor is through, and what it gave is loaded */
        struct ps_copy_shadow *shadow;
    } stream; /* of a backup */
};

struct ps_migration_target {
    struct ps_migration_target_options options;
    uint32_t core_count; /* of the source */
    /* Where the source may be: tried in turn until it answers. */
    struct mr_address addresses[ADDRESSES_MAX];
    uint32_t address_count, address_at;
    uint64_t address_us; /* when the next one is tried */
    bool has_heard;      /* something from the source */
    struct mr_udp_endpoint udp;
    uint64_t next_us;    /* no block is asked for before: the rate's limit */
    uint64_t copied_us;  /* since when all rows have been copied once; 0: not yet */
    bool asks_for_fence; /* calls for the partitions are to wait */
    struct source_core *cores;
    _Atomic bool stop, confirms, hurries;
    int load_fd; /* eventfd: a load has ended */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    struct ps_migration_target_progress progress;
};

/* Nothing follows a failure, nor everything's being here. */
static void target_set(struct ps_migration_target *t, enum ps_migration_state state, enum mr_status status,
                       const char *text)
{
    struct ps_migration_target_progress *p = &t->progress;
    pthread_mutex_lock(&t->lock);
    const bool is_set = p->state == PS_MIGRATION_COPYING || p->state == PS_MIGRATION_FOLLOWING ||
                        p->state == PS_MIGRATION_FENCED;
    if (is_set) {
        p->state = state;
        p->status = status;
        p->fenced_us = state == PS_MIGRATION_FENCED ? mr_clock_us() : p->fenced_us;
        (void)snprintf(p->text, sizeof(p->text), "%s", text);
    }
    pthread_mutex_unlock(&t->lock);
    if (is_set)
        ps_node_wake_control(t->options.node);
}

static void target_fail(struct ps_migration_target *t, enum mr_status status, const char *text)
{
    target_set(t, PS_MIGRATION_FAILED, status, text);
}

/* ---- answers ---- */

static bool stream_add(struct core_stream *stream, const uint8_t *bytes, size_t count);

/* Between a block and the next question. Calls at the source wait for its last rows, or, with sync, for what
 * a backup has not said yet that it has. */
static uint64_t target_pause_us(struct ps_migration_target *t, const struct source_core *s, uint64_t bytes)
{
    if (bytes == 0)
        return t->asks_for_fence ? FENCED_US : EMPTY_US;
    return t->options.follows && s->left_bytes == 0 && !atomic_load(&t->hurries) ? COLLECT_US : 0;
}

static void target_take_block(struct source_core *s, struct mr_call *call, const struct mr_message *reply)
{
    uint64_t words[MR_MOVE_WORDS];
    const struct mr_tensor *block = &reply->tensors[1];
    struct ps_migration_target *t = s->target;
    if (reply->preamble.tensor_count != 2 || !mr_body_read(MR_BODY_MOVE, &reply->tensors[0], words) ||
        block->dtype != MR_U8) {
        target_fail(t, MR_VERSION_MISMATCH, "its answer is of another version: run one version on all nodes");
        mr_call_free(t->udp.ep, call);
        return;
    }
    const uint64_t now_us = mr_clock_us();
    if (words[MR_MOVE_STATE] == MR_MOVE_LOST)
        target_fail(
            t, MR_BUSY,
            t->options.follows
                ? "the source cannot complete it: it applies more than this node takes in, or lacks memory"
                : "the source cannot complete it: rows change faster than they are copied, or it lacks "
                  "memory; "
                  "move fewer partitions at a time");
    s->is_refused = words[MR_MOVE_STATE] == MR_MOVE_NOT_READY;
    if (s->is_refused || words[MR_MOVE_STATE] == MR_MOVE_LOST) {
        s->next_us = now_us + NOT_READY_US;
        if (t->options.follows) /* a source that waits after a failure says why in its log */
            s->came_us = now_us;
        mr_call_free(t->udp.ep, call);
        return;
    }
    s->block = (struct ps_move_block){.bytes = block->data,
                                      .byte_count = (uint32_t)block->bytes,
                                      .is_first = words[MR_MOVE_IS_FIRST] != 0,
                                      .clock_s = (uint32_t)words[MR_MOVE_CLOCK_S]};
    s->left_bytes = words[MR_MOVE_LEFT_BYTES];
    s->has_begun = true;
    s->is_first = s->block.is_first;
    s->is_through = words[MR_MOVE_STATE] == MR_MOVE_ALL;
    s->next_us = now_us + target_pause_us(t, s, block->bytes);
    s->position += t->options.follows ? block->bytes : 1;
    s->came_us = now_us;
    s->answered = t->options.follows ? NULL : call;
    if (t->options.follows) {
        if (!stream_add(&s->stream, s->block.bytes, s->block.byte_count))
            target_fail(t, MR_NO_MEMORY, "no memory left, or what the source sends is damaged");
        mr_call_free(t->udp.ep, call);
    }
    const uint64_t rate = t->options.bytes_per_s_max;
    t->next_us = (t->next_us > now_us ? t->next_us : now_us) +
                 (rate == 0 ? 0 : s->block.byte_count * UINT64_C(1000000) / rate);
}

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    struct source_core *s = user;
    struct ps_migration_target *t = app;
    char text[PS_MOVE_TEXT_BYTES];
    t->has_heard |= reply != NULL;
    if (s->asked != call) { /* one that confirms: the map shows what becomes of it */
        mr_call_free(t->udp.ep, call);
        return;
    }
    s->asked = NULL;
    if (reply != NULL && status == MR_OK) {
        target_take_block(s, call, reply);
        return;
    }
    if (reply != NULL && status != MR_BUSY) {
        const bool has_line = reply->preamble.tensor_count == 1 && reply->tensors[0].dtype == MR_U8;
        (void)snprintf(text, sizeof(text), "the source refuses it: %s: %.*s", mr_status_text(status),
                       has_line ? (int)reply->tensors[0].bytes : 0,
                       has_line ? (const char *)reply->tensors[0].data : "");
        target_fail(t, status, text);
    }
    s->next_us = mr_clock_us() + NOT_READY_US; /* it does not answer: the map will show whether it is gone */
    mr_call_free(t->udp.ep, call);
}

/* A source that is there and does not answer would hold up moves and checkpoints for ever. */
static void target_end_silence(struct ps_migration_target *t, const struct source_core *s, uint64_t now_us)
{
    char text[PS_MOVE_TEXT_BYTES];
    if (s->is_through || s->answered != NULL || s->loaded != NULL || s->load != NULL ||
        now_us - s->came_us < t->options.silence_us)
        return;
    (void)snprintf(text, sizeof(text),
                   s->is_refused
                       ? "%.100s is not ready to send it for %u s: its log says why"
                       : "%.100s does not answer for %u s: a firewall may keep UDP from there, or the nodes "
                         "have different operator keys",
                   t->options.migration.peer.address, (unsigned)(t->options.silence_us / 1000000u));
    target_fail(t, MR_UNREACHABLE, text);
}

/* ---- questions ---- */

static struct mr_call *target_ask(struct ps_migration_target *t, struct source_core *s, uint64_t position,
                                  uint64_t flags, uint64_t now_us)
{
    const uint64_t words[MR_MOVE_ASK_WORDS] = {[MR_MOVE_ASK_ID] = t->options.migration.move.id,
                                               [MR_MOVE_ASK_POSITION] = position,
                                               [MR_MOVE_ASK_FLAGS] = flags};
    struct mr_tensor tensor = mr_body_tensor(MR_BODY_MOVE_ASK, words);
    const struct mr_call_options options = {
        .op = MR_OP_MOVE_READ, .deadline_us = now_us + CALL_US, .user = s};
    struct mr_call *call;
    if (mr_call_begin(t->udp.ep, s->session, &options, &tensor, 1, &call) != MR_OK)
        return NULL;
    mr_call_send(t->udp.ep, call, now_us);
    return call;
}

/* Asks for the next block while one is loaded, unless one that came waits for that. */
static void target_ask_next(struct ps_migration_target *t, struct source_core *s, uint64_t now_us)
{
    if (s->asked != NULL || s->answered != NULL || s->is_through || now_us < s->next_us)
        return;
    if (now_us < t->next_us && !t->asks_for_fence) {
        s->next_us = t->next_us;
        return;
    }
    s->asked = target_ask(t, s, s->position, t->asks_for_fence ? MR_MOVE_FENCE : 0, now_us);
    if (s->asked == NULL)
        s->next_us = now_us + NOT_READY_US;
}

/* Little is left: the rest takes some milliseconds. */
static void target_decide_fence(struct ps_migration_target *t, uint64_t now_us)
{
    uint64_t left = 0;
    bool is_copied = true;
    for (uint32_t i = 0; i < t->core_count; i++) {
        left += t->cores[i].left_bytes;
        is_copied &= t->cores[i].has_begun && !t->cores[i].is_first;
    }
    pthread_mutex_lock(&t->lock);
    t->progress.left_bytes = left;
    const uint64_t bytes = t->progress.bytes;
    const uint64_t took_us = now_us - t->progress.started_us + 1;
    pthread_mutex_unlock(&t->lock);
    if (t->asks_for_fence || !is_copied)
        return;
    t->copied_us = t->copied_us == 0 ? now_us : t->copied_us;
    const uint64_t by_rate = bytes * FENCE_SHARE_US / took_us;
    const uint64_t doublings = (now_us - t->copied_us) / FENCE_LATER_US;
    const uint64_t bound = (by_rate > FENCE_BYTES ? by_rate : FENCE_BYTES)
                           << (doublings < 16 ? doublings : 16);
    t->asks_for_fence = left <= bound;
    if (t->asks_for_fence)
        target_set(t, PS_MIGRATION_FENCED, MR_OK, "");
}

/* ---- blocks ---- */

static void target_begin_load(struct ps_migration_target *t, struct source_core *s)
{
    char text[PS_MOVE_TEXT_BYTES];
    enum mr_status status = MR_OK;
    if (!ps_move_collect(&s->block, &s->records))
        target_fail(t, MR_NO_MEMORY, "records of batches and pushes: no memory, or they are damaged");
    else
        status = ps_move_load_begin(t->options.node, &s->partitions, &s->block, t->load_fd, &s->load, text);
    if (status != MR_OK)
        target_fail(t, status, text);
    s->load_bytes = s->block.byte_count;
    s->loaded = s->answered;
    s->answered = NULL;
}

static void target_end_load(struct ps_migration_target *t, struct source_core *s)
{
    char text[PS_MOVE_TEXT_BYTES];
    uint64_t rows = 0;
    const enum mr_status status = s->load != NULL ? ps_move_load_end(s->load, &rows, text) : MR_OK;
    if (status != MR_OK)
        target_fail(t, status, text);
    s->load = NULL;
    mr_call_free(t->udp.ep, s->loaded);
    s->loaded = NULL;
    pthread_mutex_lock(&t->lock);
    t->progress.rows += rows;
    t->progress.bytes += s->load_bytes;
    pthread_mutex_unlock(&t->lock);
}

/* The block that was being loaded, if there is one, is done with. */
static bool core_has_loaded(const struct source_core *s)
{
    return s->loaded != NULL && (s->load == NULL || ps_move_load_has_ended(s->load));
}

/* Once everything is here: what was applied at the source counts as applied here. */
static void target_install(struct ps_migration_target *t)
{
    char text[PS_MOVE_TEXT_BYTES] = "";
    for (uint32_t i = 0; i < t->core_count; i++) {
        const struct source_core *s = &t->cores[i];
        if (!s->is_through || s->answered != NULL || s->loaded != NULL)
            return;
    }
    for (uint32_t i = 0; i < t->core_count; i++) {
        const struct source_core *s = &t->cores[i];
        const enum mr_status status =
            ps_move_load_records(t->options.node, &s->partitions, &s->records, false, text);
        if (status != MR_OK) {
            target_fail(t, status, text);
            return;
        }
    }
    target_set(t, PS_MIGRATION_INSTALLED, MR_OK, "");
    t->cores[0].next_us = 0;
}

/* ---- a backup ---- What is asked for next says what is applied: nothing is asked for while a complete
 * record is to be loaded. */

/* The record at *at, which moves past it; false: there is none that is whole. */
static bool stream_next(const struct core_stream *stream, size_t end, size_t *at, struct ps_record *out,
                        const uint8_t **bytes)
{
    if (end - *at < sizeof(*out))
        return false;
    memcpy(out, stream->bytes + *at, sizeof(*out));
    if (out->bytes > PS_COPY_RING_BYTES || ps_record_space(out->bytes) > end - *at)
        return false;
    *bytes = stream->bytes + *at + sizeof(*out);
    *at += ps_record_space(out->bytes);
    return true;
}

static bool stream_add(struct core_stream *stream, const uint8_t *bytes, size_t count)
{
    struct ps_record record = {0};
    const uint8_t *content;
    size_t at = stream->whole;
    if (stream->count + count > stream->room) {
        const size_t room = 2 * (stream->count + count);
        uint8_t *more = realloc(stream->bytes, room);
        if (more == NULL)
            return false;
        stream->bytes = more;
        stream->room = room;
    }
    if (count > 0)
        memcpy(stream->bytes + stream->count, bytes, count);
    stream->count += count;
    while (stream_next(stream, stream->count, &at, &record, &content))
        if (record.kind == PS_COPY_END)
            stream->whole = at;
    return true;
}

/* What was loaded: its records of pushes and batches count now. */
static bool stream_advance(struct core_stream *stream)
{
    struct ps_record record;
    const uint8_t *bytes;
    size_t at = 0, first = 0;
    while (stream_next(stream, stream->whole, &at, &record, &bytes)) {
        if (record.kind != PS_COPY_END)
            continue;
        const uint64_t number = record.offset;
        size_t within = first;
        while (within < at && stream_next(stream, at, &within, &record, &bytes)) {
            stream->is_whole |= record.kind == PS_COPY_WHOLE;
            if (ps_record_feature_kind(record.kind) == 0 && record.kind < PS_MOVE_RECORD &&
                !ps_copy_shadow_take(stream->shadow, number, &record, bytes))
                return false;
        }
        first = at;
    }
    stream->count -= stream->whole;
    memmove(stream->bytes, stream->bytes + stream->whole, stream->count);
    stream->whole = 0;
    return true;
}

static void follow_begin_load(struct ps_migration_target *t, struct source_core *s)
{
    char text[PS_MOVE_TEXT_BYTES];
    s->block.bytes = s->stream.bytes;
    s->block.byte_count = (uint32_t)s->stream.whole;
    s->block.is_first = false;
    s->block.is_copy = true;
    s->load_bytes = s->block.byte_count;
    const enum mr_status status =
        ps_move_load_begin(t->options.node, &s->partitions, &s->block, t->load_fd, &s->load, text);
    if (status != MR_OK)
        target_fail(t, status, text);
}

static void follow_end_load(struct ps_migration_target *t, struct source_core *s)
{
    char text[PS_MOVE_TEXT_BYTES];
    uint64_t rows = 0;
    const enum mr_status status = ps_move_load_end(s->load, &rows, text);
    s->load = NULL;
    if (status != MR_OK)
        target_fail(t, status, text);
    else if (!stream_advance(&s->stream))
        target_fail(t, MR_NO_MEMORY, "no memory left for what was applied, or its records are damaged");
    pthread_mutex_lock(&t->lock);
    t->progress.rows += rows;
    t->progress.bytes += s->load_bytes;
    pthread_mutex_unlock(&t->lock);
}

static bool follow_is_loading(const struct source_core *s)
{
    return s->load != NULL || s->stream.whole > 0;
}

static void follow_work(struct ps_migration_target *t, uint64_t now_us)
{
    bool is_whole = true;
    uint64_t left = 0;
    for (uint32_t i = 0; i < t->core_count; i++) {
        struct source_core *s = &t->cores[i];
        if (s->load != NULL && ps_move_load_has_ended(s->load))
            follow_end_load(t, s);
        if (s->load == NULL && s->stream.whole > 0)
            follow_begin_load(t, s);
        if (!follow_is_loading(s))
            target_ask_next(t, s, now_us);
        if (!s->stream.is_whole)
            target_end_silence(t, s, now_us);
        is_whole &= s->stream.is_whole;
        left += s->left_bytes;
    }
    pthread_mutex_lock(&t->lock);
    t->progress.left_bytes = left;
    const bool is_new = is_whole && t->progress.state == PS_MIGRATION_COPYING;
    pthread_mutex_unlock(&t->lock);
    if (is_new)
        target_set(t, PS_MIGRATION_FOLLOWING, MR_OK, "");
}

/* When there will be something to be asked or loaded. */
static uint64_t follow_next_us(const struct ps_migration_target *t)
{
    uint64_t next_us = UINT64_MAX;
    for (uint32_t i = 0; i < t->core_count; i++) {
        const struct source_core *s = &t->cores[i];
        if (s->load != NULL ? ps_move_load_has_ended(s->load) : s->stream.whole > 0)
            return 0;
        if (s->load == NULL && s->asked == NULL && s->next_us < next_us)
            next_us = s->next_us;
    }
    return next_us;
}

static void target_join(struct ps_migration_target *t)
{
    atomic_store(&t->stop, true);
    if (t->has_thread)
        (void)pthread_join(t->thread, NULL);
    t->has_thread = false;
}

/* What one of the source's cores has sent, to the end of its last complete record. */
static enum mr_status follow_finish(struct ps_migration_target *t, struct source_core *s)
{
    if (s->load == NULL && s->stream.whole > 0)
        follow_begin_load(t, s);
    if (s->load != NULL)
        follow_end_load(t, s);
    return t->progress.state == PS_MIGRATION_FOLLOWING ? MR_OK : MR_OUT_OF_MEMORY;
}

enum mr_status ps_migration_target_promote(struct ps_migration_target *t,
                                           const struct ps_partition_set *partitions, char *text)
{
    target_join(t);
    enum mr_status status = t->progress.state == PS_MIGRATION_FOLLOWING ? MR_OK : MR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < t->core_count && status == MR_OK; i++)
        status = follow_finish(t, &t->cores[i]);
    for (uint32_t i = 0; i < t->core_count && status == MR_OK; i++) {
        struct source_core *s = &t->cores[i];
        const struct ps_partition_set set = ps_partitions_and(&s->partitions, partitions);
        free(s->records.bytes);
        if (!ps_copy_shadow_collect(s->stream.shadow, &s->records))
            status = MR_NO_MEMORY;
        else if (!ps_partitions_empty(&set))
            status = ps_move_load_records(t->options.node, &set, &s->records, false, text);
    }
    if (status != MR_OK && t->progress.text[0] != '\0')
        (void)snprintf(text, PS_MOVE_TEXT_BYTES, "%s", t->progress.text);
    else if (status == MR_INVALID_ARGUMENT)
        (void)snprintf(text, PS_MOVE_TEXT_BYTES, "the copy was not complete");
    return status;
}

/* ---- the thread ---- */

/* Opens sessions to the source's cores at the address whose turn it is. */
static enum mr_status target_open_sessions(struct ps_migration_target *t)
{
    enum mr_status status = MR_OK;
    t->address_us = mr_clock_us() + ADDRESS_US;
    for (uint32_t i = 0; i < t->core_count && status == MR_OK; i++) {
        struct mr_address address = t->addresses[t->address_at];
        address.port = (uint16_t)(address.port + i);
        t->cores[i].next_us = 0;
        status = mr_client_session_open(t->udp.ep, &address, (uint16_t)i, &t->cores[i], &t->cores[i].session);
    }
    return status;
}

static void target_close_sessions(struct ps_migration_target *t)
{
    for (uint32_t i = 0; i < t->core_count; i++) {
        if (t->cores[i].session != NULL)
            mr_client_session_close(t->udp.ep, t->cores[i].session, mr_clock_us());
        t->cores[i].session = NULL;
    }
}

/* May wait for a name server. */
static void target_find_source(struct ps_migration_target *t)
{
    char text[PS_MOVE_TEXT_BYTES];
    const char *name = t->options.migration.peer.address;
    enum mr_status status = mr_address_resolve_candidates(name, t->addresses, ADDRESSES_MAX,
                                                          &t->address_count, text, sizeof(text));
    const uint64_t now_us = mr_clock_us();
    for (uint32_t i = 0; i < t->core_count; i++)
        t->cores[i].came_us = now_us;
    if (status == MR_OK) {
        (void)snprintf(text, sizeof(text), "%.100s: %s", name, mr_status_text(MR_NO_MEMORY));
        status = target_open_sessions(t);
    }
    if (status != MR_OK)
        target_fail(t, status, text);
}

static void target_work(struct ps_migration_target *t)
{
    const uint64_t now_us = mr_clock_us();
    if (!t->has_heard && t->address_count > 1 && now_us >= t->address_us) {
        target_close_sessions(t);
        t->address_at = (t->address_at + 1) % t->address_count;
        if (target_open_sessions(t) != MR_OK)
            target_fail(t, MR_NO_MEMORY, mr_status_text(MR_NO_MEMORY));
    }
    if (t->options.follows) {
        follow_work(t, now_us);
        return;
    }
    target_decide_fence(t, now_us);
    for (uint32_t i = 0; i < t->core_count; i++) {
        struct source_core *s = &t->cores[i];
        if (core_has_loaded(s))
            target_end_load(t, s);
        if (s->loaded == NULL && s->answered != NULL) /* one after the other, as they were read */
            target_begin_load(t, s);
        target_ask_next(t, s, now_us);
        target_end_silence(t, s, now_us);
    }
    target_install(t);
}

/* Tells the source that everything is here, now and then: until the map says so. */
static void target_tell_installed(struct ps_migration_target *t)
{
    struct source_core *s = &t->cores[0];
    const uint64_t now_us = mr_clock_us();
    if (now_us < s->next_us)
        return;
    const bool confirms = atomic_load(&t->confirms);
    if (confirms)
        (void)target_ask(t, s, 0, MR_MOVE_INSTALLED, now_us);
    s->next_us = now_us + (confirms ? CONFIRM_US : FENCED_US);
}

/* When there will be something to be asked or loaded. */
static uint64_t target_next_us(const struct ps_migration_target *t)
{
    uint64_t next_us = UINT64_MAX;
    for (uint32_t i = 0; i < t->core_count; i++) {
        const struct source_core *s = &t->cores[i];
        if (core_has_loaded(s) || (s->loaded == NULL && s->answered != NULL))
            return 0;
        if (s->asked == NULL && s->answered == NULL && (!s->is_through || i == 0) && s->next_us < next_us)
            next_us = s->next_us;
    }
    return next_us;
}

static void *target_main(void *arg)
{
    struct ps_migration_target *t = arg;
    struct ps_migration_target_progress progress;
    uint64_t count;
    (void)pthread_setname_np(pthread_self(), "mr-migration");
    target_find_source(t);
    while (!atomic_load(&t->stop)) {
        ps_migration_target_progress(t, &progress);
        (void)mr_udp_endpoint_receive(&t->udp, BURSTS_MAX);
        if (progress.state == PS_MIGRATION_INSTALLED)
            target_tell_installed(t);
        else if (progress.state != PS_MIGRATION_FAILED)
            target_work(t);
        uint64_t now_us = mr_clock_us();
        while (mr_udp_endpoint_send(&t->udp, now_us, SEGMENTS) && t->udp.next_us <= now_us)
            now_us = mr_clock_us();
        const uint64_t work_us = progress.state == PS_MIGRATION_FAILED ? UINT64_MAX
                                 : t->options.follows                  ? follow_next_us(t)
                                                                       : target_next_us(t);
        const uint64_t next_us = work_us < t->udp.next_us ? work_us : t->udp.next_us;
        now_us = mr_clock_us();
        struct pollfd fds[] = {
            {.fd = t->udp.socket.fd, .events = t->udp.is_blocked ? POLLIN | POLLOUT : POLLIN},
            {.fd = t->load_fd, .events = POLLIN}};
        const uint64_t wait_us = next_us <= now_us ? 0 : next_us - now_us;
        const struct timespec wait = mr_span_us(wait_us < WAIT_US_MAX ? wait_us : WAIT_US_MAX);
        if (ppoll(fds, 2, &wait, NULL) > 0 && fds[1].revents != 0)
            (void)!read(t->load_fd, &count, sizeof(count));
    }
    return NULL;
}

/* ---- life ---- */

static enum mr_status target_open_endpoint(struct ps_migration_target *t, char *text)
{
    struct mr_endpoint_config config;
    const char *key_file = ps_config_operator_key(t->options.node->config);
    mr_endpoint_config_default(&config);
    if (key_file == NULL) {
        (void)snprintf(text, PS_MOVE_TEXT_BYTES,
                       "none of this node's keys is an operator's, under which nodes call each other: set "
                       "node.key = operator:FILE");
        return MR_INVALID_ARGUMENT;
    }
    if (key_file[0] != '\0') {
        if (mr_key_file_read(key_file, config.psk[0], text, PS_MOVE_TEXT_BYTES) != MR_OK)
            return MR_INVALID_ARGUMENT;
        config.psk_count = 1;
    }
    config.app = t;
    config.on_reply = on_reply;
    config.sessions_max = t->core_count + 1;
    config.calls_max = 4 * t->core_count + 64;
    config.memory_bytes = MEMORY_MIN + (size_t)t->core_count * BLOCK_MEMORY;
    if (getrandom(config.client_uuid, sizeof(config.client_uuid), 0) != (ssize_t)sizeof(config.client_uuid))
        return MR_NO_MEMORY;
    return mr_udp_endpoint_create(&t->udp, &config);
}

static enum mr_status target_open(struct ps_migration_target *t, char *text)
{
    const struct mr_udp_options options = {0};
    const struct mr_address any = {.port = 0};
    const struct ps_partition_set partitions =
        t->options.follows ? t->options.partitions : ps_migration_partitions(&t->options.migration);
    t->load_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    t->cores = calloc(t->core_count, sizeof(*t->cores));
    if (t->load_fd < 0 || t->cores == NULL)
        return MR_NO_MEMORY;
    for (uint32_t i = 0; i < t->core_count; i++) {
        t->cores[i] = (struct source_core){.target = t, .position = 1};
        if (t->options.follows && (t->cores[i].stream.shadow = ps_copy_shadow_create()) == NULL)
            return MR_NO_MEMORY;
    }
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (ps_partitions_has(&partitions, p))
            ps_partitions_add(&t->cores[ps_node_core_of(t->core_count, p)].partitions, p);
    const enum mr_status status =
        mr_udp_endpoint_open(&t->udp, &any, &options, false, text, PS_MOVE_TEXT_BYTES);
    return status == MR_OK ? target_open_endpoint(t, text) : status;
}

enum mr_status ps_migration_target_start(const struct ps_migration_target_options *options,
                                         struct ps_migration_target **out, char *text)
{
    struct ps_migration_target *t = calloc(1, sizeof(*t));
    (void)snprintf(text, PS_MOVE_TEXT_BYTES, "no memory left");
    if (t == NULL)
        return MR_NO_MEMORY;
    t->options = *options;
    t->core_count = options->migration.peer.core_count;
    t->udp.socket.fd = t->load_fd = -1;
    t->progress = (struct ps_migration_target_progress){
        .id = options->migration.move.id, .state = PS_MIGRATION_COPYING, .started_us = mr_clock_us()};
    (void)pthread_mutex_init(&t->lock, NULL);
    enum mr_status status = target_open(t, text);
    if (status == MR_OK && pthread_create(&t->thread, NULL, target_main, t) != 0)
        status = MR_NO_MEMORY;
    t->has_thread = status == MR_OK;
    if (status != MR_OK) {
        ps_migration_target_stop(t);
        return status;
    }
    ps_cpu_affinity_avoid(t->thread, options->node->cpus, options->node->cpu_count);
    *out = t;
    return MR_OK;
}

void ps_migration_target_confirm(struct ps_migration_target *t)
{
    atomic_store(&t->confirms, true);
}

void ps_migration_target_hurry(struct ps_migration_target *t, bool hurries)
{
    atomic_store(&t->hurries, hurries);
}

void ps_migration_target_progress(struct ps_migration_target *t, struct ps_migration_target_progress *out)
{
    pthread_mutex_lock(&t->lock);
    *out = t->progress;
    pthread_mutex_unlock(&t->lock);
}

void ps_migration_target_stop(struct ps_migration_target *t)
{
    if (t == NULL)
        return;
    target_join(t);
    for (uint32_t i = 0; i < t->core_count && t->cores != NULL; i++) {
        if (t->cores[i].loaded != NULL)
            target_end_load(t, &t->cores[i]);
        if (t->cores[i].load != NULL)
            follow_end_load(t, &t->cores[i]);
        free(t->cores[i].records.bytes);
        free(t->cores[i].stream.bytes);
        ps_copy_shadow_destroy(t->cores[i].stream.shadow);
    }
    if (t->cores != NULL)
        target_close_sessions(t);
    if (t->udp.ep != NULL) {
        mr_endpoint_flush(t->udp.ep, mr_clock_us());
        (void)mr_udp_send_flush(t->udp.sender);
    }
    mr_udp_endpoint_close(&t->udp);
    if (t->load_fd >= 0)
        (void)close(t->load_fd);
    free(t->cores);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}
