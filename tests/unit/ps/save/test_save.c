/* One core's part of a checkpoint: everything once, as of the cut, at the pace of the writer's buffers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core_fixture.h"
#include "dataplane/wire/format/capability.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/core/core.h"
#include "ps/server/poll.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/ps/reader_each.h"

#define POLLS 100000u /* enough for all background work, whatever comes between */

#define ROWS 40000u
#define DIM  16u

struct fixture {
    struct core_fixture alone;
    struct ps_core *core;
    struct ps_writer *writer;
    char *directory;
    struct mr_feature feature;
};

static int save_make(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    char text[PS_CORE_TEXT_BYTES];
    assert_non_null(f);
    core_fixture_init(&f->alone, 1, 256);
    core_fixture_make(&f->alone, 0);
    f->core = f->alone.core;
    f->feature = mr_feature_table("emb", DIM);
    f->feature.learning_rate = 1;
    assert_int_equal(ps_core_add_feature(f->core, 1, &f->feature, text), MR_OK);
    uint64_t *keys = malloc(ROWS * sizeof(*keys));
    float *rows = malloc(ROWS * DIM * sizeof(*rows));
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    table_lookup(f->core->features[1]->table, keys, ROWS, true, rows);
    free(rows);
    free(keys);
    f->directory = temporary_directory_make();
    *state = f;
    return 0;
}

static int save_destroy(void **state)
{
    struct fixture *f = *state;
    ps_core_destroy(f->core);
    int status = temporary_directory_remove(f->directory);
    free(f);
    return status;
}

/* The cut, with that many buffers. */
static void begin_at_rate(struct fixture *f, uint32_t buffers, uint64_t bytes_per_s_max)
{
    uint64_t bytes;
    const uint32_t id = 1;
    const struct ps_writer_options options = {.directory = f->directory,
                                              .id = 1,
                                              .features = &f->feature,
                                              .feature_ids = &id,
                                              .feature_count = 1,
                                              .bytes_per_s_max = bytes_per_s_max,
                                              .buffers_per_core = buffers};
    f->writer = core_fixture_save(f->core, &options, PS_SAVE_FULL, &bytes);
    assert_int_in_range(bytes, ROWS * DIM * sizeof(float), 2 * ROWS * DIM * sizeof(float));
}

static void save_begin(struct fixture *f, uint32_t buffers)
{
    begin_at_rate(f, buffers, 0);
}

static struct ps_writer_status save_finish(struct fixture *f)
{
    return core_fixture_save_end(f->core, f->writer);
}

static void push_all(struct fixture *f, float gradient)
{
    float *gradients = malloc(ROWS * DIM * sizeof(*gradients));
    uint64_t *keys = malloc(ROWS * sizeof(*keys));
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < ROWS * DIM; i++)
        gradients[i] = gradient;
    table_push(f->core->features[1]->table, keys, ROWS, gradients);
    free(keys);
    free(gradients);
}

struct seen {
    uint8_t times[ROWS];
    uint32_t wrong; /* rows that are not as of the cut */
    uint32_t streams, clients;
};

static enum mr_status see(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct seen *seen = arg;
    seen->streams += record->kind == PS_RECORD_STREAM && record->row_bytes == PS_STREAM_APPLIED;
    seen->clients += record->kind == PS_RECORD_CLIENT;
    for (uint32_t i = 0; record->kind == PS_RECORD_ROWS && i < record->count; i++) {
        uint64_t key;
        float value;
        memcpy(&key, bytes + i * sizeof(key), sizeof(key));
        memcpy(&value, bytes + record->count * sizeof(key) + (size_t)i * record->row_bytes, sizeof(value));
        assert_int_in_range(key, 0, ROWS - 1);
        seen->times[key]++;
        seen->wrong += value != 0;
    }
    return MR_OK;
}

static void check_checkpoint(const struct fixture *f, uint32_t streams, uint32_t clients)
{
    static struct seen seen;
    char text[256];
    struct ps_reader *reader;
    seen = (struct seen){0};
    assert_int_equal(ps_reader_open(NULL, f->directory, 1, &reader, text), MR_OK);
    assert_int_equal(reader_each(reader, see, &seen, text), MR_OK);
    ps_reader_close(reader);
    for (uint32_t i = 0; i < ROWS; i++)
        assert_int_equal(seen.times[i], 1);
    assert_int_equal(seen.wrong, 0);
    assert_int_equal(seen.streams, streams);
    assert_int_equal(seen.clients, clients);
}

TEST(a_push_behind_the_cut_is_not_in_it, save_make, save_destroy)
{
    struct fixture *f = *state;
    const uint8_t uuid[MR_UUID_BYTES] = {1};
    assert_int_equal(ps_applied_batches_reserve(f->core->applied, 0, NULL), MR_OK);
    ps_applied_batches_add(f->core->applied, 0);
    ps_clients_note(f->core->clients, uuid, 3);
    save_begin(f, 64);
    uint64_t need = ps_save_need_bytes(f->core, f->core->features[1], ROWS);
    assert_true(need > ROWS * DIM * sizeof(float));
    assert_true(ps_save_has_room(f->core, need, 0));
    push_all(f, 1);
    ps_applied_batches_add(f->core->applied, 0);
    assert_int_equal(save_finish(f).status, MR_OK);
    check_checkpoint(f, 1, 1);
}

/* What fits no number of buffers waits for the end of the cut; the cursor does not wait for it. */
TEST(a_push_larger_than_all_buffers_waits, save_make, save_destroy)
{
    struct fixture *f = *state;
    save_begin(f, 2);
    uint64_t need = ps_save_need_bytes(f->core, f->core->features[1], ROWS);
    assert_true(need > f->core->save.capacity_bytes);
    assert_false(ps_save_has_room(f->core, need, dp_now_us()));
    assert_true(ps_save_has_room(f->core, ps_save_need_bytes(f->core, f->core->features[1], 1), dp_now_us()));
    assert_int_equal(save_finish(f).status, MR_OK);
    assert_int_equal(ps_save_need_bytes(f->core, f->core->features[1], ROWS), 0);
    assert_true(ps_save_has_room(f->core, 0, dp_now_us()));
    push_all(f, 1);
    check_checkpoint(f, 0, 0);
}

/* Pushes of every size that fits, between steps of the cursor, until the cut is over. */
TEST(pushes_find_the_room_they_were_promised, save_make, save_destroy)
{
    struct fixture *f = *state;
    float gradients[400 * DIM];
    uint64_t keys[400];
    uint32_t pushes = 0;
    for (uint32_t i = 0; i < 400 * DIM; i++)
        gradients[i] = 1;
    save_begin(f, 2);
    for (uint32_t turn = 0; f->core->save.writer != NULL; turn++) {
        uint32_t count = 1 + turn * 37 % 400;
        for (uint32_t i = 0; i < count; i++)
            keys[i] = (turn * 7919 + i * 211) % ROWS;
        if (ps_save_has_room(f->core, ps_save_need_bytes(f->core, f->core->features[1], count),
                             dp_now_us())) {
            table_push(f->core->features[1]->table, keys, count, gradients);
            pushes++;
        }
        ps_save_step(f->core, dp_now_us(), PS_SAVE_STEP_US);
    }
    assert_true(pushes > 0);
    assert_int_equal(save_finish(f).status, MR_OK);
    check_checkpoint(f, 0, 0);
}

/* A held-back push that would fit gets its room: the cursor leaves it, for a while. */
TEST(the_cursor_leaves_room_for_a_push_that_waits, save_make, save_destroy)
{
    struct fixture *f = *state;
    save_begin(f, 2);
    struct ps_save *save = &f->core->save;
    const uint64_t now_us = 1000, until_us = now_us + PS_SAVE_HOLD_CURSOR_US;
    save->reserved_bytes = PS_BLOCK_BYTES + 1; /* so much that it has to wait */
    assert_false(ps_save_has_room(f->core, save->capacity_bytes - PS_BLOCK_BYTES, now_us));
    uint32_t next_free = ps_writer_free_bytes(f->writer, 0);
    assert_true(next_free >= save->capacity_bytes / PS_SAVE_ROOM_SHARE + PS_BLOCK_BYTES);
    assert_false(ps_save_step(f->core, until_us - 1, PS_SAVE_STEP_US));
    assert_int_equal(ps_writer_free_bytes(f->writer, 0), next_free);
    ps_save_step(f->core, until_us, PS_SAVE_STEP_US);
    save->reserved_bytes = 0;
    assert_true(ps_writer_free_bytes(f->writer, 0) < next_free);
    assert_int_equal(save_finish(f).status, MR_OK);
}

static uint64_t stopped_at_us; /* 0: the clock goes */

uint64_t __real_dp_now_us(void);
uint64_t __wrap_dp_now_us(void);
uint64_t __wrap_dp_now_us(void)
{
    return stopped_at_us != 0 ? stopped_at_us : __real_dp_now_us();
}

TEST(a_step_is_over_when_its_time_is, save_make, save_destroy)
{
    struct fixture *f = *state;
    save_begin(f, 64);
    stopped_at_us = 1000;
    const bool more = ps_save_step(f->core, stopped_at_us, 0);
    stopped_at_us = 0;
    assert_true(more);
    assert_non_null(f->core->save.writer);
    assert_int_equal(save_finish(f).status, MR_OK);
}

/* A disk that has all but stopped: the cursor does, too, before pushes have to. */
TEST(the_cursor_leaves_room_for_pushes_to_come, save_make, save_destroy)
{
    struct fixture *f = *state;
    begin_at_rate(f, 2, 1);
    const uint64_t capacity_bytes = f->core->save.capacity_bytes;
    uint64_t out_bytes = 0;
    while (ps_save_step(f->core, dp_now_us(), PS_SAVE_STEP_US) || out_bytes < PS_BLOCK_BYTES / 2) {
        assert_non_null(f->core->save.writer);
        out_bytes = capacity_bytes - ps_writer_free_bytes(f->writer, 0);
    }
    const uint64_t free_bytes = ps_writer_free_bytes(f->writer, 0);
    assert_int_in_range(free_bytes, capacity_bytes / PS_SAVE_ROOM_SHARE, capacity_bytes);
    const uint32_t some = 1000;
    const uint64_t need = ps_save_need_bytes(f->core, f->core->features[1], some);
    assert_int_in_range(need, some * DIM * sizeof(float), capacity_bytes / PS_SAVE_ROOM_SHARE);
    assert_true(ps_save_has_room(f->core, need, dp_now_us()));
    ps_writer_abort(f->writer);
    assert_int_not_equal(save_finish(f).status, MR_OK);
}

TEST(room_kept_for_a_push_in_slices_is_nobody_elses, save_make, save_destroy)
{
    struct fixture *f = *state;
    save_begin(f, 2);
    struct ps_save *save = &f->core->save;
    uint64_t free_bytes = ps_writer_free_bytes(f->writer, 0);
    save->reserved_bytes = free_bytes - 100;
    assert_true(ps_save_has_room(f->core, 100, 0));
    assert_false(ps_save_has_room(f->core, 101, 0));
    assert_false(ps_save_step(f->core, dp_now_us(), PS_SAVE_STEP_US));
    assert_int_equal(ps_writer_free_bytes(f->writer, 0), free_bytes);
    save->reserved_bytes = 0;
    assert_true(ps_save_has_room(f->core, 101, 0));
    assert_int_equal(save_finish(f).status, MR_OK);
    check_checkpoint(f, 0, 0);
}

TEST(an_abandoned_save_frees_the_core, save_make, save_destroy)
{
    struct fixture *f = *state;
    save_begin(f, 2);
    ps_writer_abort(f->writer);
    while (!ps_writer_failed(f->writer)) {
    }
    assert_true(ps_save_has_room(f->core, ps_save_need_bytes(f->core, f->core->features[1], ROWS), 0));
    push_all(f, 1);
    assert_int_not_equal(save_finish(f).status, MR_OK);
    assert_null(f->core->save.copy);
    save_begin(f, 64);
    assert_int_equal(save_finish(f).status, MR_OK);
}

/* ---- a cut that can not begin ---- */

static const struct ps_table *without_memory;
static const struct ps_table *aborted[4];
static uint32_t aborted_count;

enum mr_status __real_ps_table_filter_cut_begin(struct ps_table *t, enum ps_save_kind kind);
enum mr_status __wrap_ps_table_filter_cut_begin(struct ps_table *t, enum ps_save_kind kind);
enum mr_status __wrap_ps_table_filter_cut_begin(struct ps_table *t, enum ps_save_kind kind)
{
    return t == without_memory ? MR_OUT_OF_MEMORY : __real_ps_table_filter_cut_begin(t, kind);
}

void __real_ps_table_cut_abort(struct ps_table *t);
void __wrap_ps_table_cut_abort(struct ps_table *t);
void __wrap_ps_table_cut_abort(struct ps_table *t)
{
    if (without_memory != NULL)
        aborted[aborted_count++] = t;
    __real_ps_table_cut_abort(t);
}

/* What was begun for tables before the one without memory is undone, and the next save is as ever. */
TEST(a_cut_begins_for_all_tables_or_none, save_make, save_destroy)
{
    struct fixture *f = *state;
    char text[PS_CORE_TEXT_BYTES];
    uint64_t bytes;
    uint32_t dims[1] = {4};
    struct mr_feature second = mr_feature_table("second", 2), third = mr_feature_table("third", 2),
                      variable = mr_feature_variable("v", 1, dims);
    assert_int_equal(ps_core_add_feature(f->core, 3, &variable, text), MR_OK); /* and none has number 2 */
    assert_int_equal(ps_core_add_feature(f->core, 4, &second, text), MR_OK);
    assert_int_equal(ps_core_add_feature(f->core, 5, &third, text), MR_OK);
    save_begin(f, 64);
    ps_save_end(f->core);
    without_memory = f->core->features[5]->table;
    aborted_count = 0;
    assert_int_equal(ps_save_begin(f->core, f->writer, PS_SAVE_FULL, &bytes), MR_OUT_OF_MEMORY);
    assert_null(f->core->save.writer);
    assert_int_equal(aborted_count, 2);
    assert_ptr_equal(aborted[0], f->core->features[4]->table);
    assert_ptr_equal(aborted[1], f->core->features[1]->table);
    without_memory = NULL;
    assert_int_equal(ps_save_begin(f->core, f->writer, PS_SAVE_FULL, &bytes), MR_OK);
    ps_save_end(f->core);
    ps_writer_abort(f->writer);
    ps_writer_finish(f->writer);
}

/* ---- beside other work ---- */

static uint8_t *tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    return NULL;
}

static void tx_end(void *self, uint32_t bytes)
{
}

static void fill_random(void *self, void *out, size_t bytes)
{
    memset(out, 7, bytes);
}

static void no_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
}

/* Packets and slices since the last turn, not the clock, say that the core has other work. */
TEST(other_work_makes_it_step_aside, save_make, save_destroy)
{
    struct fixture *f = *state;
    struct mr_endpoint_config config;
    uint64_t now_us = dp_now_us();
    bool goes_on = false;
    mr_endpoint_config_default(&config);
    config.io = (struct mr_endpoint_io){NULL, tx_begin, tx_end, fill_random};
    config.on_request = no_request;
    config.incarnation = config.core_count = 1;
    assert_int_equal(mr_endpoint_create(&config, &f->core->ep), MR_OK);
    save_begin(f, 64);
    for (uint32_t turn = 0; turn < 10; turn++) {
        bool is_busy = turn % 3 == 1;
        now_us += 1000;
        f->core->counters.slices += is_busy;
        goes_on |= ps_save_poll(f->core, now_us);
        assert_int_equal(ps_save_pace_is_busy(&f->core->save.pace, now_us), is_busy);
    }
    assert_true(goes_on); /* every second step in idle time */
    ps_save_end(f->core);
    ps_writer_abort(f->writer);
    ps_writer_finish(f->writer);
    mr_endpoint_destroy(f->core->ep);
    f->core->ep = NULL;
}

TEST(ends_half_way_when_told_so, save_make, save_destroy)
{
    struct fixture *f = *state;
    save_begin(f, 2);
    ps_save_step(f->core, dp_now_us(), PS_SAVE_STEP_US);
    ps_save_end(f->core);
    assert_null(f->core->save.writer);
    assert_int_equal(ps_save_need_bytes(f->core, f->core->features[1], ROWS), 0);
    ps_writer_abort(f->writer);
    ps_writer_finish(f->writer);
}

/* ---- a variable that is pushed to while it is written ---- */

#define ELEMENTS 60000u /* several pieces */

struct variable_seen {
    uint8_t *bytes;
    uint64_t count;
};

static enum mr_status see_variable(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct variable_seen *seen = arg;
    if (record->kind == PS_RECORD_VARIABLE) {
        memcpy(seen->bytes + record->offset, bytes, record->bytes);
        seen->count += record->bytes;
    }
    return MR_OK;
}

/* Some pieces are written as they stand, the rest from a copy that begins where those end. */
TEST(a_variable_that_changes_half_way_is_as_of_the_cut, save_make, save_destroy)
{
    struct fixture *f = *state;
    static float values[ELEMENTS], later[ELEMENTS];
    const uint32_t dims[1] = {ELEMENTS}, ids[2] = {1, 2};
    char text[256];
    uint64_t bytes;
    struct ps_reader *reader;
    struct mr_feature features[2] = {f->feature, mr_feature_variable("v", 1, dims)};
    features[1].optimizer = MR_OPT_SGD;
    assert_int_equal(ps_core_add_feature(f->core, 2, &features[1], text), MR_OK);
    struct ps_range *v = &f->core->features[2]->ranges[0];
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        values[i] = (float)i;
        later[i] = -1;
    }
    assert_int_equal(ps_variable_set(v->variable, 0, values, ELEMENTS), MR_OK);
    const struct ps_writer_options options = {.directory = f->directory,
                                              .id = 1,
                                              .features = features,
                                              .feature_ids = ids,
                                              .feature_count = 2,
                                              .buffers_per_core = 16};
    f->writer = core_fixture_save(f->core, &options, PS_SAVE_FULL, &bytes);
    while (v->cut_bytes == 0)
        ps_save_step(f->core, dp_now_us(), 0);
    assert_int_in_range(v->cut_bytes, 1, ELEMENTS * sizeof(float) / 2);
    assert_true(ps_save_range_ready(f->core, v));
    assert_int_equal(ps_variable_set(v->variable, 0, later, ELEMENTS), MR_OK);
    assert_int_equal(save_finish(f).status, MR_OK);
    struct variable_seen seen = {.bytes = calloc(1, ps_variable_stored_bytes(v->variable))};
    assert_int_equal(ps_reader_open(NULL, f->directory, 1, &reader, text), MR_OK);
    assert_int_equal(reader_each(reader, see_variable, &seen, text), MR_OK);
    ps_reader_close(reader);
    assert_int_equal(seen.count, ps_variable_stored_bytes(v->variable));
    assert_memory_equal(seen.bytes, values, sizeof(values));
    free(seen.bytes);
}

/* ---- what a restore exchanges, and what waits for it ---- */

TEST(what_is_partly_applied_goes_with_the_state_it_belongs_to, save_make, save_destroy)
{
    struct fixture *f = *state;
    const struct ps_partial old = {.first = 5, .last = 5}, new = {.first = 6, .last = 6};
    assert_true(ps_partials_set(&f->core->partials, &old, 1));
    ps_core_set_clock_us(f->core, UINT64_C(7000000000));
    assert_int_equal(ps_staging_begin(f->core, true, 900), MR_OK);
    ps_staging_swap(f->core);
    assert_int_equal(f->core->partials.count, 0);
    assert_int_in_range(f->core->now_s, 900, 1900);
    assert_true(ps_partials_set(&f->core->partials, &new, 1));
    ps_staging_swap(f->core); /* it is taken back */
    assert_int_equal(f->core->partials.count, 1);
    assert_non_null(ps_partials_find(&f->core->partials, 5));
    assert_null(ps_partials_find(&f->core->partials, 6));
    assert_int_in_range(f->core->now_s, 7000, 8000);
    ps_staging_end(f->core);
}

/* A range of partly applied batches is what versions before did not have: the MANIFEST says so, and only
 * then. */
TEST(ranges_of_batches_are_needed_by_readers, save_make, save_destroy)
{
    struct fixture *f = *state;
    const struct ps_partial partial[2] = {{7, 7, ps_partitions_range(0, 5)},
                                          {9, 12, ps_partitions_range(0, 5)}};
    for (uint32_t count = 1; count <= 2; count++) {
        struct ps_reader *reader;
        char text[256];
        assert_true(ps_partials_set(&f->core->partials, partial, count));
        save_begin(f, 64);
        assert_int_equal(save_finish(f).status, MR_OK);
        if (ps_reader_open(NULL, f->directory, 1, &reader, text) != MR_OK)
            fail_msg("%s", text);
        assert_true(ps_reader_manifest(reader)->needs == (count == 1 ? 0 : MR_CAN(BATCH_RANGES)));
        ps_reader_close(reader);
        assert_int_equal(temporary_directory_remove(f->directory), 0);
        f->directory = temporary_directory_make();
    }
}

/* A restore that fails leaves what it found: no row goes before it is known to have succeeded. */
TEST(no_row_goes_while_the_gate_is_shut, save_make, save_destroy)
{
    struct fixture *f = *state;
    char text[256];
    const uint64_t key = 3;
    float row[DIM];
    struct mr_feature feature = mr_feature_table("aged", DIM);
    feature.eviction = MR_EVICT_AGE;
    feature.eviction_arg = 100;
    assert_int_equal(ps_core_add_feature(f->core, 2, &feature, text), MR_OK);
    struct ps_table *t = f->core->features[2]->table;
    table_lookup(t, &key, 1, true, row);
    ps_core_set_clock_us(f->core, UINT64_C(1000000000000));
    f->core->gate = PS_GATE_BUSY;
    for (uint32_t i = 0; i < POLLS; i++)
        ps_core_poll(f->core, dp_now_us());
    assert_int_equal(ps_table_rows(t), 1);
    f->core->gate = PS_GATE_OPEN;
    for (uint32_t i = 0; i < POLLS; i++)
        ps_core_poll(f->core, dp_now_us());
    assert_int_equal(ps_table_rows(t), 0);
}
