/* Records of what was applied, as bytes: a checkpoint's are all there, and what moves from one core to
 * another holds there for the partitions that move, and only for them; beside a plain model of random
 * pushes. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "ps/exactly_once/records.h"
#include "tests/test.h"

static const uint8_t a[MR_UUID_BYTES] = {1}, b[MR_UUID_BYTES] = {2};

struct side {
    struct ps_arena *arena;
    struct ps_partials partials;
    struct ps_records records;
};

static void records_make(struct side *s)
{
    *s = (struct side){.arena = ps_arena_create(16 * MR_MIB)};
    s->records = (struct ps_records){.applied = ps_applied_batches_create(s->arena, NULL),
                                     .clients = ps_clients_create(s->arena, 1),
                                     .pushes = ps_pushes_create(s->arena, NULL)};
    assert_non_null(s->records.pushes);
}

static void records_destroy(struct side *s)
{
    ps_applied_batches_destroy(s->records.applied);
    ps_clients_destroy(s->records.clients);
    ps_pushes_destroy(s->records.pushes);
    ps_partials_clear(&s->partials);
    assert_int_equal(ps_arena_allocated_bytes(s->arena), 0);
    ps_arena_destroy(s->arena);
}

static struct ps_records *records_of(struct side *s)
{
    s->records.partials = &s->partials;
    return &s->records;
}

static void records_move(struct side *from, struct side *to, const struct ps_partition_set *set,
                         const struct ps_partition_set *others)
{
    const size_t size = ps_records_export(records_of(from), set, NULL);
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    assert_int_equal(ps_records_export(records_of(from), set, bytes), size);
    assert_int_equal(ps_records_import(records_of(to), set, others, bytes, size), MR_OK);
    assert_int_equal(ps_records_forget(records_of(from), set), MR_OK);
    free(bytes);
}

static uint64_t batch(uint64_t stream, uint64_t sequence)
{
    return stream << MR_BATCH_SEQUENCE_BITS | sequence;
}

static void apply_batch(struct side *s, uint64_t id)
{
    assert_int_equal(ps_applied_batches_reserve(s->records.applied, id, NULL), MR_OK);
    ps_applied_batches_add(s->records.applied, id);
}

static void records_push(struct side *s, const uint8_t *uuid, uint32_t stream_id, uint64_t number)
{
    const struct ps_push_id id = {uuid, stream_id, number, 0};
    const enum ps_push_state state = ps_pushes_look_up(s->records.pushes, &id);
    assert_true(state == PS_PUSH_NEW || state == PS_PUSH_PARTLY);
    ps_pushes_start(s->records.pushes, &id);
    (void)ps_pushes_finish(s->records.pushes, &id);
}

static bool has(struct side *s, const uint8_t *uuid, uint32_t stream_id, uint64_t number, uint32_t partition)
{
    return ps_pushes_has(s->records.pushes, &(struct ps_push_id){uuid, stream_id, number, 0}, partition);
}

/* Whether a push of the batch would be applied to keys of the partition. */
static bool has_batch(struct side *s, uint64_t id, uint32_t partition)
{
    const struct ps_partial *partial = ps_partials_find(&s->partials, id);
    return ps_applied_batches_has(s->records.applied, id) ||
           (partial != NULL && ps_partitions_has(&partial->partitions, partition));
}

TEST(a_push_counts_where_its_partition_is)
{
    const struct ps_partition_set set = ps_partitions_range(10, 20), others = ps_partitions_range(20, 40);
    const uint32_t stream_id = mr_push_stream_chosen(3);
    struct side from, to;
    records_make(&from);
    records_make(&to);
    records_push(&from, a, stream_id, 1);
    records_push(&from, a, stream_id, 3);
    records_push(&to, a, stream_id, 2);
    records_push(&to, b, stream_id, 1);
    ps_pushes_cut(from.records.pushes);
    ps_pushes_advance(from.records.pushes, PS_FLOOR_CUT, PS_FLOOR_DURABLE);
    ps_clients_note(from.records.clients, a, 17);
    records_move(&from, &to, &set, &others);
    for (uint32_t p = 10; p < 40; p++) {
        assert_int_equal(has(&to, a, stream_id, 1, p), p < 20);
        assert_int_equal(has(&to, a, stream_id, 2, p), p >= 20);
        assert_int_equal(has(&to, a, stream_id, 3, p), p < 20);
        assert_int_equal(has(&to, b, stream_id, 1, p), p >= 20); /* the source has nothing of it */
    }
    assert_false(has(&from, a, stream_id, 1, 10));
    assert_true(has(&from, a, stream_id, 1, 9));
    assert_int_equal(ps_pushes_durable(to.records.pushes, b, stream_id), 0);
    assert_int_equal(ps_clients_last_step(to.records.clients, a), 17);
    records_destroy(&from);
    records_destroy(&to);
}

/* What is on disk stays so for the client: it need not keep it for the new owner either. */
TEST(what_is_durable_moves_too)
{
    const struct ps_partition_set set = ps_partitions_range(10, 20), none = {{0}};
    const uint32_t stream_id = mr_push_stream_chosen(0);
    struct side from, to;
    records_make(&from);
    records_make(&to);
    records_push(&from, a, stream_id, 1);
    records_push(&from, a, stream_id, 2);
    ps_pushes_cut(from.records.pushes);
    ps_pushes_advance(from.records.pushes, PS_FLOOR_CUT, PS_FLOOR_DURABLE);
    records_push(&from, a, stream_id, 3);
    records_move(&from, &to, &set, &none);
    assert_int_equal(ps_pushes_durable(to.records.pushes, a, stream_id), 2);
    ps_pushes_cut(to.records.pushes);
    ps_pushes_advance(to.records.pushes, PS_FLOOR_CUT, PS_FLOOR_DURABLE);
    assert_int_equal(ps_pushes_durable(to.records.pushes, a, stream_id), 3);
    records_destroy(&from);
    records_destroy(&to);
}

TEST(a_batch_that_one_has_is_partly_applied)
{
    const struct ps_partition_set set = ps_partitions_range(10, 20), others = ps_partitions_range(20, 40);
    struct side from, to;
    records_make(&from);
    records_make(&to);
    for (uint64_t s = 0; s < 100; s++) {
        if (s != 50)
            apply_batch(&from, batch(5, s));
        if (s != 60)
            apply_batch(&to, batch(5, s));
    }
    apply_batch(&from, batch(6, 0));
    records_move(&from, &to, &set, &others);
    for (uint64_t s = 0; s < 100; s++) {
        assert_int_equal(has_batch(&to, batch(5, s), 10), s != 50);
        assert_int_equal(has_batch(&to, batch(5, s), 30), s != 60);
    }
    assert_int_equal(to.partials.count, 3);
    assert_true(has_batch(&to, batch(6, 0), 10));
    assert_false(has_batch(&to, batch(6, 0), 30));
    assert_int_equal(ps_applied_batches_watermark(to.records.applied, 5), 50);
    assert_int_equal(ps_applied_batches_added(to.records.applied, 5), 98);
    assert_int_equal(ps_applied_batches_count(to.records.applied, 5), 98);
    records_destroy(&from);
    records_destroy(&to);
}

/* A core that served nothing takes the records over, however much they hold. */
TEST(a_core_without_partitions_takes_all)
{
    const struct ps_partition_set set = ps_partitions_range(10, 20), none = {{0}};
    const struct mr_plan plan = {{1, 2}, 3};
    struct side from, to;
    records_make(&from);
    records_make(&to);
    assert_int_equal(ps_applied_batches_claim(from.records.applied, 5, &plan, NULL), MR_OK);
    for (uint64_t s = 0; s < 100000; s++)
        apply_batch(&from, batch(5, s));
    apply_batch(&to, batch(4, 0)); /* of a time when it had other partitions */
    const struct ps_partial partial = {batch(5, 100001), batch(5, 100001), ps_partitions_range(11, 12)};
    assert_true(ps_partials_set(&from.partials, &partial, 1));
    records_move(&from, &to, &set, &none);
    assert_int_equal(ps_applied_batches_watermark(to.records.applied, 5), 100000);
    assert_true(mr_plan_same(ps_applied_batches_plan(to.records.applied, 5), &plan));
    assert_false(ps_applied_batches_has(to.records.applied, batch(4, 0)));
    assert_true(has_batch(&to, batch(5, 100001), 11));
    assert_false(has_batch(&to, batch(5, 100001), 12));
    records_destroy(&from);
    records_destroy(&to);
}

/* A source that has forgotten a stream cannot say of each of its batches that it lacks it. */
TEST(a_stream_that_one_has_forgotten_is_as_the_other_has_it)
{
    const struct ps_partition_set set = ps_partitions_range(10, 20), others = ps_partitions_range(20, 40);
    struct side from, to;
    records_make(&from);
    records_make(&to);
    for (uint64_t s = 0; s < 2 * PS_PARTIALS_MAX; s++) {
        apply_batch(&from, batch(5, s));
        apply_batch(&to, batch(6, s));
    }
    records_move(&from, &to, &set, &others);
    assert_int_equal(ps_applied_batches_watermark(to.records.applied, 5), 2 * PS_PARTIALS_MAX);
    assert_int_equal(ps_applied_batches_watermark(to.records.applied, 6), 2 * PS_PARTIALS_MAX);
    assert_int_equal(to.partials.count, 0);
    records_destroy(&from);
    records_destroy(&to);
}

/* Records of `from` as a checkpoint holds them. */
static uint8_t *records_saved(struct side *from, const struct ps_partition_set *set, size_t *size)
{
    *size = ps_records_export(records_of(from), set, NULL);
    uint8_t *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(ps_records_export(records_of(from), set, bytes), *size);
    return bytes;
}

/* A core takes partitions over from a checkpoint that is 60,000 batches older than what it has, and more than
 * a bitmap reaches: all of these are applied for its own partitions only, in one range, until the hub has
 * handed them out again. */
TEST(a_checkpoint_may_be_far_behind)
{
    const struct ps_partition_set set = ps_partitions_range(10, 20), others = ps_partitions_range(20, 40);
    const uint64_t behind[] = {60000, PS_APPLIED_BATCHES_WINDOW + 60000u};
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t now = 100 + behind[i];
        struct side from, to;
        size_t size;
        records_make(&from);
        records_make(&to);
        for (uint64_t s = 0; s < now; s++) {
            if (s < 100)
                apply_batch(&from, batch(5, s));
            apply_batch(&to, batch(5, s));
        }
        apply_batch(&to, batch(6, 0)); /* a stream that was begun later */
        uint8_t *bytes = records_saved(&from, &set, &size);
        assert_int_equal(ps_records_import_saved(records_of(&to), &set, &others, bytes, size), MR_OK);
        free(bytes);
        assert_int_equal(ps_applied_batches_watermark(to.records.applied, 5), 100);
        assert_int_equal(to.partials.count, 2);
        assert_false(has_batch(&to, batch(6, 0), 10));
        assert_true(has_batch(&to, batch(6, 0), 30));
        for (uint64_t s = 100; s < now; s += 7) {
            assert_false(has_batch(&to, batch(5, s), 10));
            assert_true(has_batch(&to, batch(5, s), 30));
        }
        /* Trainers push them again, and not quite in order. */
        for (uint64_t s = 100; s < now; s += 2) {
            for (uint64_t id = batch(5, s + 2); id-- > batch(5, s);) {
                apply_batch(&to, id);
                ps_partials_remove(&to.partials, id);
            }
        }
        assert_int_equal(ps_applied_batches_watermark(to.records.applied, 5), now);
        assert_int_equal(to.partials.count, 1);
        records_destroy(&from);
        records_destroy(&to);
    }
}

/* Ranges go through a checkpoint and through a move as they are; a single batch as before there were
 * ranges. */
TEST(ranges_are_stored)
{
    const struct ps_partition_set all = ps_partitions_all(), none = {{0}};
    const struct ps_partial ranges[2] = {{batch(5, 20), batch(5, 20), ps_partitions_range(3, 5)},
                                         {batch(5, 30), batch(5, 70), ps_partitions_range(4, 5)}};
    struct side from, to;
    size_t size;
    records_make(&from);
    records_make(&to);
    apply_batch(&from, batch(5, 0));
    assert_true(ps_partials_set(&from.partials, ranges, 2));
    uint8_t *bytes = records_saved(&from, &all, &size);
    uint32_t singles = 0, pairs = 0;
    for (size_t at = 0; at < size;) {
        struct ps_record record;
        memcpy(&record, bytes + at, sizeof(record));
        singles += record.row_bytes == PS_STREAM_PARTIAL &&
                   record.bytes == sizeof(uint64_t) + sizeof(struct ps_partition_set);
        pairs += record.row_bytes == PS_STREAM_PARTIALS && record.bytes == sizeof(struct ps_partial);
        at += sizeof(record) + mr_padded(record.bytes);
    }
    assert_int_equal(singles, 1);
    assert_int_equal(pairs, 1);
    assert_int_equal(ps_records_import(records_of(&to), &all, &none, bytes, size), MR_OK);
    assert_int_equal(to.partials.count, 2);
    assert_memory_equal(to.partials.entries, ranges, sizeof(ranges));
    free(bytes);
    records_destroy(&from);
    records_destroy(&to);
}

TEST(malformed_bytes_change_nothing)
{
    const struct ps_partition_set set = ps_partitions_range(10, 20), none = {{0}};
    struct side from, to;
    records_make(&from);
    records_make(&to);
    records_push(&from, a, mr_push_stream_chosen(1), 1);
    records_push(&to, a, mr_push_stream_chosen(1), 2);
    apply_batch(&from, batch(5, 0));
    const struct ps_partial range = {batch(5, 2), batch(5, 9), set};
    assert_true(ps_partials_set(&from.partials, &range, 1));
    const size_t size = ps_records_export(records_of(&from), &set, NULL);
    uint8_t *bytes = malloc(size), *broken = malloc(size);
    assert_non_null(bytes);
    assert_non_null(broken);
    ps_records_export(records_of(&from), &set, bytes);
    for (size_t n = 1; n < size; n += 8)
        assert_int_equal(ps_records_import(records_of(&to), &set, &none, bytes, n), MR_BAD_MESSAGE);
    for (size_t at = 0; at < size; at++) { /* no reading beyond the end, whatever they say */
        memcpy(broken, bytes, size);
        broken[at] ^= 0x81;
        (void)ps_records_import(records_of(&from), &none, &none, broken, size);
    }
    assert_true(has(&to, a, mr_push_stream_chosen(1), 2, 10));
    assert_false(ps_applied_batches_has(to.records.applied, batch(5, 0)));
    free(bytes);
    free(broken);
    records_destroy(&from);
    records_destroy(&to);
}

TEST(memory_that_runs_out_loses_nothing_of_the_others)
{
    const struct ps_partition_set set = ps_partitions_range(10, 20), others = ps_partitions_range(20, 40);
    struct side from, to;
    records_make(&from);
    records_make(&to);
    records_push(&from, a, mr_push_stream_chosen(1), 1);
    records_push(&to, a, mr_push_stream_chosen(1), 2);
    apply_batch(&from, batch(5, 0));
    apply_batch(&to, batch(5, 1));
    while (ps_arena_alloc(to.arena, sizeof(struct ps_push_piece), 8) != NULL) {
    }
    const size_t size = ps_records_export(records_of(&from), &set, NULL);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    ps_records_export(records_of(&from), &set, bytes);
    assert_int_equal(ps_records_import(records_of(&to), &set, &others, bytes, size), MR_OUT_OF_MEMORY);
    assert_true(has(&to, a, mr_push_stream_chosen(1), 2, 30));
    assert_true(has_batch(&to, batch(5, 1), 30));
    free(bytes);
    records_destroy(&from);
    ps_applied_batches_destroy(to.records.applied);
    ps_partials_clear(&to.partials);
    ps_arena_destroy(to.arena);
}

/* ---- beside a model: for each partition, what was applied to its keys ---- */

#define SIDES      3u
#define PARTITIONS 12u
#define STREAMS    4u
#define NUMBERS    3000u
#define BATCHES    80u
#define STEPS      1200u

struct model {
    uint32_t owner[PARTITIONS]; /* of each */
    bool pushed[PARTITIONS][STREAMS][NUMBERS + 1], fed[PARTITIONS][BATCHES];
    uint64_t next[STREAMS];
};

/* A checkpoint: the records of each side, and the model as of then. */
struct saved {
    struct model *model;
    uint8_t *bytes[SIDES];
    size_t sizes[SIDES];
};

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

static uint32_t stream_of(uint32_t i)
{
    return mr_push_stream_chosen(i / 2);
}

static const uint8_t *uuid_of(uint32_t i)
{
    return i % 2 == 0 ? a : b;
}

/* The model's partitions are spread over all. */
static uint32_t place_of(uint32_t i)
{
    return i * 341 + 5;
}

static struct ps_partition_set served_by(const struct model *m, uint32_t side)
{
    struct ps_partition_set served = {{0}};
    for (uint32_t i = 0; i < PARTITIONS; i++)
        if (m->owner[i] == side)
            ps_partitions_add(&served, place_of(i));
    return served;
}

/* A push with keys of some partitions comes to each owner, as a node applies it: to those that lack it. */
static void push_to(struct model *m, struct side *s, uint32_t side, uint32_t stream_id, uint64_t number,
                    uint32_t keys)
{
    const struct ps_push_id id = {uuid_of(stream_id), stream_of(stream_id), number, 0};
    struct ps_partition_set touched = {{0}};
    for (uint32_t i = 0; i < PARTITIONS; i++)
        if ((keys >> i & 1) != 0 && m->owner[i] == side)
            ps_partitions_add(&touched, place_of(i));
    if (ps_partitions_empty(&touched))
        return;
    const enum ps_push_state state = ps_pushes_look_up(s->records.pushes, &id);
    assert_int_not_equal(state, PS_PUSH_WAITS);
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        if ((keys >> i & 1) == 0 || m->owner[i] != side)
            continue;
        const bool is_applied =
            state == PS_PUSH_APPLIED ||
            (state == PS_PUSH_PARTLY && ps_pushes_has(s->records.pushes, &id, place_of(i)));
        assert_int_equal(is_applied, m->pushed[i][stream_id][number]); /* neither twice nor lost */
        m->pushed[i][stream_id][number] = true;
    }
    if (state == PS_PUSH_APPLIED)
        return;
    assert_int_equal(ps_pushes_cover(s->records.pushes, &id, &touched), MR_OK);
    ps_pushes_start(s->records.pushes, &id);
    (void)ps_pushes_finish(s->records.pushes, &id);
}

static void feed(struct model *m, struct side *s, uint32_t side, uint32_t n)
{
    const uint64_t id = batch(7, n);
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        if (m->owner[i] != side)
            continue;
        assert_int_equal(has_batch(s, id, place_of(i)), m->fed[i][n]);
        m->fed[i][n] = true;
    }
    if (!ps_applied_batches_has(s->records.applied, id)) {
        apply_batch(s, id);
        ps_partials_remove(&s->partials, id);
    }
}

static void move_some(struct model *m, struct side *sides)
{
    const uint32_t from = draw(SIDES), to = (from + 1 + draw(SIDES - 1)) % SIDES;
    const struct ps_partition_set others = served_by(m, to);
    struct ps_partition_set set = {{0}};
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        if (m->owner[i] != from || draw(3) != 0)
            continue;
        ps_partitions_add(&set, place_of(i));
        m->owner[i] = to;
    }
    records_move(&sides[from], &sides[to], &set, &others);
}

static void saved_free(struct saved *saved)
{
    for (uint32_t i = 0; i < SIDES; i++)
        free(saved->bytes[i]);
    free(saved->model);
}

static void records_save(struct saved *saved, const struct model *m, struct side *sides)
{
    saved_free(saved);
    saved->model = malloc(sizeof(*m));
    assert_non_null(saved->model);
    memcpy(saved->model, m, sizeof(*m));
    for (uint32_t i = 0; i < SIDES; i++) {
        const struct ps_partition_set served = served_by(m, i);
        saved->bytes[i] = records_saved(&sides[i], &served, &saved->sizes[i]);
    }
}

/* A side dies, and comes back with nothing. The others take its partitions over as the checkpoint has them,
 * whoever had them then. */
static void take_over(struct model *m, struct side *sides, const struct saved *saved)
{
    const uint32_t dead = draw(SIDES);
    for (uint32_t to = (dead + 1) % SIDES; to != dead; to = (to + 1) % SIDES) {
        for (uint32_t writer = 0; writer < SIDES; writer++) {
            const struct ps_partition_set others = served_by(m, to);
            struct ps_partition_set set = {{0}};
            for (uint32_t i = 0; i < PARTITIONS; i++) {
                if (m->owner[i] != dead || saved->model->owner[i] != writer || draw(2) == 0)
                    continue;
                ps_partitions_add(&set, place_of(i));
                m->owner[i] = to;
                memcpy(m->pushed[i], saved->model->pushed[i], sizeof(m->pushed[i]));
                memcpy(m->fed[i], saved->model->fed[i], sizeof(m->fed[i]));
            }
            if (!ps_partitions_empty(&set))
                assert_int_equal(ps_records_import_saved(records_of(&sides[to]), &set, &others,
                                                         saved->bytes[writer], saved->sizes[writer]),
                                 MR_OK);
        }
    }
    for (uint32_t i = 0; i < PARTITIONS; i++) /* nobody has room for these: it loads them itself */
        if (m->owner[i] == dead)
            return;
    records_destroy(&sides[dead]);
    records_make(&sides[dead]);
}

/* Most pushes come once, to all owners; some come to one of them, and the rest later, after moves. A client
 * keeps within the window. */
static void random_moves(uint64_t seed)
{
    struct model *m = calloc(1, sizeof(*m));
    struct side sides[SIDES];
    struct saved saved = {.model = NULL};
    uint32_t keys[STREAMS][NUMBERS + 1];
    assert_non_null(m);
    random_state = seed;
    for (uint32_t i = 0; i < SIDES; i++)
        records_make(&sides[i]);
    for (uint32_t i = 0; i < PARTITIONS; i++)
        m->owner[i] = draw(SIDES);
    records_save(&saved, m, sides);
    for (uint32_t step = 0, batches = 0; step < STEPS; step++) {
        const uint32_t stream_id = draw(STREAMS), side = draw(SIDES);
        uint64_t number =
            m->next[stream_id] > 0 ? 1 + m->next[stream_id] - (1 + draw((uint32_t)m->next[stream_id])) : 0;
        if (number == 0 || draw(2) == 0) {
            number = ++m->next[stream_id];
            keys[stream_id][number] = draw(1u << PARTITIONS);
        }
        for (uint32_t i = 0; i < SIDES; i++)
            if (i == side || draw(3) != 0)
                push_to(m, &sides[i], i, stream_id, number, keys[stream_id][number]);
        batches += batches < BATCHES && draw(10) == 0;
        if (batches > 0)
            feed(m, &sides[side], side, draw(batches));
        if (draw(8) == 0)
            move_some(m, sides);
        if (draw(80) == 0)
            records_save(&saved, m, sides);
        if (draw(50) == 0)
            take_over(m, sides, &saved);
    }
    /* In the end everything comes again, and everywhere. */
    for (uint32_t stream_id = 0; stream_id < STREAMS; stream_id++)
        for (uint64_t number = 1; number <= m->next[stream_id]; number++)
            for (uint32_t i = 0; i < SIDES; i++)
                push_to(m, &sides[i], i, stream_id, number, keys[stream_id][number]);
    for (uint32_t i = 0; i < SIDES; i++)
        records_destroy(&sides[i]);
    saved_free(&saved);
    free(m);
}

TEST(random_moves_lose_nothing_and_repeat_nothing)
{
    for (uint64_t seed = 1; seed <= 4; seed++)
        random_moves(seed);
}
