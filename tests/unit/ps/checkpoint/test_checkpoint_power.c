/* The power fails at each change that saves make, and between any two. What a machine finds then is restored:
 * it must be the newest checkpoint that was reported as published or the one being written, whole, and the
 * next save must succeed.
 *
 * MILLRACE_POWER_SEEDS: fates drawn for each change (6 unless set). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chain_fixture.h"
#include "checkpoint_fixture.h"
#include "fault_store.h"
#include "power_store.h"
#include "tests/test.h"

#define DIRECTORY      "/checkpoints"
#define SEEDS_DEFAULT  6u
#define SAVES_MAX      16u
#define GOES_ON_EVERY  13u /* moment, the next save is made, too */
#define KEEP           2u
#define SMALL_ROWS     500u
#define TWO_BLOCK_ROWS 56000u /* on each of two cores a block and a bit */

struct save {
    uint64_t id;
    uint32_t rows;             /* of a full by fixture_save(); 0: a link of a chain */
    uint8_t model[CHAIN_KEYS]; /* at its cut */
    uint32_t begun, ended;     /* as numbers of changes; ended = UINT32_MAX: it failed */
};

/* What was done with a store, so that each moment of it can be judged. */
struct story {
    struct power_store *power;
    struct save saves[SAVES_MAX];
    uint32_t save_count;
    uint8_t model[CHAIN_KEYS]; /* the value of each row now; 0: it has none */
};

static uint64_t seed_count(void)
{
    const char *given = getenv("MILLRACE_POWER_SEEDS");
    return given ? strtoull(given, NULL, 10) : SEEDS_DEFAULT;
}

static void tell_save(struct story *s, const struct ps_store *store, uint64_t id, uint32_t rows)
{
    struct save *save = &s->saves[s->save_count++];
    assert_true(s->save_count <= SAVES_MAX);
    *save = (struct save){.id = id, .rows = rows, .begun = power_store_changes(s->power)};
    enum mr_status status = fixture_save(store, DIRECTORY, id, rows).status;
    save->ended = status == MR_OK ? power_store_changes(s->power) : UINT32_MAX;
}

/* What a server would do: the id behind the newest that it sees, on the one saved or restored last. */
static void tell_link(struct story *s, const struct ps_store *store, uint64_t parent)
{
    struct save *save = &s->saves[s->save_count++];
    assert_true(s->save_count <= SAVES_MAX);
    *save = (struct save){.begun = power_store_changes(s->power)};
    (void)ps_checkpoint_list(power_store_calls(s->power), DIRECTORY, &save->id, 1);
    save->id++;
    uint8_t changes[CHAIN_KEYS];
    for (uint32_t key = 0; key < CHAIN_KEYS; key++) {
        const uint64_t r = (key * 31 + s->save_count * 17) % 23;
        changes[key] = r < 5 ? (uint8_t)s->save_count : CHAIN_NOTHING;
        if (r == 5 && s->model[key] != 0)
            changes[key] = CHAIN_GONE;
        if (changes[key] != CHAIN_NOTHING)
            s->model[key] = changes[key] == CHAIN_GONE ? 0 : changes[key];
    }
    memcpy(save->model, s->model, sizeof(save->model));
    enum mr_status status = chain_try_save(store, DIRECTORY, save->id, parent, parent ? changes : s->model);
    save->ended = status == MR_OK ? power_store_changes(s->power) : UINT32_MAX;
}

/* A full of the model as it is. */
static void tell_full_again(struct story *s, const struct ps_store *store)
{
    struct save *save = &s->saves[s->save_count++];
    *save = (struct save){.begun = power_store_changes(s->power)};
    (void)ps_checkpoint_list(power_store_calls(s->power), DIRECTORY, &save->id, 1);
    save->id++;
    memcpy(save->model, s->model, sizeof(save->model));
    enum mr_status status = chain_try_save(store, DIRECTORY, save->id, 0, s->model);
    save->ended = status == MR_OK ? power_store_changes(s->power) : UINT32_MAX;
}

static uint64_t last_id(const struct story *s)
{
    return s->saves[s->save_count - 1].id;
}

static const struct save *save_of(const struct story *s, uint64_t id)
{
    const struct save *found = NULL;
    for (uint32_t i = 0; i < s->save_count; i++)
        if (s->saves[i].id == id)
            found = &s->saves[i];
    return found;
}

/* The newest checkpoint that was reported published by then, or NULL; and the newest one begun. */
static const struct save *newest_published(const struct story *s, uint32_t changes, uint64_t *begun)
{
    const struct save *newest = NULL;
    *begun = 0;
    for (uint32_t i = 0; i < s->save_count && s->saves[i].begun <= changes; i++) {
        *begun = s->saves[i].id;
        if (s->saves[i].ended <= changes)
            newest = &s->saves[i];
    }
    return newest;
}

static void name_moment(const struct story *s, uint32_t changes, uint64_t seed)
{
    print_error("power fails after change %u of %u (%s), seed %llu\n", (unsigned)changes,
                (unsigned)power_store_changes(s->power),
                changes > 0 ? power_store_change(s->power, changes - 1) : "none", (unsigned long long)seed);
}

/* The save after the failure, a full, and what it leaves. */
static bool goes_on(struct power_store *after)
{
    const struct ps_store *store = power_store_calls(after);
    char text[PS_TEXT_BYTES];
    struct ps_reader *r = NULL;
    uint64_t newest = 0;
    (void)ps_checkpoint_list(store, DIRECTORY, &newest, 1);
    struct ps_writer_status status = fixture_save(store, DIRECTORY, newest + 1, SMALL_ROWS);
    if (status.status != MR_OK) {
        print_error("the next save fails: %s\n", status.text);
        return false;
    }
    ps_checkpoint_retain(store, DIRECTORY, &(struct ps_retention){.keep = 1});
    if (ps_reader_open(store, DIRECTORY, 0, &r, text) != MR_OK) {
        print_error("the next save cannot be read: %s\n", text);
        return false;
    }
    bool ok = ps_reader_manifest(r)->id == newest + 1;
    ps_reader_close(r);
    uint32_t names = fixture_count_on(store, DIRECTORY, "");
    if (!ok || names != 1)
        print_error("the next save leaves %u names\n", (unsigned)names);
    return ok && names == 1;
}

static bool holds(struct ps_reader *r, const struct save *save)
{
    if (save->rows > 0) {
        fixture_check(r, save->id, save->rows);
        return true;
    }
    uint8_t values[CHAIN_KEYS];
    chain_read(r, save->id, values);
    bool same = memcmp(values, save->model, sizeof(values)) == 0;
    if (!same)
        print_error("checkpoint %llu holds another model\n", (unsigned long long)save->id);
    return same;
}

static bool is_whole(const struct story *s, struct ps_reader *r, uint32_t changes)
{
    uint64_t begun;
    const struct save *published = newest_published(s, changes, &begun);
    const uint64_t id = ps_reader_manifest(r)->id;
    if (published && id < published->id) {
        print_error("checkpoint %llu was published, %llu is found\n", (unsigned long long)published->id,
                    (unsigned long long)id);
        return false;
    }
    if (id != begun && (!published || id != published->id)) {
        print_error("checkpoint %llu is neither the old one nor the new one\n", (unsigned long long)id);
        return false;
    }
    return holds(r, save_of(s, id));
}

/* The save after the failure, a delta on what was restored. */
static bool goes_on_with_delta(struct power_store *after, const struct save *restored)
{
    struct story s = {.power = after};
    const struct ps_store *store = power_store_calls(after);
    char text[PS_TEXT_BYTES];
    struct ps_reader *r = NULL;
    memcpy(s.model, restored->model, sizeof(s.model));
    tell_link(&s, store, restored->id);
    ps_checkpoint_retain(store, DIRECTORY, &(struct ps_retention){.keep = 1});
    if (s.saves[0].ended == UINT32_MAX || ps_reader_open(store, DIRECTORY, 0, &r, text) != MR_OK) {
        print_error("the delta on checkpoint %llu cannot be read\n", (unsigned long long)restored->id);
        return false;
    }
    bool ok = ps_reader_manifest(r)->id == s.saves[0].id && holds(r, &s.saves[0]);
    ps_reader_close(r);
    return ok && fixture_count_on(store, DIRECTORY, ".tmp-") == 0;
}

static bool restores(const struct story *s, struct power_store *after, uint32_t changes, uint64_t seed)
{
    const struct ps_store *store = power_store_calls(after);
    char text[PS_TEXT_BYTES];
    struct ps_reader *r = NULL;
    uint64_t begun, id = 0;
    bool ok;
    enum mr_status status = ps_reader_open(store, DIRECTORY, 0, &r, text);
    if (status == MR_OK) {
        id = ps_reader_manifest(r)->id;
        ok = is_whole(s, r, changes);
        ps_reader_close(r);
    } else {
        ok = status == MR_CHECKPOINT_NOT_FOUND && !newest_published(s, changes, &begun);
        if (!ok)
            print_error("nothing can be restored: %s\n", text);
    }
    if (!ok || (changes + seed) % GOES_ON_EVERY != 0)
        return ok;
    const struct save *restored = save_of(s, id);
    if (restored && restored->rows == 0 && (changes + seed) % (2 * GOES_ON_EVERY) == 0)
        return goes_on_with_delta(after, restored);
    return goes_on(after);
}

static void judge_moment(const struct story *s, uint32_t changes, uint64_t seed)
{
    struct power_store *after = power_store_after_failure(s->power, changes, seed);
    bool ok = restores(s, after, changes, seed);
    power_store_destroy(after);
    if (!ok)
        name_moment(s, changes, seed);
    assert_true(ok);
}

/* Each change with each seed. */
static void judge(const struct story *s)
{
    uint64_t begun;
    for (uint32_t changes = 0; changes <= power_store_changes(s->power); changes++)
        for (uint64_t seed = 0; seed < seed_count(); seed++)
            judge_moment(s, changes, seed);
    assert_non_null(newest_published(s, power_store_changes(s->power), &begun));
}

/* One of many alike: each change with seeds of its own, the end with all of them. */
static void judge_variant(const struct story *s, uint64_t variant)
{
    const uint64_t each = seed_count() < 8 ? 1 : seed_count() / 4;
    const uint32_t end = power_store_changes(s->power);
    for (uint32_t changes = 0; changes < end; changes++)
        for (uint64_t i = 0; i < each; i++)
            judge_moment(s, changes, (variant + changes + i * 4) % (4 * each));
    for (uint64_t seed = 0; seed < 4 * each; seed++)
        judge_moment(s, end, seed);
}

TEST(test_first_save)
{
    struct story s = {.power = power_store_create()};
    tell_save(&s, power_store_calls(s.power), 1, TWO_BLOCK_ROWS);
    judge(&s);
    power_store_destroy(s.power);
}

TEST(test_saves_and_retention)
{
    struct story s = {.power = power_store_create()};
    const struct ps_store *store = power_store_calls(s.power);
    for (uint64_t id = 1; id <= 4; id++) {
        tell_save(&s, store, id, id == 3 ? TWO_BLOCK_ROWS : SMALL_ROWS);
        ps_checkpoint_retain(store, DIRECTORY, &(struct ps_retention){.keep = KEEP});
    }
    judge(&s);
    power_store_destroy(s.power);
}

/* A call of the second save fails, each in turn; the third one is made by whoever comes next. */
TEST(test_failure_and_next_save)
{
    for (uint32_t n = 1, reached = 1; reached; n++) {
        struct story s = {.power = power_store_create()};
        struct fault_store f;
        fault_store_init(&f);
        f.below = power_store_calls(s.power);
        f.fail_at = n;
        tell_save(&s, &f.store, 1, SMALL_ROWS);
        f.fail_at = 0;
        const uint64_t id = s.saves[0].ended == UINT32_MAX ? 1 : 2;
        tell_save(&s, &f.store, id, SMALL_ROWS); /* of one id, either is right */
        judge_variant(&s, n);
        power_store_destroy(s.power);
        reached = f.triggered;
    }
}

TEST(test_chains_and_retention)
{
    struct story s = {.power = power_store_create()};
    const struct ps_store *store = power_store_calls(s.power);
    for (uint32_t i = 0; i < 7; i++) {
        tell_link(&s, store, i % 3 == 0 ? 0 : last_id(&s)); /* a full and two deltas */
        ps_checkpoint_retain(store, DIRECTORY, &(struct ps_retention){.keep = 1});
    }
    judge(&s);
    power_store_destroy(s.power);
}

/* A call of a delta fails, each in turn: the next save is a full. */
TEST(test_failure_of_a_delta)
{
    for (uint32_t n = 1, reached = 1; reached; n++) {
        struct story s = {.power = power_store_create()};
        const struct ps_store *store = power_store_calls(s.power);
        struct fault_store f;
        fault_store_init(&f);
        f.below = store;
        tell_link(&s, store, 0);
        f.fail_at = n;
        tell_link(&s, &f.store, last_id(&s));
        if (s.saves[1].ended == UINT32_MAX) {
            /* Nothing was applied in between: of one id, either is right. */
            tell_full_again(&s, store);
        }
        judge_variant(&s, n);
        power_store_destroy(s.power);
        reached = f.triggered;
    }
}
