#include "ps/save.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "ps/core.h"

#define VARIABLE_PIECE_BYTES                                                                                 \
    (64u << 10)              /* of a variable per record: small against a block, so little is wasted */
#define STREAM_HEAD_WORDS 2u /* stream, watermark */

static size_t padded(uint64_t bytes)
{
    return (size_t)((bytes + 7) & ~UINT64_C(7));
}

/* ---- the copy: everything small, as records ---- */

/* Writes a record's header and returns the place of its bytes; with out == NULL only counts. */
static uint8_t *add_record(uint8_t *out, size_t *at, const struct ps_record *record)
{
    uint8_t *bytes = NULL;
    if (out != NULL) {
        memcpy(out + *at, record, sizeof(*record));
        bytes = out + *at + sizeof(*record);
        memset(bytes + record->bytes, 0, padded(record->bytes) - record->bytes);
    }
    *at += sizeof(*record) + padded(record->bytes);
    return bytes;
}

/* False when memory is short. */
static bool copy_variable(const struct ps_feature *f, uint8_t *out, size_t *at)
{
    uint64_t total = ps_variable_stored_bytes(f->variable);
    uint8_t *stored = NULL;
    if (out != NULL) {
        stored = malloc(total);
        if (stored == NULL) {
            return false;
        }
        ps_variable_store(f->variable, stored);
    }
    for (uint64_t offset = 0; offset < total; offset += VARIABLE_PIECE_BYTES) {
        uint64_t bytes = total - offset < VARIABLE_PIECE_BYTES ? total - offset : VARIABLE_PIECE_BYTES;
        struct ps_record record = {.kind = PS_RECORD_VARIABLE,
                                   .feature = f->id,
                                   .count = (uint32_t)bytes,
                                   .offset = offset,
                                   .bytes = bytes};
        uint8_t *to = add_record(out, at, &record);
        if (to != NULL) {
            memcpy(to, stored + offset, bytes);
        }
    }
    free(stored);
    return true;
}

static void copy_stream(const struct ps_core *core, uint32_t stream, uint8_t *out, size_t *at)
{
    uint32_t words = ps_learnt_bitmap_words(core->learnt, stream);
    struct ps_record record = {.kind = PS_RECORD_STREAM,
                               .feature = core->index,
                               .count = core->node->core_count,
                               .offset = ps_learnt_added(core->learnt, stream),
                               .bytes = (STREAM_HEAD_WORDS + (uint64_t)words) * sizeof(uint64_t)};
    uint64_t *to = (uint64_t *)(void *)add_record(out, at, &record);
    if (to != NULL) {
        to[0] = stream;
        to[1] = ps_learnt_watermark(core->learnt, stream);
        ps_learnt_bitmap(core->learnt, stream, to + STREAM_HEAD_WORDS);
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

/* Bytes of the copy; writes it when `out` is given. False when memory is short. */
static bool copy_small(const struct ps_core *core, uint8_t *out, size_t *copy_bytes)
{
    size_t at = 0;
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        const struct ps_feature *f = core->features[id];
        if (f != NULL && f->variable != NULL && !copy_variable(f, out, &at)) {
            return false;
        }
    }
    for (uint32_t s = ps_learnt_next_stream(core->learnt, 0); s < PS_STREAMS_MAX;
         s = ps_learnt_next_stream(core->learnt, s + 1)) {
        copy_stream(core, s, out, &at);
    }
    for (uint32_t i = 0; i < core->partials.count; i++) {
        copy_partial(core, &core->partials.entries[i], out, &at);
    }
    copy_clients(core, out, &at);
    *copy_bytes = at;
    return true;
}

/* ---- rows ---- */

static void write_rows(struct ps_save *save, const struct ps_feature *f, uint32_t row_bytes,
                       const uint64_t *keys, const uint8_t *const *rows, uint32_t count)
{
    struct ps_record record = {.kind = PS_RECORD_ROWS,
                               .feature = f->id,
                               .count = count,
                               .row_bytes = row_bytes,
                               .bytes = count * (sizeof(uint64_t) + (uint64_t)row_bytes)};
    uint8_t *to = ps_writer_append(save->writer, f->core->index, &record);
    if (to == NULL) {
        assert(ps_writer_failed(save->writer)); /* room was checked before the rows were asked for */
        return;
    }
    memcpy(to, keys, count * sizeof(uint64_t));
    to += count * sizeof(uint64_t);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(to + (size_t)i * row_bytes, rows[i], row_bytes);
    }
}

static void emit(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                 uint32_t count)
{
    const struct ps_feature *f = self;
    uint32_t row_bytes = ps_table_stored_row_bytes(t);
    for (uint32_t i = 0; i < count; i += PS_SAVE_RECORD_ROWS) {
        uint32_t n = count - i < PS_SAVE_RECORD_ROWS ? count - i : PS_SAVE_RECORD_ROWS;
        write_rows(&f->core->save, f, row_bytes, keys + i, rows + i, n);
    }
}

/* What up to `rows` rows take, whatever the records they come in: a record never spans blocks, so each block may lose
 * up to a record at its end. */
static uint64_t rows_need_bytes(uint64_t rows, uint32_t row_bytes)
{
    uint64_t per_row = sizeof(struct ps_record) + sizeof(uint64_t) + padded(row_bytes) + 8;
    uint64_t record_max =
        sizeof(struct ps_record) + PS_SAVE_RECORD_ROWS * (sizeof(uint64_t) + (uint64_t)row_bytes) + 8;
    uint64_t bytes = rows * per_row;
    uint64_t blocks = bytes / (PS_BLOCK_BYTES - 2 * record_max) + 2;
    return rows == 0 ? 0 : bytes + blocks * record_max;
}

/* Beside what pushes in slices have been promised, and one that was held back waits for. */
static bool has_room(void *self, const struct ps_table *t, uint32_t rows)
{
    const struct ps_feature *f = self;
    const struct ps_save *save = &f->core->save;
    uint64_t need_bytes = rows_need_bytes(rows, ps_table_stored_row_bytes(t));
    uint64_t wanted_bytes = dp_now_us() < save->wanted_until_us ? save->wanted_bytes : 0;
    return ps_writer_free_bytes(save->writer, f->core->index) >=
           save->reserved_bytes + wanted_bytes + need_bytes;
}

enum mr_status ps_save_begin(struct ps_core *core, struct ps_writer *writer, uint64_t *bytes)
{
    struct ps_save *save = &core->save;
    assert(save->writer == NULL && core->long_calls.running == NULL);
    size_t copy_bytes = 0;
    copy_small(core, NULL, &copy_bytes);
    uint8_t *copy = malloc(copy_bytes + 1);
    if (copy == NULL || !copy_small(core, copy, &copy_bytes)) {
        free(copy);
        return MR_OUT_OF_MEMORY;
    }
    *save = (struct ps_save){.writer = writer,
                             .copy = copy,
                             .copy_bytes = copy_bytes,
                             .next_feature = 1,
                             .capacity_bytes = ps_writer_free_bytes(writer, core->index)};
    ps_pushes_cut(core->pushes);
    *bytes = copy_bytes;
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        struct ps_feature *f = core->features[id];
        if (f == NULL || f->table == NULL) {
            continue;
        }
        f->cut = (struct ps_cut){.self = f, .emit = emit, .has_room = has_room};
        f->in_cut = true;
        *bytes += ps_table_rows(f->table) * (sizeof(uint64_t) + ps_table_stored_row_bytes(f->table));
        ps_table_cut_begin(f->table, &f->cut, PS_SAVE_FULL);
    }
    return MR_OK;
}

void ps_save_end(struct ps_core *core)
{
    struct ps_save *save = &core->save;
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        struct ps_feature *f = core->features[id];
        if (f != NULL && f->in_cut) {
            ps_table_cut_abort(f->table);
            f->in_cut = false;
        }
    }
    free(save->copy);
    *save = (struct ps_save){0};
}

/* ---- room in the writer's buffers ---- */

uint64_t ps_save_need_bytes(const struct ps_core *core, const struct ps_feature *feature, uint32_t key_count)
{
    if (core->save.writer == NULL || !feature->in_cut) {
        return 0;
    }
    return rows_need_bytes(ps_table_cut_rows_max(feature->table, key_count),
                           ps_table_stored_row_bytes(feature->table));
}

bool ps_save_has_room(struct ps_core *core, uint64_t need_bytes, uint64_t now_us)
{
    struct ps_save *save = &core->save;
    if (need_bytes == 0 ||
        ps_writer_free_bytes(save->writer, core->index) >= save->reserved_bytes + need_bytes ||
        ps_writer_failed(save->writer)) {
        return true;
    }
    /* More than the buffers can hold beside the one being filled: it waits for the end of the cut, and the cursor must not
     * wait for it. */
    if (need_bytes + PS_BLOCK_BYTES <= save->capacity_bytes) {
        save->wanted_bytes = need_bytes;
        save->wanted_until_us = now_us + PS_SAVE_HOLD_CURSOR_US;
    }
    return false;
}

/* ---- the cursor ---- */

static bool cursor_has_room(const struct ps_core *core, uint64_t need_bytes, uint64_t now_us)
{
    const struct ps_save *save = &core->save;
    uint64_t wanted = now_us < save->wanted_until_us ? save->wanted_bytes : 0;
    return ps_writer_free_bytes(save->writer, core->index) >= save->reserved_bytes + wanted + need_bytes;
}

/* One record of the copy; false when there is no room. */
static bool write_copy_record(struct ps_core *core, uint64_t now_us)
{
    struct ps_save *save = &core->save;
    struct ps_record record;
    memcpy(&record, save->copy + save->copied_out_bytes, sizeof(record));
    if (!cursor_has_room(core, sizeof(record) + padded(record.bytes), now_us)) {
        return false;
    }
    uint8_t *to = ps_writer_append(save->writer, core->index, &record);
    if (to == NULL) {
        return false;
    }
    memcpy(to, save->copy + save->copied_out_bytes + sizeof(record), record.bytes);
    save->copied_out_bytes += sizeof(record) + padded(record.bytes);
    return true;
}

/* The next table that the cut is not through with, or NULL. */
static struct ps_feature *cursor_table(struct ps_core *core)
{
    for (; core->save.next_feature <= core->feature_id_max; core->save.next_feature++) {
        struct ps_feature *f = core->features[core->save.next_feature];
        if (f != NULL && f->in_cut) {
            return f;
        }
    }
    return NULL;
}

static bool write_buckets(struct ps_core *core, struct ps_feature *f, uint64_t now_us)
{
    uint32_t buckets = PS_SAVE_STEP_BUCKETS;
    if (!cursor_has_room(core, ps_save_need_bytes(core, f, buckets), now_us)) {
        buckets = 1;
        if (!cursor_has_room(core, ps_save_need_bytes(core, f, buckets), now_us)) {
            return false;
        }
    }
    f->in_cut = !ps_table_cut_step(f->table, buckets);
    return true;
}

bool ps_save_step(struct ps_core *core, uint64_t now_us)
{
    struct ps_save *save = &core->save;
    struct ps_writer *writer = save->writer;
    uint64_t end_us = dp_now_us() + PS_SAVE_STEP_US;
    do {
        struct ps_feature *f = NULL;
        bool is_copying = save->copied_out_bytes < save->copy_bytes;
        if (ps_writer_failed(writer) || (!is_copying && (f = cursor_table(core)) == NULL)) {
            ps_save_end(core);
            ps_writer_core_done(writer, core->index);
            return false;
        }
        if (!(is_copying ? write_copy_record(core, now_us) : write_buckets(core, f, now_us))) {
            return false;
        }
    } while (dp_now_us() < end_us);
    return true;
}
