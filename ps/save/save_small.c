/* What is small against tables: records that are copied at the cut, and variables. */
#include "ps/save/save_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE_PIECE_BYTES                                                                                 \
    (64u << 10)              /* of a variable per record: small against a block, so little is wasted */
#define STREAM_HEAD_WORDS 2u /* stream, watermark */

/* ---- the copy, as records ---- */

/* Writes a record's header and returns the place of its bytes; with out == NULL only counts. */
static uint8_t *add_record(uint8_t *out, size_t *at, const struct ps_record *record)
{
    uint8_t *bytes = NULL;
    if (out != NULL) {
        memcpy(out + *at, record, sizeof(*record));
        bytes = out + *at + sizeof(*record);
        memset(bytes + record->bytes, 0, ps_save_padded(record->bytes) - record->bytes);
    }
    *at += sizeof(*record) + ps_save_padded(record->bytes);
    return bytes;
}

static void copy_stream(const struct ps_core *core, uint32_t stream, uint8_t *out, size_t *at)
{
    uint32_t words = ps_applied_batches_bitmap_words(core->applied, stream);
    struct ps_record record = {.kind = PS_RECORD_STREAM,
                               .feature = core->index,
                               .count = core->node->core_count,
                               .offset = ps_applied_batches_added(core->applied, stream),
                               .bytes = (STREAM_HEAD_WORDS + (uint64_t)words) * sizeof(uint64_t)};
    uint64_t *to = (uint64_t *)(void *)add_record(out, at, &record);
    if (to != NULL) {
        to[0] = stream;
        to[1] = ps_applied_batches_watermark(core->applied, stream);
        ps_applied_batches_bitmap(core->applied, stream, to + STREAM_HEAD_WORDS);
    }
}

static void copy_plan(const struct ps_core *core, uint32_t stream, uint8_t *out, size_t *at)
{
    const struct mr_plan *plan = ps_applied_batches_plan(core->applied, stream);
    struct ps_record record = {.kind = PS_RECORD_STREAM,
                               .feature = core->index,
                               .count = core->node->core_count,
                               .row_bytes = PS_STREAM_PLAN,
                               .bytes = PS_STREAM_PLAN_WORDS * sizeof(uint64_t)};
    uint64_t *to = (uint64_t *)(void *)add_record(out, at, &record);
    if (to != NULL) {
        to[0] = stream;
        memcpy(&to[1], plan, sizeof(*plan));
        to[1 + MR_PLAN_WORDS] = ps_applied_batches_used(core->applied, stream);
    }
}

static void copy_partial(const struct ps_core *core, const struct ps_partial *partial, uint8_t *out,
                         size_t *at)
{
    struct ps_record record = {.kind = PS_RECORD_STREAM,
                               .feature = core->index,
                               .count = core->node->core_count,
                               .row_bytes = PS_STREAM_PARTIAL,
                               .bytes = sizeof(*partial)};
    uint8_t *to = add_record(out, at, &record);
    if (to != NULL) {
        memcpy(to, partial, sizeof(*partial));
    }
}

static void copy_client(const struct ps_core *core, const struct ps_client *client, uint8_t *out, size_t *at)
{
    struct ps_record record = {.kind = PS_RECORD_CLIENT,
                               .feature = core->index,
                               .count = core->node->core_count,
                               .bytes = MR_UUID_BYTES + sizeof(uint64_t)};
    uint8_t *to = add_record(out, at, &record);
    if (to != NULL) {
        memcpy(to, client->uuid, MR_UUID_BYTES);
        memcpy(to + MR_UUID_BYTES, &client->last_step, sizeof(uint64_t));
    }
}

static void copy_pushes(const struct ps_core *core, const struct ps_push_lane *piece, uint8_t *out,
                        size_t *at)
{
    struct ps_stored_pushes stored = {.lane = piece->lane,
                                      .partition = piece->partition,
                                      .partition_end = piece->partition_end,
                                      .floor = piece->window.floor};
    uint64_t words[PS_PUSH_WINDOW_WORDS];
    uint32_t word_count = ps_push_window_store(&piece->window, words);
    struct ps_record record = {.kind = PS_RECORD_PUSHES,
                               .feature = core->index,
                               .count = core->node->core_count,
                               .offset = piece->used,
                               .bytes = sizeof(stored) + word_count * sizeof(*words)};
    uint8_t *to = add_record(out, at, &record);
    if (to != NULL) {
        memcpy(stored.uuid, piece->uuid, MR_UUID_BYTES);
        memcpy(to, &stored, sizeof(stored));
        memcpy(to + sizeof(stored), words, word_count * sizeof(*words));
    }
}

static void copy_clients(const struct ps_core *core, uint8_t *out, size_t *at)
{
    for (uint32_t i = 0; i < PS_CLIENTS_MAX; i++) {
        if (ps_clients_at(core->clients, i)->used != 0) {
            copy_client(core, ps_clients_at(core->clients, i), out, at);
        }
    }
    for (uint32_t i = 0; i < PS_PUSH_LANES_MAX; i++) {
        for (const struct ps_push_lane *piece = ps_pushes_at(core->pushes, i); piece != NULL;
             piece = piece->next) {
            copy_pushes(core, piece, out, at);
        }
    }
}

/* Writes the copy to `out` if there is one. Returns its bytes. */
static size_t copy_small(const struct ps_core *core, uint8_t *out)
{
    size_t at = 0;
    for (uint32_t s = ps_applied_batches_next_stream(core->applied, 0); s < PS_STREAMS_MAX;
         s = ps_applied_batches_next_stream(core->applied, s + 1)) {
        copy_stream(core, s, out, &at);
        copy_plan(core, s, out, &at);
    }
    for (uint32_t i = 0; i < core->partials.count; i++) {
        copy_partial(core, &core->partials.entries[i], out, &at);
    }
    copy_clients(core, out, &at);
    return at;
}

bool ps_save_copy_begin(const struct ps_core *core, struct ps_save *save)
{
    save->copy_bytes = copy_small(core, NULL);
    save->copy = malloc(save->copy_bytes + 1);
    if (save->copy == NULL) {
        return false;
    }
    copy_small(core, save->copy);
    return true;
}

/* One record of the copy. */
enum ps_save_went ps_save_copy_step(struct ps_core *core, uint64_t now_us)
{
    struct ps_save *save = &core->save;
    struct ps_record record;
    if (save->copied_out_bytes == save->copy_bytes) {
        return PS_SAVE_THROUGH;
    }
    memcpy(&record, save->copy + save->copied_out_bytes, sizeof(record));
    uint8_t *to = ps_save_append(core, &record, now_us);
    if (to == NULL) {
        return PS_SAVE_NO_ROOM;
    }
    memcpy(to, save->copy + save->copied_out_bytes + sizeof(record), record.bytes);
    save->copied_out_bytes += sizeof(record) + ps_save_padded(record.bytes);
    return PS_SAVE_WENT_ON;
}

/* ---- variables: read where they are, or from a copy made before a change ---- */

static uint64_t left_of(const struct ps_feature *f)
{
    return ps_variable_stored_bytes(f->variable) - f->cut_bytes;
}

void ps_save_variable_end(struct ps_core *core, struct ps_feature *f)
{
    if (f->cut_copy != NULL) {
        core->save.variable_copy_bytes -= f->cut_copy_bytes;
    }
    free(f->cut_copy);
    f->cut_copy = NULL;
    f->in_cut = false;
}

bool ps_save_variable_ready(struct ps_core *core, struct ps_feature *f)
{
    struct ps_save *save = &core->save;
    if (!f->in_cut || f->cut_copy != NULL) {
        return true;
    }
    uint64_t bytes = left_of(f);
    if (save->variable_copy_bytes + bytes > PS_SAVE_VARIABLES_BYTES) {
        return false;
    }
    f->cut_copy = malloc(bytes);
    if (f->cut_copy == NULL) {
        return false;
    }
    ps_variable_store(f->variable, f->cut_bytes, bytes, f->cut_copy);
    f->cut_copy_bytes = bytes;
    save->variable_copy_bytes += bytes;
    return true;
}

static void piece_read(const struct ps_feature *f, uint64_t bytes, uint8_t *out)
{
    if (f->cut_copy != NULL) {
        uint64_t begins_at = ps_variable_stored_bytes(f->variable) - f->cut_copy_bytes;
        memcpy(out, f->cut_copy + (f->cut_bytes - begins_at), bytes);
    } else {
        ps_variable_store(f->variable, f->cut_bytes, bytes, out);
    }
}

enum ps_save_went ps_save_variable_step(struct ps_core *core, struct ps_feature *f, uint64_t now_us)
{
    uint64_t bytes = left_of(f) < VARIABLE_PIECE_BYTES ? left_of(f) : VARIABLE_PIECE_BYTES;
    struct ps_record record = {.kind = PS_RECORD_VARIABLE,
                               .feature = f->id,
                               .count = (uint32_t)bytes,
                               .offset = f->cut_bytes,
                               .bytes = bytes};
    uint8_t *to = ps_save_append(core, &record, now_us);
    if (to == NULL) {
        return PS_SAVE_NO_ROOM;
    }
    piece_read(f, bytes, to);
    f->cut_bytes += bytes;
    if (left_of(f) > 0) {
        return PS_SAVE_WENT_ON;
    }
    ps_save_variable_end(core, f);
    return PS_SAVE_THROUGH;
}
