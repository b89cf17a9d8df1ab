/* Which rows are evicted, and when. A row that a running cut has still to write is evicted only if the cut
 * has room for it now.
 *
 * AGE, STEPS, NORM: the cursor goes round all buckets once per period (PS_EVICT_ROUNDS_PER_LIMIT rounds per
 * limit), a little at a time. A row that is over its limit is evicted when the cursor comes by: at most a
 * period later, and one unit of time, or two periods where the index was written again meanwhile.
 *
 * At a limit of the table, LRU, LFU, AGE and STEPS: sampled, as in Redis. For each row that must be evicted a
 * second cursor looks at PS_EVICT_SAMPLE_ROWS further rows, and the best PS_EVICT_POOL_ROWS met so far are
 * kept as candidates; the best of these is evicted, unless it was used meanwhile. Keys are spread by their
 * hash, so what follows the cursor is a random sample, but without repeats.
 */
#include "ps/table/table_internal.h"

#include "dataplane/wire/format/convert.h"

#define ROUND_BUCKETS  4u
#define ROUND_ROWS_MAX (ROUND_BUCKETS * PS_BUCKET_KEYS) /* rows that come from memory at the same time */

static_assert(PS_EVICT_SAMPLE_ROWS + PS_BUCKET_KEYS <= ROUND_ROWS_MAX,
              "a sample has room for its last bucket");
static_assert(PS_USES_HELD >= (PS_GROUPS - 1) * PS_GROUP_KEYS,
              "lookups and pushes hold the rows of their groups");

/* Rows on the way from memory, and where they are. */
struct sample {
    uint32_t count;
    struct ps_place places[ROUND_ROWS_MAX];
};

static void sample_add_bucket(const struct ps_table *t, struct sample *s, uint32_t partition,
                              struct ps_bucket *b)
{
    uint32_t taken = ps_bucket_taken(b);
    if (t->cut_running && !t->evictor.emits)
        taken &= ~ps_bucket_pending(&t->index, b);
    for (; taken != 0; taken &= taken - 1) {
        struct ps_place place = ps_index_place_at(&t->index, partition, b, (uint32_t)__builtin_ctz(taken));
        const uint8_t *row = ps_table_row(t, place);
        __builtin_prefetch(row + t->layout.seen_offset, 1, 3);
        s->places[s->count++] = place;
    }
}

/* ---- the cursor ---- */

/* Before rows are chosen: at most a sample of them is evicted before this is asked again. */
static void ask_for_room(struct ps_table *t)
{
    t->evictor.emits = t->cut_running && t->may_emit && t->cut.has_room != NULL &&
                       t->cut.has_room(t->cut.self, t, ROUND_ROWS_MAX);
}

/* Partitions before this one may lose rows: without room, those that a cut has been through. */
static uint32_t partition_end(const struct ps_table *t)
{
    return t->cut_running && !t->evictor.emits ? t->cut_partition : MR_PARTITION_COUNT;
}

/* A partition that was laid out again under the cursor has its rows elsewhere: the cursor starts it over. */
static void cursor_follow(struct ps_evictor *e, struct ps_evict_cursor *c, uint16_t version)
{
    if (c->bucket > 0 && c->version != version) {
        e->buckets_due += e->buckets_due > 0 && c == &e->due ? c->bucket : 0;
        c->bucket = 0;
    }
    c->version = version;
}

/* The next bucket of a partition with rows, going round; NULL when there is none. */
static struct ps_bucket *cursor_next(struct ps_table *t, struct ps_evict_cursor *c)
{
    uint32_t end = partition_end(t);
    for (uint32_t left = end + 1; left > 0; left--) {
        if (c->partition >= end) {
            c->partition = c->bucket = 0;
            if (end == 0)
                return NULL;
        }
        if (t->followed != NULL && ps_partitions_has(t->followed, c->partition)) {
            c->partition++; /* its owner evicts */
            c->bucket = 0;
            continue;
        }
        cursor_follow(&t->evictor, c, t->index.versions[c->partition]);
        if (c->bucket < ps_index_bucket_count(&t->index, c->partition))
            return ps_index_bucket(&t->index, c->partition, c->bucket++);
        c->partition++;
        c->bucket = 0;
    }
    return NULL;
}

static void remove_row(struct ps_table *t, struct ps_place place, uint64_t *counter)
{
    const uint64_t hash = ps_index_hash_at(&t->index, place), key = ps_index_key(&t->index, hash);
    ps_table_row_remove(t, place, hash);
    if (t->watch.evicted != NULL)
        t->watch.evicted(t->watch.self, key);
    ++*counter;
}

void ps_table_watch_evictions(struct ps_table *t, const struct ps_eviction_watch *watch)
{
    t->watch = *watch;
}

static bool may_evict(const struct ps_table *t)
{
    return t->watch.may_evict == NULL || t->watch.may_evict(t->watch.self);
}

void ps_table_replay_eviction(struct ps_table *t, uint64_t key)
{
    const uint64_t hash = ps_index_hash(&t->index, key);
    const struct ps_place place = ps_index_find(&t->index, hash);
    if (place.bucket != NULL)
        ps_table_row_remove(t, place, hash);
}

/* ---- AGE, STEPS, NORM ---- */

void ps_table_set_now(struct ps_table *t, uint32_t now_s, uint64_t step)
{
    if (t->feature.eviction == MR_EVICT_NEVER)
        return;
    uint64_t passed = ps_row_use_set_now(&t->use, now_s, step);
    if (passed == 0)
        return;
    uint64_t buckets = t->index.bytes / sizeof(struct ps_bucket);
    uint64_t period = t->use.limit / PS_EVICT_ROUNDS_PER_LIMIT + 1;
    passed = passed < period ? passed : period;
    uint64_t due = t->evictor.buckets_due + (buckets * passed + period - 1) / period;
    t->evictor.buckets_due = due < buckets ? due : buckets;
}

void ps_table_load_from(struct ps_table *t, uint32_t clock_s, uint32_t now_s)
{
    ps_row_use_load_from(&t->use, clock_s, now_s);
}

static bool norm_is_small(const struct ps_table *t, const uint8_t *row)
{
    float values[MR_DIM_MAX];
    double sum = 0, limit = (double)t->feature.eviction_arg;
    mr_convert_to_f32((enum mr_dtype)t->feature.dtype, values, row, NULL, 1, t->dim);
    for (uint32_t i = 0; i < t->dim; i++)
        sum += (double)values[i] * (double)values[i];
    return sum < limit * limit;
}

static bool is_over(const struct ps_table *t, const uint8_t *row)
{
    return ps_row_is_over_age(&t->use, row) &&
           (t->feature.eviction != MR_EVICT_NORM || norm_is_small(t, row));
}

static uint64_t *counter_of_due(struct ps_table *t)
{
    struct ps_table_counters *c = &t->counters;
    return t->feature.eviction == MR_EVICT_AGE     ? &c->rows_evicted_age
           : t->feature.eviction == MR_EVICT_STEPS ? &c->rows_evicted_steps
                                                   : &c->rows_evicted_norm;
}

/* The rows of up to `bucket_count` further buckets, each once, until there are `row_count`. Returns how many
 * buckets were looked at. */
static uint32_t sample_fill(struct ps_table *t, struct ps_evict_cursor *c, struct sample *s,
                            uint64_t bucket_count, uint32_t row_count)
{
    const struct ps_bucket *first = NULL;
    uint32_t i = 0;
    for (; i < bucket_count && s->count < row_count; i++) {
        struct ps_bucket *b = cursor_next(t, c);
        if (b == NULL || b == first)
            break;
        first = first == NULL ? b : first;
        sample_add_bucket(t, s, c->partition, b);
    }
    return i;
}

/* Some of the buckets that are due; false when there is none to look at. */
static bool due_step(struct ps_table *t, uint64_t *budget_bytes)
{
    struct sample s = {.count = 0};
    uint64_t due = t->evictor.buckets_due;
    if (!may_evict(t))
        return false;
    ask_for_room(t);
    uint32_t buckets =
        sample_fill(t, &t->evictor.due, &s, due < ROUND_BUCKETS ? due : ROUND_BUCKETS, ROUND_ROWS_MAX);
    if (buckets == 0)
        return false;
    t->evictor.buckets_due -= buckets;
    for (uint32_t i = 0; i < s.count; i++)
        if (is_over(t, ps_table_row(t, s.places[i])))
            remove_row(t, s.places[i], counter_of_due(t));
    uint32_t looked_at_bytes = t->feature.eviction == MR_EVICT_NORM ? t->layout.values_bytes : 0;
    uint64_t cost = sizeof(struct ps_bucket) * ROUND_BUCKETS +
                    s.count * (PS_KEY_COST_BYTES / 2 + (uint64_t)looked_at_bytes);
    *budget_bytes -= cost < *budget_bytes ? cost : *budget_bytes;
    return true;
}

/* ---- room for others ---- */

static bool is_in_pool(const struct ps_evictor *e, uint64_t hash)
{
    for (uint32_t i = 0; i < e->pool_count; i++)
        if (e->pool[i].hash == hash)
            return true;
    return false;
}

static uint64_t idleness_of(const struct ps_table *t, const struct ps_evict_candidate *c)
{
    return ps_row_idleness(&t->use, c->seen, c->uses);
}

/* Keeps the candidate if there is room, or a less idle one to take the place of. */
static void pool_offer(struct ps_table *t, const struct ps_evict_candidate *c)
{
    struct ps_evictor *e = &t->evictor;
    if (is_in_pool(e, c->hash))
        return;
    if (e->pool_count < PS_EVICT_POOL_ROWS) {
        e->pool[e->pool_count++] = *c;
        return;
    }
    struct ps_evict_candidate *least = &e->pool[0];
    for (uint32_t i = 1; i < PS_EVICT_POOL_ROWS; i++)
        if (idleness_of(t, &e->pool[i]) < idleness_of(t, least))
            least = &e->pool[i];
    if (idleness_of(t, c) > idleness_of(t, least))
        *least = *c;
}

static struct ps_evict_candidate pool_take_best(struct ps_table *t)
{
    struct ps_evictor *e = &t->evictor;
    uint32_t best = 0;
    for (uint32_t i = 1; i < e->pool_count; i++)
        if (idleness_of(t, &e->pool[i]) > idleness_of(t, &e->pool[best]))
            best = i;
    struct ps_evict_candidate c = e->pool[best];
    e->pool[best] = e->pool[--e->pool_count];
    return c;
}

static struct ps_evict_candidate candidate_at(const struct ps_table *t, struct ps_place place)
{
    const uint8_t *row = ps_table_row(t, place);
    return (struct ps_evict_candidate){.hash = ps_index_hash_at(&t->index, place),
                                       .seen = ps_row_seen(&t->use, row),
                                       .uses = ps_row_uses(&t->use, row)};
}

static void pool_fill(struct ps_table *t)
{
    struct sample s = {.count = 0};
    (void)sample_fill(t, &t->evictor.room, &s, PS_EVICT_SAMPLE_BUCKETS_MAX, PS_EVICT_SAMPLE_ROWS);
    for (uint32_t i = 0; i < s.count; i++) {
        struct ps_evict_candidate c = candidate_at(t, s.places[i]);
        if (ps_row_is_released(&t->use, c.seen))
            pool_offer(t, &c);
    }
}

/* The candidate is still there, and was not used since, which would have left a later stamp; a running cut
 * has it. */
static bool is_as_it_was(const struct ps_table *t, const struct ps_evict_candidate *c, struct ps_place *place)
{
    *place = ps_index_find(&t->index, c->hash);
    if (place->bucket == NULL)
        return false;
    uint32_t seen = ps_row_seen(&t->use, ps_table_row(t, *place));
    bool pending =
        t->cut_running && !t->evictor.emits && ps_entry_is_pending(&t->index, *ps_place_entry(*place));
    return seen == c->seen && !pending;
}

static bool evict_any(struct ps_table *t, uint64_t *counter)
{
    struct ps_place place;
    if (!may_evict(t))
        return false;
    ask_for_room(t);
    pool_fill(t);
    while (t->evictor.pool_count > 0) {
        struct ps_evict_candidate c = pool_take_best(t);
        if (is_as_it_was(t, &c, &place)) {
            remove_row(t, place, counter);
            return true;
        }
    }
    return false;
}

/* Rows near the home of this hash, then of the other partitions of its group, if those do as well. */
static void sample_near(const struct ps_table *t, struct sample *s, uint64_t hash, bool of_group)
{
    uint32_t own = mr_partition_of(hash), partitions = of_group ? PS_GROUP_PARTITIONS : 1;
    for (uint32_t i = 0; i < partitions; i++) {
        uint32_t partition =
            own / PS_GROUP_PARTITIONS * PS_GROUP_PARTITIONS + (own + i) % PS_GROUP_PARTITIONS;
        if (t->followed != NULL && ps_partitions_has(t->followed, partition))
            continue;
        uint32_t count = ps_index_bucket_count(&t->index, partition);
        uint32_t number = count > 0 ? ps_home_number(hash, count) : 0;
        for (uint32_t left = count; left > 0 && s->count < PS_EVICT_NEAR_ROWS; left--) {
            sample_add_bucket(t, s, partition, ps_index_bucket(&t->index, partition, number));
            number = number + 1 == count ? 0 : number + 1;
        }
    }
}

/* The most idle of these. */
static bool evict_near(struct ps_table *t, uint64_t hash, bool of_group, uint64_t *counter)
{
    struct sample s = {.count = 0};
    struct ps_place best = {.bucket = NULL};
    uint64_t best_idleness = 0;
    if (!may_evict(t))
        return false;
    ask_for_room(t);
    sample_near(t, &s, hash, of_group);
    for (uint32_t i = 0; i < s.count; i++) {
        struct ps_evict_candidate c = candidate_at(t, s.places[i]);
        if (ps_row_is_released(&t->use, c.seen) && idleness_of(t, &c) >= best_idleness) {
            best = s.places[i];
            best_idleness = idleness_of(t, &c);
        }
    }
    if (best.bucket != NULL)
        remove_row(t, best, counter);
    return best.bucket != NULL;
}

/* ---- limits ---- */

#define FIRST_BUCKETS_SHARE 8u /* of a table's memory, at most */
#define INDEX_BYTES         9u /* of a row, about */

/* Slabs leave room for the first buckets of partitions that have none yet: evicted rows make room for rows,
 * but not for buckets. */
static size_t bytes_wanted(const struct ps_table *t, uint64_t hash)
{
    size_t slab_bytes = ps_slabs_take_bytes(&t->slabs, ps_group_of(hash));
    uint32_t used = t->index.partitions_used;
    size_t kept_bytes = t->partitions > used ? (t->partitions - used) * sizeof(struct ps_bucket) : 0;
    size_t kept_max = t->memory_max / FIRST_BUCKETS_SHARE;
    if (slab_bytes > 0)
        slab_bytes += kept_bytes < kept_max ? kept_bytes : kept_max;
    return slab_bytes + ps_index_insert_bytes(&t->index, hash);
}

/* Rows and memory of partitions that are kept for another node do not count. */
size_t ps_table_memory_limit(const struct ps_table *t)
{
    return t->memory_max + t->counters.rows_copied * (t->slabs.stride_bytes + INDEX_BYTES);
}

enum ps_limit ps_table_limit_met(const struct ps_table *t, uint64_t hash)
{
    if (ps_table_rows_owned(t) >= t->rows_max)
        return PS_LIMIT_ROWS;
    if (t->memory_max == 0)
        return PS_LIMIT_NONE;
    size_t more = bytes_wanted(t, hash), used = ps_table_memory_bytes(t);
    return more > 0 && used + more > ps_table_memory_limit(t) ? PS_LIMIT_MEMORY : PS_LIMIT_NONE;
}

/* Its group of rows is full and cannot grow: any row of it makes room. Else its partition of the index is,
 * where only a row of the same one does. */
static bool is_place_wanted(const struct ps_table *t, uint64_t hash)
{
    size_t index_bytes = ps_index_insert_bytes(&t->index, hash);
    bool has_index_room = index_bytes == 0 || t->memory_max == 0 ||
                          ps_table_memory_bytes(t) + index_bytes <= ps_table_memory_limit(t);
    return has_index_room && ps_slabs_take_bytes(&t->slabs, ps_group_of(hash)) > 0;
}

bool ps_table_evict_for(struct ps_table *t, uint64_t hash, enum ps_limit limit)
{
    struct ps_table_counters *c = &t->counters;
    if (!ps_row_use_makes_room(&t->use))
        return false;
    if (limit == PS_LIMIT_ROWS)
        return evict_any(t, &c->rows_evicted_capacity);
    return evict_near(t, hash, is_place_wanted(t, hash), &c->rows_evicted_memory);
}

/* Rows beyond the limits: they came with a checkpoint. Free places count as given back: compaction sees to
 * that. */
static bool is_beyond_limit(const struct ps_table *t)
{
    uint64_t free_bytes = (t->slabs.places - t->slabs.rows) * t->slabs.stride_bytes;
    return ps_table_rows_owned(t) > t->rows_max ||
           (t->memory_max != 0 && ps_table_rows_owned(t) > 0 &&
            ps_table_memory_bytes(t) > ps_table_memory_limit(t) + free_bytes);
}

#define EVICTION_COST_BYTES (PS_EVICT_SAMPLE_ROWS * PS_KEY_COST_BYTES)

/* Both return whether there is more to do. */
static bool evict_due(struct ps_table *t, uint64_t *budget_bytes)
{
    while (t->evictor.buckets_due > 0 && *budget_bytes > 0)
        if (!due_step(t, budget_bytes))
            return false;
    return t->evictor.buckets_due > 0;
}

static bool evict_beyond_limit(struct ps_table *t, uint64_t *budget_bytes)
{
    while (is_beyond_limit(t) && *budget_bytes > 0) {
        bool rows = ps_table_rows_owned(t) > t->rows_max;
        if (!evict_any(t, rows ? &t->counters.rows_evicted_capacity : &t->counters.rows_evicted_memory))
            return false;
        *budget_bytes -= EVICTION_COST_BYTES < *budget_bytes ? EVICTION_COST_BYTES : *budget_bytes;
    }
    return is_beyond_limit(t);
}

bool ps_table_evict(struct ps_table *t, uint64_t budget_bytes)
{
    t->may_emit = true;
    bool more = evict_due(t, &budget_bytes);
    if (ps_row_use_makes_room(&t->use))
        more |= evict_beyond_limit(t, &budget_bytes);
    t->may_emit = false;
    return more;
}
