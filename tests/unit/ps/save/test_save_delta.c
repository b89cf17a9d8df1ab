/* One core's saves of what has changed: a full and the deltas on it, read back, are the core as it was at the
 * last of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core_fixture.h"
#include "ps/base/key_hash.h"
#include "ps/core/core.h"
#include "ps/server/poll.h"
#include "ps/table/table_internal.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"
#include "tests/unit/temporary_directory.h"

#define ROWS     6000u
#define DIM      4u
#define TABLE    1u
#define VARIABLE 2u
#define ELEMENTS (96u << 10) /* of the variable: its stored bytes are six pieces */

/* What the checkpoints say. */
struct image {
    bool there[ROWS];
    float rows[ROWS][DIM]; /* by key */
    float variable[ELEMENTS];
    uint64_t rows_read, gone_read, observations_read;
};

struct fixture {
    struct core_fixture alone;
    struct ps_core *core;
    struct ps_table *table;
    struct ps_writer *writer;
    char *directory;
    struct mr_feature features[2];
    struct image image, at_cut;
    float out[ROWS * DIM];
    uint64_t keys[ROWS];
};

static int save_delta_make(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    char text[PS_CORE_TEXT_BYTES];
    const uint32_t elements = ELEMENTS;
    assert_non_null(f);
    core_fixture_init(&f->alone, 1, 256);
    f->alone.config.checkpoint_deltas = 8;
    core_fixture_make(&f->alone, 0);
    f->core = f->alone.core;
    f->features[0] = mr_feature_table("emb", DIM);
    f->features[0].learning_rate = 1;
    f->features[0].admission = MR_ADMIT_OBSERVATIONS; /* with the first: rows come as without */
    f->features[0].admission_arg = 1;
    f->features[1] = mr_feature_variable("dense", 1, &elements);
    for (uint32_t id = 1; id <= 2; id++)
        assert_int_equal(ps_core_add_feature(f->core, id, &f->features[id - 1], text), MR_OK);
    f->table = f->core->features[TABLE]->table;
    for (uint32_t i = 0; i < ROWS; i++)
        f->keys[i] = i;
    f->directory = temporary_directory_make();
    *state = f;
    return 0;
}

static int save_delta_destroy(void **state)
{
    struct fixture *f = *state;
    ps_core_destroy(f->core);
    int status = temporary_directory_remove(f->directory);
    free(f);
    return status;
}

/* ---- what the core holds ---- */

static void save_delta_push(struct fixture *f, uint32_t first, uint32_t count, float gradient)
{
    for (uint32_t i = 0; i < count * DIM; i++)
        f->out[i] = gradient;
    table_push(f->table, f->keys + first, count, f->out);
}

static void make_rows(struct fixture *f, uint32_t first, uint32_t count)
{
    table_lookup(f->table, f->keys + first, count, true, f->out);
}

static bool has_row(const struct fixture *f, uint64_t key)
{
    return ps_index_find(&f->table->index, ps_index_hash(&f->table->index, key)).bucket != NULL;
}

static void remove_rows(struct fixture *f, uint32_t first, uint32_t count)
{
    for (uint64_t key = first; key < first + count; key++) {
        uint64_t hash = ps_index_hash(&f->table->index, key);
        ps_table_row_remove(f->table, ps_index_find(&f->table->index, hash), hash);
    }
}

static void note_state(struct fixture *f)
{
    memset(&f->at_cut, 0, sizeof(f->at_cut));
    for (uint64_t key = 0; key < ROWS; key++) {
        f->at_cut.there[key] = has_row(f, key);
        if (f->at_cut.there[key])
            table_lookup(f->table, &key, 1, false, f->at_cut.rows[key]);
    }
    memcpy(f->at_cut.variable, ps_variable_values(f->core->features[VARIABLE]->ranges[0].variable),
           sizeof(f->at_cut.variable));
}

/* ---- saving ---- */

static void save_delta_begin(struct fixture *f, uint64_t id, uint64_t parent)
{
    uint64_t bytes;
    const uint32_t ids[] = {TABLE, VARIABLE};
    const struct ps_writer_options options = {.directory = f->directory,
                                              .id = id,
                                              .parent_id = parent,
                                              .features = f->features,
                                              .feature_ids = ids,
                                              .feature_count = 2,
                                              .buffers_per_core = 64};
    note_state(f);
    f->writer = core_fixture_save(f->core, &options, parent == 0 ? PS_SAVE_FULL : PS_SAVE_DELTA, &bytes);
    assert_false(ps_save_delta_possible(f->core));
}

static void save_delta_finish(struct fixture *f)
{
    assert_int_equal(core_fixture_save_end(f->core, f->writer).status, MR_OK);
}

static enum mr_status see(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct image *image = arg;
    const uint64_t *keys = (const uint64_t *)(const void *)bytes;
    if (record->kind == PS_RECORD_ROWS) {
        for (uint32_t i = 0; i < record->count; i++) {
            memcpy(image->rows[keys[i]], bytes + record->count * sizeof(*keys) + i * record->row_bytes,
                   sizeof(image->rows[0]));
            image->there[keys[i]] = true;
        }
        image->rows_read += record->count;
    } else if (record->kind == PS_RECORD_GONE) {
        for (uint32_t i = 0; i < record->count; i++)
            image->there[keys[i]] = false;
        image->gone_read += record->count;
    } else if (record->kind == PS_RECORD_OBSERVATIONS) {
        image->observations_read += record->bytes;
    } else if (record->kind == PS_RECORD_VARIABLE && record->offset < sizeof(image->variable)) {
        memcpy((uint8_t *)image->variable + record->offset, bytes, record->bytes);
    }
    return MR_OK;
}

static void read_link(struct fixture *f, uint64_t link)
{
    char path[256];
    uint8_t *block = malloc(PS_BLOCK_BYTES);
    assert_non_null(block);
    snprintf(path, sizeof(path), "%s/ckpt-%u/core-000.mrc", f->directory, (unsigned)link);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    f->image.rows_read = f->image.gone_read = f->image.observations_read = 0;
    while (fread(block, 1, PS_BLOCK_BYTES, file) == PS_BLOCK_BYTES)
        assert_int_equal(ps_block_each(block, see, &f->image), MR_OK);
    fclose(file);
    free(block);
}

/* The links from `first` up to `id`, one on the other, are what there was at the last cut. */
static void check_chain(struct fixture *f, uint64_t first, uint64_t id)
{
    f->image = (struct image){.rows_read = 0};
    for (uint64_t link = first; link <= id; link++)
        read_link(f, link);
    for (uint32_t key = 0; key < ROWS; key++) {
        assert_int_equal(f->image.there[key], f->at_cut.there[key]);
        if (f->at_cut.there[key])
            assert_memory_equal(f->image.rows[key], f->at_cut.rows[key], sizeof(f->image.rows[key]));
    }
    assert_memory_equal(f->image.variable, f->at_cut.variable, sizeof(f->image.variable));
}

TEST(a_chain_is_the_core_as_it_was, save_delta_make, save_delta_destroy)
{
    struct fixture *f = *state;
    assert_false(ps_save_delta_possible(f->core)); /* there is nothing for it to stand on */
    make_rows(f, 0, 4000);
    save_delta_begin(f, 1, 0);
    save_delta_push(f, 0, 100, 1); /* is of the next */
    remove_rows(f, 100, 50);
    save_delta_finish(f);
    check_chain(f, 1, 1);
    assert_int_equal(f->image.rows_read, 4000);

    assert_true(ps_save_delta_possible(f->core));
    save_delta_push(f, 50, 40, 2);
    make_rows(f, 120, 10);   /* went, and is there again */
    make_rows(f, 4000, 500); /* new */
    remove_rows(f, 4400, 20);
    save_delta_begin(f, 2, 1);
    make_rows(f, 100, 10); /* went, so it is in the cut as gone, and in the next as a row */
    remove_rows(f, 0, 10);
    remove_rows(f, 3000, 10);
    save_delta_push(f, 50, 100, 3);
    save_delta_finish(f);
    check_chain(f, 1, 2);
    assert_int_equal(f->image.rows_read, 100 + 10 + 480); /* pushed to, made again, new */
    assert_int_equal(f->image.gone_read, 40 + 20);
    assert_int_in_range(f->image.observations_read, 400 * PS_FILTER_PIECE_BYTES_MAX,
                        500 * PS_FILTER_PIECE_BYTES_MAX);

    assert_true(ps_save_delta_possible(f->core));
    save_delta_begin(f, 3, 2);
    save_delta_finish(f);
    check_chain(f, 1, 3);
    save_delta_begin(f, 4, 3); /* nothing has changed */
    save_delta_finish(f);
    check_chain(f, 1, 4);
    assert_int_equal(f->image.rows_read + f->image.gone_read + f->image.observations_read, 0);
}

TEST(a_delta_needs_a_cut_to_stand_on, save_delta_make, save_delta_destroy)
{
    struct fixture *f = *state;
    make_rows(f, 0, 1000);
    save_delta_begin(f, 1, 0);
    save_delta_finish(f);
    assert_true(ps_save_delta_possible(f->core));
    ps_save_marks_lost(f->core); /* it was not published */
    assert_false(ps_save_delta_possible(f->core));
    save_delta_begin(f, 2, 0);
    save_delta_finish(f);
    assert_true(ps_save_delta_possible(f->core));
    save_delta_begin(f, 3, 0);
    ps_save_end(f->core); /* before its end */
    ps_writer_abort(f->writer);
    ps_writer_finish(f->writer);
    assert_false(ps_save_delta_possible(f->core));
    save_delta_begin(f, 4, 0);
    save_delta_finish(f);
    make_rows(f, 1000, 4000);
    remove_rows(f, 0, 4000); /* more than are kept */
    assert_false(ps_save_delta_possible(f->core));
    save_delta_begin(f, 5, 0);
    save_delta_finish(f);
    assert_true(ps_save_delta_possible(f->core));
    ps_core_clear(f->core);
    assert_false(ps_save_delta_possible(f->core));
    ps_save_is_as_saved(f->core);
    assert_true(ps_save_delta_possible(f->core));
}

static void expect_no_delta(const struct ps_core *core, enum ps_no_delta why, const char *name)
{
    const char *table;
    assert_int_equal(ps_save_no_delta(core, &table), why);
    if (name == NULL)
        assert_null(table);
    else
        assert_string_equal(table, name);
}

TEST(why_there_is_none, save_delta_make, save_delta_destroy)
{
    struct fixture *f = *state;
    char text[PS_CORE_TEXT_BYTES];
    expect_no_delta(f->core, PS_NO_DELTA_UNKNOWN, NULL);
    make_rows(f, 0, 5000);
    save_delta_begin(f, 1, 0);
    expect_no_delta(f->core, PS_NO_DELTA_UNKNOWN, NULL);
    save_delta_finish(f);
    expect_no_delta(f->core, PS_DELTA_POSSIBLE, NULL);
    remove_rows(f, 0, 4000);
    expect_no_delta(f->core, PS_NO_DELTA_ROWS_WENT, "emb");
    /* There is no room for a bit for each piece of the largest filter, and in pieces of half as much for the
     * table. Its small allocations come from pages that one like it has begun: with pages of 64 KiB, as on
     * arm64, a new run of them takes several. */
    enum {
        BITS_BYTES = MR_FILTER_BYTES_MAX / PS_OCCURRENCE_LINE_BYTES / PS_OCCURRENCE_PART_LINES / 8,
        MOST = 256
    };
    void *taken[MOST], *half[MOST];
    uint32_t count = 0, halves = 0;
    struct mr_feature alike = f->features[0], large = alike;
    memcpy(alike.name, "alike", sizeof("alike"));
    large.filter_bytes = MR_FILTER_BYTES_MAX;
    memcpy(large.name, "large", sizeof("large"));
    f->alone.config.memory_limit_mib = 64;
    struct ps_core *core = ps_core_create(&f->alone.node, 0);
    assert_non_null(core);
    assert_int_equal(ps_core_add_feature(core, 2, &alike, text), MR_OK);
    while (count < MOST && (taken[count] = ps_arena_alloc(core->arena, BITS_BYTES, 64)) != NULL)
        count++;
    assert_int_in_range(count, 5, MOST - 1);
    for (int i = 0; i < 4; i++)
        ps_arena_free(core->arena, taken[--count], BITS_BYTES, 64);
    while (halves < MOST && (half[halves] = ps_arena_alloc(core->arena, BITS_BYTES / 2, 64)) != NULL)
        halves++;
    assert_int_in_range(halves, 8, MOST - 1);
    for (uint32_t i = 0; i < halves; i += 2) /* no two neighbours, which would make room for the bits */
        ps_arena_free(core->arena, half[i], BITS_BYTES / 2, 64);
    if (ps_core_add_feature(core, 3, &large, text) != MR_OK)
        fail_msg("%s", text);
    ps_save_is_as_saved(core);
    expect_no_delta(core, PS_NO_DELTA_NO_MEMORY, "large");
    for (uint32_t i = 1; i < halves; i += 2)
        ps_arena_free(core->arena, half[i], BITS_BYTES / 2, 64);
    while (count > 0)
        ps_arena_free(core->arena, taken[--count], BITS_BYTES, 64);
    expect_no_delta(core, PS_NO_DELTA_NO_MEMORY, "large"); /* it stays so */
    ps_core_destroy(core);
}

TEST(without_the_setting_there_are_no_deltas, save_delta_make, save_delta_destroy)
{
    struct fixture *f = *state;
    char text[PS_CORE_TEXT_BYTES];
    f->alone.config.checkpoint_deltas = 0;
    struct ps_core *core = ps_core_create(&f->alone.node, 0);
    assert_non_null(core);
    assert_int_equal(ps_core_add_feature(core, TABLE, &f->features[0], text), MR_OK);
    ps_save_is_as_saved(core);
    assert_false(ps_save_delta_possible(core));
    ps_core_destroy(core);
}

/* The variable changes under the cursor: what is left of it is copied first. */
TEST(a_variable_is_as_it_was_at_the_cut, save_delta_make, save_delta_destroy)
{
    struct fixture *f = *state;
    struct ps_range *v = &f->core->features[VARIABLE]->ranges[0];
    static float gradient[ELEMENTS];
    for (uint32_t i = 0; i < ELEMENTS; i++)
        gradient[i] = 1;
    for (uint64_t id = 1; id <= 3; id++) { /* at its start, within, after its end */
        save_delta_begin(f, id, 0);
        for (uint32_t i = 1; i < id; i++) {
            while (v->in_cut && v->cut_bytes < i * ELEMENTS) {
                /* a step of no time: one record */
                ps_save_step(f->core, dp_now_us(), PS_SAVE_STEP_US);
            }
        }
        assert_true(ps_save_range_ready(f->core, v));
        assert_int_equal(f->core->save.variable_copy_bytes,
                         v->in_cut ? ps_variable_stored_bytes(v->variable) - v->cut_bytes : 0);
        assert_true(ps_save_range_ready(f->core, v));
        assert_true(ps_variable_push(v->variable, 0, 0, gradient));
        save_delta_finish(f);
        assert_int_equal(f->core->save.variable_copy_bytes, 0);
        check_chain(f, id, id);
    }
    save_delta_begin(f, 4, 0);
    assert_true(ps_save_range_ready(f->core, v));
    ps_save_end(f->core);
    ps_writer_abort(f->writer);
    ps_writer_finish(f->writer);
    assert_false(v->in_cut);
}

TEST(a_large_variable_waits_for_the_cursor, save_delta_make, save_delta_destroy)
{
    struct fixture *f = *state;
    char text[PS_CORE_TEXT_BYTES];
    const uint32_t elements = PS_SAVE_VARIABLES_BYTES / sizeof(float) + 1;
    ps_core_remove_feature(f->core, VARIABLE);
    f->features[1] = mr_feature_variable("dense", 1, &elements);
    assert_int_equal(ps_core_add_feature(f->core, VARIABLE, &f->features[1], text), MR_OK);
    struct ps_range *v = &f->core->features[VARIABLE]->ranges[0];
    assert_true(ps_save_range_ready(f->core, v)); /* no cut is on */
    save_delta_begin(f, 1, 0);
    assert_false(ps_save_range_ready(f->core, v));
    while (ps_variable_stored_bytes(v->variable) - v->cut_bytes > PS_SAVE_VARIABLES_BYTES) {
        assert_false(ps_save_range_ready(f->core, v));
        ps_save_step(f->core, dp_now_us(), PS_SAVE_STEP_US);
    }
    assert_true(ps_save_range_ready(f->core, v));
    save_delta_finish(f);
}
