/* The fake node's memory of numbered pushes, and its checkpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "dataplane/wire/format/push_number.h"
#include "tests/unit/trainer_client/fake_node.h"

static uint32_t push_stream_of(const struct fake_core *core, uint64_t sequence)
{
    uint32_t push_stream = mr_push_stream_id(sequence);
    return push_stream != 0 ? push_stream : mr_push_stream_of_core(core->node->core_count, core->index);
}

static uint64_t number_of(const struct mr_request *request)
{
    return mr_push_number(request->message->preamble.sequence);
}

static struct fake_push_stream *find(struct fake_push_stream *push_streams, const uint8_t *uuid,
                                     uint32_t push_stream)
{
    for (uint32_t i = 0; i < FAKE_PUSH_STREAMS_MAX; i++) {
        struct fake_push_stream *l = &push_streams[i];
        if (l->used && l->stream_id == push_stream && memcmp(l->uuid, uuid, MR_UUID_BYTES) == 0)
            return l;
        if (!l->used) {
            *l = (struct fake_push_stream){.used = true, .stream_id = push_stream};
            memcpy(l->uuid, uuid, MR_UUID_BYTES);
            return l;
        }
    }
    abort();
}

static struct fake_push_stream *push_stream_for(struct fake_core *core, const struct mr_request *request)
{
    return find(core->push_streams, request->client_uuid,
                push_stream_of(core, request->message->preamble.sequence));
}

bool fake_record_has(struct fake_core *core, const struct mr_request *request)
{
    uint64_t number = number_of(request);
    const struct fake_push_stream *push_stream = number != 0 ? push_stream_for(core, request) : NULL;
    return push_stream != NULL && push_stream->has[number % FAKE_NUMBERS_MAX] && !push_stream->is_partly;
}

void fake_record_add(struct fake_core *core, const struct mr_request *request)
{
    uint64_t number = number_of(request);
    if (number != 0)
        push_stream_for(core, request)->has[number % FAKE_NUMBERS_MAX] = true;
}

void fake_record_skip(struct fake_core *core, const struct mr_request *request, uint64_t from)
{
    struct fake_push_stream *push_stream = push_stream_for(core, request);
    for (uint64_t number = from; number <= number_of(request); number++)
        push_stream->has[number % FAKE_NUMBERS_MAX] = true;
}

void fake_record_tell(struct fake_core *core, struct mr_endpoint *ep, const struct mr_request *request)
{
    mr_endpoint_set_checkpoint(ep, core->node->origin.checkpoint);
    if (number_of(request) != 0)
        mr_reply_set_sequence(ep, request->ref, push_stream_for(core, request)->durable);
}

static void note_durable(struct fake_push_stream *push_stream)
{
    push_stream->durable = 0;
    while (push_stream->durable + 1 < FAKE_NUMBERS_MAX && push_stream->has[push_stream->durable + 1])
        push_stream->durable++;
}

/* The record does not know of which keys it speaks: what not all cores have that know the push stream, nobody
 * has. */
static void save_push_stream(struct fake_node *node, const struct fake_push_stream *push_stream)
{
    struct fake_push_stream *saved =
        find(node->saved_push_streams, push_stream->uuid, push_stream->stream_id);
    const bool is_first = !saved->is_saved;
    for (uint32_t n = 0; n < FAKE_NUMBERS_MAX; n++)
        saved->has[n] = push_stream->has[n] && (is_first || saved->has[n]);
    saved->durable =
        is_first || push_stream->durable < saved->durable ? push_stream->durable : saved->durable;
    saved->is_saved = true;
}

void fake_record_hand_over(struct fake_push_stream *from[FAKE_CORES_MAX], struct fake_node *to)
{
    struct fake_node *all = calloc(1, sizeof(*all));
    assert_non_null(all);
    all->saved_push_streams = calloc(FAKE_PUSH_STREAMS_MAX, sizeof(*all->saved_push_streams));
    for (uint32_t c = 0; c < FAKE_CORES_MAX && from[c] != NULL; c++) {
        for (uint32_t i = 0; i < FAKE_PUSH_STREAMS_MAX && from[c][i].used; i++)
            save_push_stream(all, &from[c][i]);
        free(from[c]);
    }
    for (uint32_t c = 0; c < to->core_count; c++)
        memcpy(to->cores[c].push_streams, all->saved_push_streams,
               FAKE_PUSH_STREAMS_MAX * sizeof(*all->saved_push_streams));
    free(all->saved_push_streams);
    free(all);
}

void fake_record_merge(const struct fake_node *from, struct fake_node *to)
{
    for (uint32_t c = 0; c < from->core_count; c++)
        for (uint32_t i = 0; i < FAKE_PUSH_STREAMS_MAX && from->cores[c].push_streams[i].used; i++)
            save_push_stream(to, &from->cores[c].push_streams[i]);
}

void fake_record_take_over(const struct fake_node *from, struct fake_node *to)
{
    for (uint32_t c = 0; c < to->core_count; c++) {
        struct fake_push_stream *streams = to->cores[c].push_streams;
        for (uint32_t i = 0; i < FAKE_PUSH_STREAMS_MAX && streams[i].used; i++)
            streams[i].is_partly = true;
        for (uint32_t i = 0; i < FAKE_PUSH_STREAMS_MAX && from->saved_push_streams[i].used; i++) {
            const struct fake_push_stream *saved = &from->saved_push_streams[i];
            struct fake_push_stream *here = find(streams, saved->uuid, saved->stream_id);
            const bool is_new = !here->is_partly;
            for (uint32_t n = 0; n < FAKE_NUMBERS_MAX; n++)
                here->has[n] = saved->has[n] && (is_new || here->has[n]);
            here->durable = is_new || saved->durable < here->durable ? saved->durable : here->durable;
            here->is_partly = true;
        }
    }
}

void fake_record_save(struct fake_node *node)
{
    *node->saved = *node->table;
    node->origin.checkpoint = ++node->saves;
    node->saved_origin = node->origin;
    memset(node->saved_push_streams, 0, FAKE_PUSH_STREAMS_MAX * sizeof(*node->saved_push_streams));
    for (uint32_t c = 0; c < node->core_count; c++) {
        for (uint32_t i = 0; i < FAKE_PUSH_STREAMS_MAX && node->cores[c].push_streams[i].used; i++) {
            struct fake_push_stream *push_stream = &node->cores[c].push_streams[i];
            note_durable(push_stream);
            save_push_stream(node, push_stream);
        }
    }
}

void fake_record_restore(struct fake_node *node)
{
    *node->table = *node->saved;
    node->origin = node->saved_origin;
    for (uint32_t c = 0; c < FAKE_CORES_MAX; c++)
        memcpy(node->cores[c].push_streams, node->saved_push_streams,
               FAKE_PUSH_STREAMS_MAX * sizeof(*node->saved_push_streams));
}
