#include "dataplane/wire/base/buddy.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#define UNIT_BYTES       ((size_t)MR_BUDDY_BLOCK_BYTES_MIN)
#define ORDER_COUNT      33u          /* 256 B .. 1 TiB */
#define KEPT_ORDERS      6u           /* 256 B .. 8 KiB are kept unmerged */
#define KEPT_BYTES       (128u << 10) /* per order */
#define NO_UNIT          UINT32_MAX
#define REGION_UNITS_MAX (UINT32_MAX - 1) /* the last unit of 2^40 bytes is not used */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

/* The state of a block stands in the tag of its first unit; the tags of its other units mean nothing, but
 * never look like a free block. */
enum tag {
    TAG_NONE = 0,
    TAG_USED = 1u << 6, /* | order */
    TAG_FREE = 2u << 6, /* | order; in the list of its order */
    TAG_KEPT = 3u << 6, /* | order; free, but not offered for merging */
};
#define TAG_ORDER_MASK 0x3fu

struct link {
    uint32_t next, prev;
};

struct mr_buddy {
    uint8_t *region;
    uint32_t unit_count;
    uint32_t kept_count[KEPT_ORDERS];
    uint32_t kept[KEPT_ORDERS]; /* first unit of the last one freed; chained by link.next */
    uint32_t free[ORDER_COUNT];
    uint64_t free_orders; /* bit o: free[o] is not empty */
    size_t used_bytes;
#ifdef __SANITIZE_ADDRESS__
    size_t marked_bytes; /* of the region, from its start, with AddressSanitizer's marks */
#endif
    uint8_t *tags;      /* [unit_count] */
    struct link *links; /* [unit_count] */
};

static size_t order_bytes(uint32_t order)
{
    return UNIT_BYTES << order;
}

/* Smallest order that holds `bytes`; ORDER_COUNT when none does. */
static uint32_t order_of(size_t bytes)
{
    if (bytes <= UNIT_BYTES)
        return 0;
    uint32_t order = 64u - (uint32_t)__builtin_clzll((bytes - 1) / UNIT_BYTES);
    return order < ORDER_COUNT ? order : ORDER_COUNT;
}

/* ---- free lists ---- */

static void list_push(struct mr_buddy *b, uint32_t unit, uint32_t order)
{
    uint32_t head = b->free[order];
    b->links[unit] = (struct link){.next = head, .prev = NO_UNIT};
    if (head != NO_UNIT)
        b->links[head].prev = unit;
    b->free[order] = unit;
    b->free_orders |= UINT64_C(1) << order;
    b->tags[unit] = (uint8_t)(TAG_FREE | order);
}

static void list_remove(struct mr_buddy *b, uint32_t unit, uint32_t order)
{
    struct link l = b->links[unit];
    if (l.prev != NO_UNIT)
        b->links[l.prev].next = l.next;
    else
        b->free[order] = l.next;
    if (l.next != NO_UNIT)
        b->links[l.next].prev = l.prev;
    if (b->free[order] == NO_UNIT)
        b->free_orders &= ~(UINT64_C(1) << order);
    b->tags[unit] = TAG_NONE;
}

/* Give a block back to the lists, merged with its free buddies. */
static void release(struct mr_buddy *b, uint32_t unit, uint32_t order)
{
    b->tags[unit] = TAG_NONE;
    for (; order + 1 < ORDER_COUNT; order++) {
        uint64_t buddy = unit ^ (UINT64_C(1) << order);
        if (buddy >= b->unit_count || b->tags[buddy] != (TAG_FREE | order))
            break;
        list_remove(b, (uint32_t)buddy, order);
        unit &= ~(uint32_t)(UINT64_C(1) << order);
    }
    list_push(b, unit, order);
}

/* The smallest free block that is large enough, cut down to `order`. NO_UNIT when there is none. */
static uint32_t buddy_take(struct mr_buddy *b, uint32_t order)
{
    uint64_t orders = b->free_orders >> order << order;
    if (orders == 0)
        return NO_UNIT;
    uint32_t found = (uint32_t)__builtin_ctzll(orders);
    uint32_t unit = b->free[found];
    list_remove(b, unit, found);
    while (found > order) {
        found--;
        list_push(b, unit + (UINT32_C(1) << found), found);
    }
    return unit;
}

/* ---- blocks kept unmerged ---- */

static bool buddy_keep(struct mr_buddy *b, uint32_t unit, uint32_t order)
{
    if (order >= KEPT_ORDERS || b->kept_count[order] >= KEPT_BYTES / order_bytes(order))
        return false;
    b->links[unit].next = b->kept[order];
    b->kept[order] = unit;
    b->kept_count[order]++;
    b->tags[unit] = (uint8_t)(TAG_KEPT | order);
    return true;
}

static uint32_t take_kept(struct mr_buddy *b, uint32_t order)
{
    uint32_t unit = b->kept[order];
    if (unit != NO_UNIT) {
        b->kept[order] = b->links[unit].next;
        b->kept_count[order]--;
    }
    return unit;
}

/* Rare: something did not fit. At most KEPT_ORDERS * KEPT_BYTES / UNIT_BYTES merges. */
__attribute__((cold, noinline)) static void release_kept(struct mr_buddy *b)
{
    for (uint32_t order = 0; order < KEPT_ORDERS; order++)
        for (uint32_t unit = take_kept(b, order); unit != NO_UNIT; unit = take_kept(b, order))
            release(b, unit, order);
}

/* ---- AddressSanitizer's marks on the region; nothing when built without it ---- */

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>

/* Marks take an eighth of the memory that they stand for. They are made as blocks come into use, this far
 * ahead. */
#define MARKED_AHEAD_BYTES ((size_t)1 << 20)

static void mark_free(void *p, size_t bytes)
{
    __asan_poison_memory_region(p, bytes);
}

/* Marks what was not yet, up to MARKED_AHEAD_BYTES beyond end_bytes. */
static void mark_ahead(struct mr_buddy *b, size_t end_bytes)
{
    size_t beyond_bytes = mr_buddy_capacity_bytes(b) - end_bytes;
    end_bytes += beyond_bytes < MARKED_AHEAD_BYTES ? beyond_bytes : MARKED_AHEAD_BYTES;
    if (end_bytes <= b->marked_bytes)
        return;
    mark_free(b->region + b->marked_bytes, end_bytes - b->marked_bytes);
    b->marked_bytes = end_bytes;
}

static void mark_used(struct mr_buddy *b, uint8_t *block, size_t bytes, uint32_t order)
{
    mark_ahead(b, (size_t)(block - b->region) + order_bytes(order));
    __asan_unpoison_memory_region(block, bytes);
}

static void remove_marks(struct mr_buddy *b)
{
    __asan_unpoison_memory_region(b->region, b->marked_bytes);
}
#else
static void mark_free(void *p, size_t bytes)
{
}
static void mark_ahead(struct mr_buddy *b, size_t end_bytes)
{
}
static void mark_used(struct mr_buddy *b, uint8_t *block, size_t bytes, uint32_t order)
{
}
static void remove_marks(struct mr_buddy *b)
{
}
#endif

/* ---- public ---- */

struct mr_buddy *mr_buddy_create(void *region, size_t region_bytes)
{
    assert(((uintptr_t)region & (MR_BUDDY_ALIGN - 1)) == 0);
    size_t units = region_bytes / UNIT_BYTES;
    if (units > REGION_UNITS_MAX)
        units = REGION_UNITS_MAX;
    struct mr_buddy *b = calloc(1, sizeof(*b));
    if (b == NULL || units == 0)
        goto fail;
    b->region = region;
    b->unit_count = (uint32_t)units;
    /* Both stay untouched, and so without memory behind them, where no block ever starts. */
    b->tags = calloc(units, sizeof(*b->tags));
    b->links = calloc(units, sizeof(*b->links));
    if (b->tags == NULL || b->links == NULL)
        goto fail;
    for (uint32_t order = 0; order < ORDER_COUNT; order++)
        b->free[order] = NO_UNIT;
    for (uint32_t order = 0; order < KEPT_ORDERS; order++)
        b->kept[order] = NO_UNIT;

    /* The largest aligned blocks that fit, left to right: the bits of the unit count, highest first. */
    uint32_t unit = 0;
    for (uint32_t order = ORDER_COUNT; order-- > 0;) {
        if ((units >> order & 1) != 0) {
            list_push(b, unit, order);
            unit += (uint32_t)(UINT64_C(1) << order);
        }
    }
    mark_ahead(b, 0);
    return b;

fail:
    if (b != NULL) {
        free(b->links);
        free(b->tags);
    }
    free(b);
    return NULL;
}

void mr_buddy_destroy(struct mr_buddy *b)
{
    if (b == NULL)
        return;
    remove_marks(b);
    free(b->links);
    free(b->tags);
    free(b);
}

void *mr_buddy_alloc(struct mr_buddy *b, size_t bytes)
{
    uint32_t order = order_of(bytes);
    if (order == ORDER_COUNT)
        return NULL;
    uint32_t unit = order < KEPT_ORDERS ? take_kept(b, order) : NO_UNIT;
    if (unit == NO_UNIT)
        unit = buddy_take(b, order);
    if (unit == NO_UNIT) {
        release_kept(b);
        unit = buddy_take(b, order);
    }
    if (unit == NO_UNIT)
        return NULL;
    b->tags[unit] = (uint8_t)(TAG_USED | order);
    b->used_bytes += order_bytes(order);
    uint8_t *block = b->region + unit * UNIT_BYTES;
    mark_used(b, block, bytes, order);
    return block;
}

void mr_buddy_free(struct mr_buddy *b, void *p)
{
    if (p == NULL)
        return;
    size_t offset = (size_t)((uint8_t *)p - b->region);
    assert(offset % UNIT_BYTES == 0 && offset / UNIT_BYTES < b->unit_count);
    uint32_t unit = (uint32_t)(offset / UNIT_BYTES);
    assert((b->tags[unit] & ~TAG_ORDER_MASK) == TAG_USED);
    uint32_t order = b->tags[unit] & TAG_ORDER_MASK;
    b->used_bytes -= order_bytes(order);
    mark_free(p, order_bytes(order));
    if (!buddy_keep(b, unit, order))
        release(b, unit, order);
}

size_t mr_buddy_used_bytes(const struct mr_buddy *b)
{
    return b->used_bytes;
}

size_t mr_buddy_capacity_bytes(const struct mr_buddy *b)
{
    return (size_t)b->unit_count * UNIT_BYTES;
}

size_t mr_buddy_block_bytes(size_t bytes)
{
    uint32_t order = order_of(bytes);
    return order < ORDER_COUNT ? order_bytes(order) : 0;
}
