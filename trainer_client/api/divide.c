#include "trainer_client/api/divide.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/format/bag.h"

static bool is_push(const struct mrc_rows_request *r)
{
    return r->gradients.values != NULL;
}

/* Returns whether shares have a list of their own of bags. */
static bool lists_bags(const struct mrc_rows_request *r)
{
    return r->offsets != NULL && !r->keeps_bags;
}

/* Counts the bags of each share, whose keys have been counted. */
static void count_bags(struct mrc_division *d)
{
    const struct mrc_rows_request *r = d->of;
    uint32_t keys = 0, bags = 0;
    for (uint32_t b = 0; b < r->bag_count && lists_bags(r); b++) {
        for (uint32_t i = r->offsets[b]; i < r->offsets[b + 1]; i++) {
            struct mrc_share *share = &d->shares[d->share_of[i]];
            if (share->next_bag != b + 1) { /* the last one counted, from 1 */
                share->next_bag = b + 1;
                share->bag_count++;
            }
        }
    }
    for (uint32_t s = 0; s < d->share_count; s++) {
        struct mrc_share *share = &d->shares[s];
        if (r->offsets != NULL && r->keeps_bags)
            share->bag_count = r->bag_count;
        share->first_key = keys;
        share->first_bag = bags;
        keys += share->key_count;
        bags += share->bag_count;
    }
}

/* Each share begins again. */
static void rewind_shares(struct mrc_division *d)
{
    for (uint32_t s = 0; s < d->share_count; s++)
        d->shares[s].next_key = d->shares[s].next_bag = 0;
}

/* Returns which of the caller's bags the share's j-th is of. */
static uint32_t bag_at(const struct mrc_division *d, const struct mrc_share *share, uint32_t j)
{
    return d->of->keeps_bags ? j : d->bag_of[share->first_bag + j];
}

/* Sets gradients and divisors of a share's bags. */
static void fill_rows_of_bags(const struct mrc_division *d, const struct mrc_share *share)
{
    const struct mrc_rows_request *r = d->of;
    for (uint32_t j = 0; is_push(r) && j < share->bag_count; j++)
        mrc_rows_move(&share->rows, j, &r->gradients, bag_at(d, share, j), 1, r->dim);
    for (uint32_t j = 0; share->divisors != NULL && j < share->bag_count; j++) {
        const uint32_t bag = bag_at(d, share, j), first = r->offsets[bag];
        share->divisors[j] = r->divisors != NULL
                                 ? r->divisors[bag]
                                 : mr_bag_divisor(r->pooling, r->weights == NULL ? NULL : r->weights + first,
                                                  r->offsets[bag + 1] - first);
    }
}

/* ---- by owner: all shares are filled, or joined, in one go through the caller's keys ---- */

size_t mrc_division_bytes(const struct mrc_rows_request *r, uint32_t owner_count)
{
    const struct mrc_division *d = NULL;
    const size_t key_bytes = (lists_bags(r) ? sizeof(*d->bag_of) : 0) + sizeof(*d->share_of);
    return mr_padded(owner_count * sizeof(*d->shares) + r->key_count * key_bytes);
}

uint32_t mrc_divide_by_owner(struct mrc_division *d, const struct mrc_rows_request *r,
                             const uint16_t owners[MR_PARTITION_COUNT], uint32_t owner_count, uint64_t seed,
                             void *memory)
{
    uint8_t *of_keys = (uint8_t *)memory + owner_count * sizeof(*d->shares);
    uint32_t only = 0;
    *d = (struct mrc_division){.of = r, .share_count = owner_count, .shares = memory, .memory = memory};
    memset(d->shares, 0, owner_count * sizeof(*d->shares));
    if (lists_bags(r))
        d->bag_of = (uint32_t *)(void *)of_keys;
    d->share_of = (uint16_t *)(void *)(of_keys + (lists_bags(r) ? r->key_count * sizeof(*d->bag_of) : 0));
    const uint64_t *keys = r->keys;
    uint16_t *share_of = d->share_of;
    struct mrc_share *shares = d->shares;

    for (uint32_t i = 0; i < r->key_count; i++) {
        share_of[i] = owners[mr_partition_of(mr_key_hash(keys[i], seed))];
        shares[share_of[i]].key_count++;
    }
    if (r->offsets != NULL)
        count_bags(d);
    for (uint32_t o = 0, found = 0; o < owner_count; o++)
        if (d->shares[o].key_count > 0)
            only = found++ == 0 ? o : MRC_SEVERAL_OWNERS;
    return only;
}

/* Copies a row; lengths of 16 bytes each, of which most rows are multiples, need no call. */
static inline void copy_row(uint8_t *to, const uint8_t *from, size_t bytes)
{
    if (bytes % 16 != 0) {
        memcpy(to, from, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += 16)
        memcpy(to + i, from + i, 16);
}

/* Moves rows of keys between `whole`, in the caller's order, and the shares. What the loop needs is in
 * variables: a row that is written might be anything, for the compiler. */
static inline void move_rows(struct mrc_division *d, const struct mrc_rows *whole, uint32_t dim, bool joins)
{
    const size_t bytes = (size_t)dim * mr_dtype_bytes(whole->dtype);
    const uint32_t key_count = d->of->key_count;
    const uint16_t *share_of = d->share_of;
    struct mrc_share *shares = d->shares;
    uint8_t *in_whole = whole->values;
    bool is_plain =
        whole->dtype != MR_I8; /* rows are only bytes: the same type on both sides, without scales */
    for (uint32_t s = 0; s < d->share_count; s++)
        is_plain &= shares[s].key_count == 0 || shares[s].rows.dtype == whole->dtype;
    rewind_shares(d);
    for (uint32_t i = 0; is_plain && i < key_count; i++, in_whole += bytes) {
        struct mrc_share *share = &shares[share_of[i]];
        uint8_t *in_share = (uint8_t *)share->rows.values + bytes * share->next_key++;
        copy_row(joins ? in_whole : in_share, joins ? in_share : in_whole, bytes);
    }
    for (uint32_t i = 0; !is_plain && i < key_count; i++) {
        struct mrc_share *share = &shares[share_of[i]];
        const uint32_t at = share->next_key++;
        mrc_rows_move(joins ? whole : &share->rows, joins ? i : at, joins ? &share->rows : whole,
                      joins ? at : i, 1, dim);
    }
}

/* Copies keys and offsets, bag after bag. */
static void fill_bags(struct mrc_division *d)
{
    const struct mrc_rows_request *r = d->of;
    for (uint32_t s = 0; s < d->share_count; s++)
        if (d->shares[s].key_count > 0)
            d->shares[s].offsets[0] = 0;
    for (uint32_t b = 0; b < r->bag_count; b++) {
        const uint32_t begin = r->offsets[b], end = r->offsets[b + 1];
        for (uint32_t i = begin; i < end; i++) {
            struct mrc_share *share = &d->shares[d->share_of[i]];
            share->keys[share->next_key++] = r->keys[i];
        }
        /* Close the bag in every share that got a key of it; a second visit finds nothing new. */
        for (uint32_t i = begin; i < end; i++) {
            struct mrc_share *share = &d->shares[d->share_of[i]];
            const uint32_t bag = share->next_bag;
            if (bag == share->bag_count || share->offsets[bag] == share->next_key)
                continue;
            d->bag_of[share->first_bag + bag] = b;
            share->offsets[bag + 1] = share->next_key;
            share->next_bag++;
        }
    }
}

/* The same with all bags for each share. */
static void fill_kept_bags(struct mrc_division *d)
{
    const struct mrc_rows_request *r = d->of;
    for (uint32_t b = 0; b <= r->bag_count; b++) {
        for (uint32_t s = 0; s < d->share_count; s++)
            d->shares[s].offsets[b] = d->shares[s].next_key;
        for (uint32_t i = r->offsets[b]; b < r->bag_count && i < r->offsets[b + 1]; i++) {
            struct mrc_share *share = &d->shares[d->share_of[i]];
            share->keys[share->next_key++] = r->keys[i];
        }
    }
}

void mrc_division_fill(struct mrc_division *d)
{
    const struct mrc_rows_request *r = d->of;
    rewind_shares(d);
    for (uint32_t i = 0; i < r->key_count && r->weights != NULL; i++) {
        struct mrc_share *share = &d->shares[d->share_of[i]];
        share->weights[share->next_key++] = r->weights[i];
    }
    rewind_shares(d);
    if (r->offsets != NULL) {
        if (r->keeps_bags)
            fill_kept_bags(d);
        else
            fill_bags(d);
        for (uint32_t s = 0; s < d->share_count; s++)
            fill_rows_of_bags(d, &d->shares[s]);
        return;
    }
    for (uint32_t i = 0; i < r->key_count; i++) {
        struct mrc_share *share = &d->shares[d->share_of[i]];
        share->keys[share->next_key++] = r->keys[i];
    }
    if (is_push(r))
        move_rows(d, &r->gradients, r->dim, false);
}

void mrc_division_join(struct mrc_division *d, uint32_t dim, float *scratch, float *out)
{
    const struct mrc_rows whole = mrc_rows_f32(out), expanded = mrc_rows_f32(scratch);
    if (d->of->offsets == NULL) {
        move_rows(d, &whole, dim, true);
        return;
    }
    memset(out, 0, (size_t)d->of->bag_count * dim * sizeof(*out));
    for (uint32_t s = 0; s < d->share_count; s++) {
        const struct mrc_share *share = &d->shares[s];
        const uint32_t bag_count = share->bag_count, *bag_of = d->bag_of + share->first_bag;
        const bool is_f32 = share->rows.dtype == MR_F32;
        const float *rows = share->rows.values;
        for (uint32_t j = 0; j < bag_count; j++) {
            const float *in = is_f32 ? rows + (size_t)j * dim : scratch;
            float *sum = out + (size_t)bag_of[j] * dim;
            if (!is_f32)
                mrc_rows_move(&expanded, 0, &share->rows, j, 1, dim);
            for (uint32_t e = 0; e < dim; e++)
                sum[e] += in[e];
        }
    }
}

/* ---- by bytes: one share is put together after the other ---- */

static uint64_t bytes_of(const struct mrc_division *d, uint64_t keys, uint64_t rows)
{
    return keys * d->key_bytes + rows * d->row_bytes;
}

static struct mrc_division division_of(const struct mrc_rows_request *r, uint32_t floats)
{
    const bool has_bags = r->offsets != NULL;
    return (struct mrc_division){
        .of = r,
        .key_bytes = sizeof(*r->keys) + (r->weights != NULL ? sizeof(*r->weights) : 0),
        .row_bytes = (uint64_t)floats * mr_dtype_bytes(r->dtype) + (r->dtype == MR_I8 ? sizeof(float) : 0) +
                     (has_bags ? sizeof(*r->offsets) + sizeof(*r->divisors) : 0)};
}

uint64_t mrc_rows_bytes(const struct mrc_rows_request *r, uint32_t floats)
{
    const struct mrc_division d = division_of(r, floats);
    return bytes_of(&d, r->key_count, mrc_request_rows(r));
}

static uint32_t keys_before(const struct mrc_rows_request *r, uint32_t row)
{
    return r->offsets == NULL ? row : r->offsets[row];
}

uint64_t mrc_share_bytes(const struct mrc_division *d, uint32_t i)
{
    return bytes_of(d, d->shares[i].key_count, mrc_share_rows(d->of, &d->shares[i]));
}

static void find_largest(struct mrc_division *d)
{
    d->largest_bytes = 0;
    for (uint32_t s = 0; s < d->share_count; s++)
        if (mrc_share_bytes(d, s) > d->largest_bytes)
            d->largest_bytes = mrc_share_bytes(d, s);
}

/* In the order of the rows. */
static bool divide_lookup(struct mrc_division *d, uint64_t bytes_max)
{
    const struct mrc_rows_request *r = d->of;
    const uint32_t rows = mrc_request_rows(r);
    /* Two shares that follow each other are larger than one may be together, so there are never more. */
    const uint64_t shares_max = 2 * (bytes_of(d, r->key_count, rows) / bytes_max) + 2;
    d->memory = d->shares = calloc(shares_max, sizeof(*d->shares));
    if (d->memory == NULL)
        return false;
    d->share_count = 1;
    for (uint32_t row = 0; row < rows; row++) {
        struct mrc_share *share = &d->shares[d->share_count - 1];
        const uint32_t first_key = keys_before(r, row), keys = keys_before(r, row + 1) - first_key;
        if (row > share->first_bag &&
            mrc_share_bytes(d, d->share_count - 1) + bytes_of(d, keys, 1) > bytes_max) {
            share = &d->shares[d->share_count++];
            share->first_key = first_key;
            share->first_bag = row;
        }
        share->key_count += keys;
        share->bag_count++;
    }
    find_largest(d);
    return true;
}

/* Keys are put into as many classes as there are partitions, by another hash: the keys of a share have all
 * owners. */
#define CLASS_COUNT MR_PARTITION_COUNT
#define CLASS_SEED  UINT64_C(0x6469766964650001)

/* Maps classes to shares, so that a share's keys, each with a row, have so many bytes. Returns how many
 * shares there are. */
static uint32_t map_classes(const struct mrc_division *d, const uint32_t class_keys[CLASS_COUNT],
                            uint64_t bytes_max, uint16_t map[CLASS_COUNT])
{
    uint64_t bytes = 0;
    uint32_t count = 1;
    for (uint32_t k = 0; k < CLASS_COUNT; k++) {
        const uint64_t more = bytes_of(d, class_keys[k], class_keys[k]);
        if (bytes > 0 && more > 0 && bytes + more > bytes_max) {
            count++;
            bytes = 0;
        }
        map[k] = (uint16_t)(count - 1);
        bytes += more;
    }
    return count;
}

/* Lists keys and bags by share. */
static void list_keys(struct mrc_division *d)
{
    const struct mrc_rows_request *r = d->of;
    rewind_shares(d);
    for (uint32_t row = 0, i = 0; row < mrc_request_rows(r); row++) {
        for (; i < keys_before(r, row + 1); i++) {
            struct mrc_share *share = &d->shares[d->share_of[i]];
            d->order[share->first_key + share->next_key++] = i;
            if (r->offsets == NULL || (share->next_bag > 0 && bag_at(d, share, share->next_bag - 1) == row))
                continue;
            d->bag_of[share->first_bag + share->next_bag++] = row;
        }
    }
}

static bool divide_push(struct mrc_division *d, uint64_t bytes_max)
{
    const struct mrc_rows_request *r = d->of;
    uint32_t class_keys[CLASS_COUNT] = {0};
    uint16_t map[CLASS_COUNT], *class_of = malloc(r->key_count * sizeof(*class_of));
    const size_t key_bytes = sizeof(*d->order) + sizeof(*d->bag_of) + sizeof(*d->share_of);
    d->shares = malloc(CLASS_COUNT * sizeof(*d->shares) + r->key_count * key_bytes);
    if (class_of == NULL || d->shares == NULL) {
        free(class_of);
        free(d->shares);
        return false;
    }
    d->memory = d->shares;
    d->order = (uint32_t *)(void *)(d->shares + CLASS_COUNT);
    d->bag_of = d->order + r->key_count;
    d->share_of = (uint16_t *)(void *)(d->bag_of + r->key_count);
    for (uint32_t i = 0; i < r->key_count; i++) {
        class_of[i] = (uint16_t)mr_partition_of(mr_key_hash(r->keys[i], CLASS_SEED));
        class_keys[class_of[i]]++;
    }
    /* If each share had each bag only once, keys with a row each could have so many times the bytes. */
    const uint64_t whole_bytes = bytes_of(d, r->key_count, mrc_request_rows(r)) + 1;
    uint64_t keys_bytes = bytes_max * (bytes_of(d, r->key_count, r->key_count) / whole_bytes + 1);
    for (;; keys_bytes /= 2) {
        d->share_count = map_classes(d, class_keys, keys_bytes, map);
        memset(d->shares, 0, d->share_count * sizeof(*d->shares));
        for (uint32_t i = 0; i < r->key_count; i++) {
            d->share_of[i] = map[class_of[i]];
            d->shares[d->share_of[i]].key_count++;
        }
        count_bags(d);
        find_largest(d);
        if (d->largest_bytes <= bytes_max || keys_bytes <= bytes_max)
            break;
    }
    list_keys(d);
    free(class_of);
    return true;
}

bool mrc_divide_by_bytes(struct mrc_division *d, const struct mrc_rows_request *r, uint32_t floats,
                         uint64_t bytes_max)
{
    *d = division_of(r, floats);
    if (is_push(r) && mrc_rows_bytes(r, floats) > bytes_max)
        return divide_push(d, bytes_max);
    return divide_lookup(d, bytes_max);
}

static bool has_divisors(const struct mrc_rows_request *r)
{
    return is_push(r) && r->offsets != NULL && mr_pooling_averages(r->pooling);
}

size_t mrc_share_room_bytes(const struct mrc_division *d, uint32_t i)
{
    const struct mrc_rows_request *r = d->of;
    const size_t keys = d->shares[i].key_count, rows = mrc_share_rows(d->of, &d->shares[i]);
    size_t bytes = r->offsets == NULL ? 0 : (rows + 1) * sizeof(*r->offsets);
    if (d->share_count == 1)
        return 0;
    if (d->order != NULL)
        bytes += keys * (sizeof(*r->keys) + (r->weights != NULL ? sizeof(*r->weights) : 0)) +
                 rows * ((size_t)r->dim * sizeof(float) + (has_divisors(r) ? sizeof(*r->divisors) : 0));
    return mr_padded(bytes);
}

static void *room_take(uint8_t **room, size_t bytes)
{
    void *taken = *room;
    *room += bytes;
    return taken;
}

/* Puts a share of a push together. */
static struct mrc_share gather_push(const struct mrc_division *d, uint32_t i, uint8_t *room)
{
    const struct mrc_rows_request *r = d->of;
    struct mrc_share share = d->shares[i];
    const uint32_t *order = d->order + share.first_key;
    share.keys = room_take(&room, share.key_count * sizeof(*share.keys));
    share.rows =
        mrc_rows_f32(room_take(&room, (size_t)mrc_share_rows(d->of, &share) * r->dim * sizeof(float)));
    if (r->weights != NULL)
        share.weights = room_take(&room, share.key_count * sizeof(*share.weights));
    if (has_divisors(r))
        share.divisors = room_take(&room, share.bag_count * sizeof(*share.divisors));
    for (uint32_t k = 0; k < share.key_count; k++) {
        share.keys[k] = r->keys[order[k]];
        if (r->weights != NULL)
            share.weights[k] = r->weights[order[k]];
        if (r->offsets == NULL)
            mrc_rows_move(&share.rows, k, &r->gradients, order[k], 1, r->dim);
    }
    if (r->offsets == NULL)
        return share;
    share.offsets = (uint32_t *)(void *)room;
    for (uint32_t j = 0, k = 0; j <= share.bag_count; j++) {
        share.offsets[j] = k;
        while (j < share.bag_count && k < share.key_count && order[k] < r->offsets[bag_at(d, &share, j) + 1])
            k++;
    }
    fill_rows_of_bags(d, &share);
    return share;
}

void mrc_share_request(const struct mrc_division *d, uint32_t i, void *room, struct mrc_rows_request *out)
{
    const struct mrc_rows_request *r = d->of;
    struct mrc_share share = d->shares[i];
    *out = *r;
    if (d->share_count == 1)
        return;
    out->key_count = share.key_count;
    out->bag_count = r->offsets == NULL ? 0 : share.bag_count;
    if (d->order != NULL) {
        share = gather_push(d, i, room);
        out->keys = share.keys;
        out->offsets = share.offsets;
        out->weights = share.weights;
        out->gradients = share.rows;
        out->divisors = share.divisors;
        out->averages = share.divisors != NULL;
        return;
    }
    if (r->keys != NULL)
        out->keys = r->keys + share.first_key;
    if (r->weights != NULL)
        out->weights = r->weights + share.first_key;
    if (r->offsets == NULL)
        return;
    uint32_t *offsets = room;
    for (uint32_t b = 0; b <= share.bag_count; b++)
        offsets[b] = r->offsets[share.first_bag + b] - share.first_key;
    out->offsets = offsets;
}
