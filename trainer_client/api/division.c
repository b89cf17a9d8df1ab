#include "trainer_client/api/division.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/bag.h"
#include "dataplane/wire/format/mr_feature.h"

/* Keys are put into as many classes as there are partitions, by another hash: the keys of a part have all
 * owners. */
#define CLASS_COUNT MR_PARTITION_COUNT
#define CLASS_SEED  UINT64_C(0x6469766964650001)

static bool is_push(const struct mrc_rows_request *r)
{
    return r->gradients != NULL;
}

/* ---- bytes ---- */

struct cost {
    uint64_t key_bytes; /* of each key */
    uint64_t row_bytes; /* and of each row beside its keys */
};

static struct cost cost_of(const struct mrc_rows_request *r, uint32_t floats)
{
    const bool has_bags = r->offsets != NULL;
    struct cost c = {.key_bytes = sizeof(*r->keys) + (r->weights != NULL ? sizeof(*r->weights) : 0),
                     .row_bytes = (uint64_t)floats * mr_dtype_bytes(r->dtype)};
    c.row_bytes += r->dtype == MR_I8 ? sizeof(float) : 0;
    c.row_bytes += has_bags ? sizeof(*r->offsets) + sizeof(*r->divisors) : 0;
    return c;
}

static uint64_t bytes_of(struct cost c, uint64_t keys, uint64_t rows)
{
    return keys * c.key_bytes + rows * c.row_bytes;
}

uint64_t mrc_division_bytes(const struct mrc_rows_request *r, uint32_t floats)
{
    return bytes_of(cost_of(r, floats), r->key_count, mrc_request_rows(r));
}

static void note_part(struct mrc_division *d, uint64_t bytes)
{
    if (bytes > d->largest_bytes)
        d->largest_bytes = bytes;
}

/* ---- lookups ---- */

static uint32_t keys_before(const struct mrc_rows_request *r, uint32_t row)
{
    return r->offsets == NULL ? row : r->offsets[row];
}

/* Two parts that follow each other are larger than one may be together, so there are never more. */
static uint64_t parts_max(uint64_t bytes, uint64_t part_bytes)
{
    return 2 * (bytes / part_bytes) + 2;
}

static bool divide_lookup(struct mrc_division *d, struct cost c, uint64_t part_bytes)
{
    const struct mrc_rows_request *r = d->of;
    const uint32_t rows = mrc_request_rows(r);
    uint64_t bytes = 0;
    d->first = malloc((parts_max(bytes_of(c, r->key_count, rows), part_bytes) + 1) * sizeof(*d->first));
    d->memory = d->first;
    if (d->memory == NULL)
        return false;
    d->first[0] = 0;
    for (uint32_t row = 0; row < rows; row++) {
        const uint64_t more = bytes_of(c, keys_before(r, row + 1) - keys_before(r, row), 1);
        if (row > d->first[d->part_count] && bytes + more > part_bytes) {
            note_part(d, bytes);
            d->first[++d->part_count] = row;
            bytes = 0;
        }
        bytes += more;
    }
    note_part(d, bytes);
    d->first[++d->part_count] = rows;
    return true;
}

/* ---- pushes ---- */

/* What dividing by key needs meanwhile. */
struct classes {
    uint64_t keys[CLASS_COUNT];    /* how many there are of each class */
    uint32_t part_of[CLASS_COUNT]; /* of each class */
    uint32_t part_keys[CLASS_COUNT], part_bags[CLASS_COUNT];
    uint32_t part_bag[CLASS_COUNT]; /* the last bag that has a key in the part; UINT32_MAX: none so far */
    uint32_t part_count;
    uint16_t of_key[]; /* [key_count] */
};

static struct classes *classes_new(const struct mrc_rows_request *r)
{
    struct classes *s = malloc(sizeof(*s) + r->key_count * sizeof(*s->of_key));
    if (s == NULL)
        return NULL;
    memset(s->keys, 0, sizeof(s->keys));
    for (uint32_t i = 0; i < r->key_count; i++) {
        s->of_key[i] = (uint16_t)mr_partition_of(mr_key_hash(r->keys[i], CLASS_SEED));
        s->keys[s->of_key[i]]++;
    }
    return s;
}

/* Puts classes together until a part's keys, each with a row, have so many bytes. */
static void deal_classes(struct classes *s, struct cost c, uint64_t part_bytes)
{
    uint64_t bytes = 0;
    s->part_count = 1;
    for (uint32_t k = 0; k < CLASS_COUNT; k++) {
        const uint64_t more = bytes_of(c, s->keys[k], s->keys[k]);
        if (bytes > 0 && more > 0 && bytes + more > part_bytes) {
            s->part_count++;
            bytes = 0;
        }
        s->part_of[k] = s->part_count - 1;
        bytes += more;
    }
}

/* Counts the keys and the bags of each part. Returns the bytes of the largest. */
static uint64_t count_parts(const struct mrc_rows_request *r, struct classes *s, struct cost c)
{
    uint64_t largest = 0;
    memset(s->part_keys, 0, sizeof(s->part_keys));
    memset(s->part_bags, 0, sizeof(s->part_bags));
    memset(s->part_bag, 0xff, sizeof(s->part_bag));
    for (uint32_t row = 0, i = 0; row < mrc_request_rows(r); row++) {
        for (; i < keys_before(r, row + 1); i++) {
            const uint32_t part = s->part_of[s->of_key[i]];
            s->part_keys[part]++;
            s->part_bags[part] += s->part_bag[part] != row;
            s->part_bag[part] = row;
        }
    }
    for (uint32_t p = 0; p < s->part_count; p++) {
        const uint64_t bytes = bytes_of(c, s->part_keys[p], s->part_bags[p]);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

/* Lists the keys by part. */
static bool list_parts(struct mrc_division *d, const struct classes *s)
{
    const struct mrc_rows_request *r = d->of;
    uint32_t *next = malloc((r->key_count + 3 * ((size_t)s->part_count + 1)) * sizeof(*next));
    d->memory = next;
    if (next == NULL)
        return false;
    d->part_count = s->part_count;
    d->first = next + d->part_count + 1;
    d->bags = d->first + d->part_count + 1;
    d->order = d->bags + d->part_count + 1;
    d->first[0] = 0;
    for (uint32_t p = 0; p < d->part_count; p++) {
        next[p] = d->first[p];
        d->first[p + 1] = d->first[p] + s->part_keys[p];
        d->bags[p] = s->part_bags[p];
    }
    for (uint32_t i = 0; i < r->key_count; i++)
        d->order[next[s->part_of[s->of_key[i]]]++] = i;
    return true;
}

static bool divide_push(struct mrc_division *d, struct cost c, uint64_t part_bytes)
{
    const struct mrc_rows_request *r = d->of;
    const uint64_t whole = bytes_of(c, r->key_count, mrc_request_rows(r)) + 1;
    struct classes *s = classes_new(r);
    if (s == NULL)
        return false;
    /* If each part had each bag only once, keys with a row each could have so many times the bytes. */
    uint64_t dealt_bytes = part_bytes * (bytes_of(c, r->key_count, r->key_count) / whole + 1);
    for (;; dealt_bytes /= 2) {
        deal_classes(s, c, dealt_bytes);
        d->largest_bytes = count_parts(r, s, c);
        if (d->largest_bytes <= part_bytes || dealt_bytes <= part_bytes)
            break;
    }
    const bool listed = list_parts(d, s);
    free(s);
    return listed;
}

bool mrc_divide(struct mrc_division *d, const struct mrc_rows_request *r, uint32_t floats,
                uint64_t part_bytes)
{
    const struct cost c = cost_of(r, floats);
    *d = (struct mrc_division){.of = r, .key_bytes = c.key_bytes, .row_bytes = c.row_bytes};
    if (is_push(r) && mrc_division_bytes(r, floats) > part_bytes)
        return divide_push(d, c, part_bytes);
    return divide_lookup(d, c, part_bytes);
}

/* ---- parts ---- */

static bool has_divisors(const struct mrc_rows_request *r)
{
    return is_push(r) && r->offsets != NULL && mr_pooling_averages(r->pooling);
}

static uint32_t rows_of_part(const struct mrc_division *d, uint32_t i)
{
    const bool has_bags = d->order != NULL && d->of->offsets != NULL;
    return has_bags ? d->bags[i] : d->first[i + 1] - d->first[i];
}

uint64_t mrc_division_part_bytes(const struct mrc_division *d, uint32_t i)
{
    const uint32_t first = d->first[i], end = d->first[i + 1];
    const uint32_t keys =
        d->order != NULL ? end - first : keys_before(d->of, end) - keys_before(d->of, first);
    return keys * d->key_bytes + rows_of_part(d, i) * d->row_bytes;
}

size_t mrc_division_room_bytes(const struct mrc_division *d, uint32_t i)
{
    const struct mrc_rows_request *r = d->of;
    const size_t rows = rows_of_part(d, i), keys = d->first[i + 1] - d->first[i];
    size_t bytes = r->offsets == NULL ? 0 : (rows + 1) * sizeof(*r->offsets);
    if (d->part_count == 1)
        return 0;
    if (d->order != NULL)
        bytes +=
            keys * (sizeof(*r->keys) + (r->weights != NULL ? sizeof(*r->weights) : 0)) +
            rows * ((size_t)r->dim * sizeof(*r->gradients) + (has_divisors(r) ? sizeof(*r->divisors) : 0));
    return (bytes + 7) / 8 * 8;
}

static void part_of_lookup(const struct mrc_division *d, uint32_t i, uint32_t *offsets,
                           struct mrc_rows_request *out)
{
    const struct mrc_rows_request *r = d->of;
    const uint32_t first = d->first[i], end = d->first[i + 1], begin = keys_before(r, first);
    if (r->keys != NULL)
        out->keys = r->keys + begin;
    out->key_count = keys_before(r, end) - begin;
    if (r->weights != NULL)
        out->weights = r->weights + begin;
    if (r->offsets == NULL)
        return;
    out->offsets = offsets;
    out->bag_count = end - first;
    for (uint32_t b = first; b <= end; b++)
        offsets[b - first] = r->offsets[b] - begin;
}

/* Where a part of a push is put together. */
struct room {
    uint64_t *keys;
    float *gradients, *weights, *divisors;
    uint32_t *offsets;
};

static void put_row(const struct mrc_rows_request *r, struct room *to, uint32_t at, uint32_t row)
{
    memcpy(to->gradients + (size_t)at * r->dim, r->gradients + (size_t)row * r->dim,
           r->dim * sizeof(*r->gradients));
}

/* Begins the part's bag `at`, which is a part of the caller's bag `bag`. */
static void put_bag(const struct mrc_rows_request *r, struct room *to, uint32_t at, uint32_t bag,
                    uint32_t key)
{
    const uint32_t first = r->offsets[bag];
    put_row(r, to, at, bag);
    to->offsets[at] = key;
    if (to->divisors != NULL)
        to->divisors[at] = mr_bag_divisor(r->pooling, r->weights == NULL ? NULL : r->weights + first,
                                          r->offsets[bag + 1] - first);
}

static void put_keys(const struct mrc_division *d, uint32_t i, struct room *to)
{
    const struct mrc_rows_request *r = d->of;
    const uint32_t *order = d->order + d->first[i], count = d->first[i + 1] - d->first[i];
    uint32_t bags = 0, next_bag = 0; /* the caller's bags before it have been gone through */
    for (uint32_t k = 0; k < count; k++) {
        to->keys[k] = r->keys[order[k]];
        if (r->weights != NULL)
            to->weights[k] = r->weights[order[k]];
        if (r->offsets == NULL) {
            put_row(r, to, k, order[k]);
            continue;
        }
        if (next_bag > 0 && order[k] < r->offsets[next_bag])
            continue;
        while (r->offsets[next_bag + 1] <= order[k])
            next_bag++;
        put_bag(r, to, bags++, next_bag++, k);
    }
    if (r->offsets != NULL)
        to->offsets[bags] = count;
}

static void part_of_push(const struct mrc_division *d, uint32_t i, uint8_t *at, struct mrc_rows_request *out)
{
    const struct mrc_rows_request *r = d->of;
    const uint32_t rows = rows_of_part(d, i), keys = d->first[i + 1] - d->first[i];
    struct room to = {.keys = (uint64_t *)(void *)at};
    at += keys * sizeof(*to.keys);
    to.gradients = (float *)(void *)at;
    at += (size_t)rows * r->dim * sizeof(*to.gradients);
    if (r->weights != NULL) {
        to.weights = (float *)(void *)at;
        at += keys * sizeof(*to.weights);
    }
    if (has_divisors(r)) {
        to.divisors = (float *)(void *)at;
        at += rows * sizeof(*to.divisors);
    }
    if (r->offsets != NULL) {
        to.offsets = (uint32_t *)(void *)at;
        out->bag_count = rows;
    }
    put_keys(d, i, &to);
    out->keys = to.keys;
    out->key_count = keys;
    out->gradients = to.gradients;
    out->weights = to.weights;
    out->offsets = to.offsets;
    out->divisors = to.divisors;
    out->averages = to.divisors != NULL;
}

void mrc_division_part(const struct mrc_division *d, uint32_t i, void *room, struct mrc_rows_request *out)
{
    *out = *d->of;
    if (d->part_count == 1)
        return;
    if (d->order != NULL)
        part_of_push(d, i, room, out);
    else
        part_of_lookup(d, i, room, out);
}
