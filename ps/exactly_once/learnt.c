#include "ps/exactly_once/learnt.h"

#include <assert.h>
#include <string.h>

#define WINDOW_BITS_MIN 1024u

/* Bit of sequence number s: s modulo window_bits, so that moving the watermark moves no bits. Bits outside of
 * [watermark, end) are clear. */
struct stream {
    struct mr_plan plan;
    uint64_t used; /* value of `uses` then */
    uint64_t watermark;
    uint64_t added;
    uint64_t ahead;       /* learnt from the watermark on */
    uint64_t end;         /* one after the newest learnt; watermark when none is beyond it */
    uint32_t window_bits; /* a power of two */
    uint64_t *bits;
};

struct ps_learnt {
    struct ps_arena *arena;
    uint64_t uses;     /* claims, and streams made */
    uint32_t reserved; /* the stream of the last ps_learnt_reserve(): a push may be about to add to it */
    uint64_t dropped;
    uint32_t count;
    struct stream *streams[PS_STREAMS_MAX];
};

struct ps_learnt *ps_learnt_create(struct ps_arena *arena)
{
    struct ps_learnt *l = ps_arena_alloc(arena, sizeof(*l), 64);
    if (l != NULL) {
        l->arena = arena;
        l->reserved = PS_STREAMS_MAX;
    }
    return l;
}

static void free_stream(struct ps_learnt *l, uint32_t number)
{
    struct stream *s = l->streams[number];
    if (s != NULL) {
        ps_arena_free(l->arena, s->bits, s->window_bits / 8, 8);
        ps_arena_free(l->arena, s, sizeof(*s), 8);
        l->streams[number] = NULL;
        l->count--;
    }
}

void ps_learnt_clear(struct ps_learnt *l)
{
    for (uint32_t i = 0; i < PS_STREAMS_MAX; i++) {
        free_stream(l, i);
    }
}

void ps_learnt_destroy(struct ps_learnt *l)
{
    if (l != NULL) {
        ps_learnt_clear(l);
        ps_arena_free(l->arena, l, sizeof(*l), 64);
    }
}

static bool bit_at(const struct stream *s, uint64_t sequence)
{
    uint64_t bit = sequence & (s->window_bits - 1);
    return (s->bits[bit / 64] >> (bit % 64) & 1) != 0;
}

static void flip_bit(struct stream *s, uint64_t sequence)
{
    uint64_t bit = sequence & (s->window_bits - 1);
    s->bits[bit / 64] ^= UINT64_C(1) << (bit % 64);
}

static bool stream_has(const struct stream *s, uint64_t sequence)
{
    return sequence < s->watermark || (sequence < s->end && bit_at(s, sequence));
}

bool ps_learnt_has(const struct ps_learnt *l, uint64_t batch_id)
{
    const struct stream *s = l->streams[mr_batch_stream(batch_id)];
    return s != NULL && stream_has(s, mr_batch_sequence(batch_id));
}

static bool widen(struct ps_learnt *l, struct stream *s, uint32_t window_bits)
{
    struct stream wide = *s;
    wide.window_bits = window_bits;
    wide.bits = ps_arena_alloc(l->arena, window_bits / 8, 8);
    if (wide.bits == NULL) {
        return false;
    }
    for (uint64_t sequence = s->watermark; sequence < s->end; sequence++) {
        if (bit_at(s, sequence)) {
            flip_bit(&wide, sequence);
        }
    }
    ps_arena_free(l->arena, s->bits, s->window_bits / 8, 8);
    *s = wide;
    return true;
}

static void drop_least_used(struct ps_learnt *l)
{
    uint32_t least = PS_STREAMS_MAX;
    for (uint32_t i = ps_learnt_next_stream(l, 0); i < PS_STREAMS_MAX; i = ps_learnt_next_stream(l, i + 1)) {
        if (i != l->reserved && (least == PS_STREAMS_MAX || l->streams[i]->used < l->streams[least]->used)) {
            least = i;
        }
    }
    assert(least != PS_STREAMS_MAX); /* more than the reserved one are kept */
    free_stream(l, least);
    l->dropped++;
}

static struct stream *new_stream(struct ps_learnt *l, uint32_t number)
{
    if (l->count >= PS_STREAMS_KEPT) {
        drop_least_used(l);
    }
    struct stream *s = ps_arena_alloc(l->arena, sizeof(*s), 8);
    if (s == NULL) {
        return NULL;
    }
    s->window_bits = WINDOW_BITS_MIN;
    s->bits = ps_arena_alloc(l->arena, s->window_bits / 8, 8);
    if (s->bits == NULL) {
        ps_arena_free(l->arena, s, sizeof(*s), 8);
        return NULL;
    }
    s->used = ++l->uses;
    l->streams[number] = s;
    l->count++;
    return s;
}

/* The stream, made when missing, with a window of at least `ahead` + 1 from its watermark. */
static enum mr_status make_room(struct ps_learnt *l, uint32_t number, uint64_t ahead)
{
    if (ahead >= PS_LEARNT_WINDOW) {
        return MR_INVALID_ARGUMENT;
    }
    struct stream *s = l->streams[number];
    if (s == NULL && (s = new_stream(l, number)) == NULL) {
        return MR_OUT_OF_MEMORY;
    }
    uint32_t window_bits = s->window_bits;
    while (window_bits <= ahead) {
        window_bits *= 2;
    }
    return window_bits == s->window_bits || widen(l, s, window_bits) ? MR_OK : MR_OUT_OF_MEMORY;
}

enum mr_status ps_learnt_claim(struct ps_learnt *l, uint32_t stream, const struct mr_plan *plan)
{
    struct stream *s = l->streams[stream];
    if (s == NULL) {
        s = new_stream(l, stream);
    } else if (!mr_plan_same(&s->plan, plan) && !mr_plan_same(&s->plan, &MR_PLAN_UNKNOWN)) {
        return MR_ALREADY_STARTED;
    }
    if (s == NULL) {
        return MR_OUT_OF_MEMORY;
    }
    s->plan = *plan;
    s->used = ++l->uses;
    return MR_OK;
}

const struct mr_plan *ps_learnt_plan(const struct ps_learnt *l, uint32_t stream)
{
    return l->streams[stream] != NULL ? &l->streams[stream]->plan : NULL;
}

void ps_learnt_forget(struct ps_learnt *l, uint32_t stream)
{
    free_stream(l, stream);
}

uint64_t ps_learnt_used(const struct ps_learnt *l, uint32_t stream)
{
    return l->streams[stream] != NULL ? l->streams[stream]->used : 0;
}

uint32_t ps_learnt_streams(const struct ps_learnt *l)
{
    return l->count;
}

uint64_t ps_learnt_dropped(const struct ps_learnt *l)
{
    return l->dropped;
}

enum mr_status ps_learnt_reserve(struct ps_learnt *l, uint64_t batch_id)
{
    uint64_t sequence = mr_batch_sequence(batch_id);
    uint64_t watermark = ps_learnt_watermark(l, mr_batch_stream(batch_id));
    l->reserved = mr_batch_stream(batch_id);
    return make_room(l, mr_batch_stream(batch_id), sequence > watermark ? sequence - watermark : 0);
}

void ps_learnt_add(struct ps_learnt *l, uint64_t batch_id)
{
    struct stream *s = l->streams[mr_batch_stream(batch_id)];
    uint64_t sequence = mr_batch_sequence(batch_id);
    assert(s != NULL && (sequence < s->watermark || sequence - s->watermark < s->window_bits));
    s->added++;
    s->used = l->uses;
    if (stream_has(s, sequence)) {
        return;
    }
    flip_bit(s, sequence);
    s->ahead++;
    s->end = sequence >= s->end ? sequence + 1 : s->end;
    while (s->watermark < s->end && bit_at(s, s->watermark)) {
        flip_bit(s, s->watermark++);
        s->ahead--;
    }
}

uint64_t ps_learnt_watermark(const struct ps_learnt *l, uint32_t stream)
{
    return l->streams[stream] != NULL ? l->streams[stream]->watermark : 0;
}

uint64_t ps_learnt_added(const struct ps_learnt *l, uint32_t stream)
{
    return l->streams[stream] != NULL ? l->streams[stream]->added : 0;
}

uint64_t ps_learnt_count(const struct ps_learnt *l, uint32_t stream)
{
    const struct stream *s = l->streams[stream];
    return s != NULL ? s->watermark + s->ahead : 0;
}

uint32_t ps_learnt_bitmap_words(const struct ps_learnt *l, uint32_t stream)
{
    const struct stream *s = l->streams[stream];
    return s != NULL ? (uint32_t)((s->end - s->watermark + 63) / 64) : 0;
}

void ps_learnt_bitmap(const struct ps_learnt *l, uint32_t stream, uint64_t *words)
{
    const struct stream *s = l->streams[stream];
    memset(words, 0, ps_learnt_bitmap_words(l, stream) * sizeof(*words));
    for (uint64_t i = 0; s != NULL && s->watermark + i < s->end; i++) {
        words[i / 64] |= (uint64_t)bit_at(s, s->watermark + i) << (i % 64);
    }
}

enum mr_status ps_learnt_load(struct ps_learnt *l, uint32_t stream, uint64_t watermark, const uint64_t *words,
                              uint32_t word_count, uint64_t added)
{
    free_stream(l, stream);
    while (word_count > 0 && words[word_count - 1] == 0) {
        word_count--;
    }
    enum mr_status status = make_room(l, stream, word_count > 0 ? (uint64_t)word_count * 64 - 1 : 0);
    if (status != MR_OK) {
        return status;
    }
    l->streams[stream]->plan = MR_PLAN_UNKNOWN;
    uint64_t first_id = (uint64_t)stream << MR_BATCH_SEQUENCE_BITS;
    l->streams[stream]->watermark = l->streams[stream]->end = watermark;
    for (uint64_t i = 0; i < (uint64_t)word_count * 64; i++) {
        if ((words[i / 64] >> (i % 64) & 1) != 0) {
            ps_learnt_add(l, first_id | (watermark + i));
        }
    }
    l->streams[stream]->added = added;
    return MR_OK;
}

void ps_learnt_load_plan(struct ps_learnt *l, uint32_t stream, const struct mr_plan *plan, uint64_t used)
{
    struct stream *s = l->streams[stream];
    if (s != NULL) {
        s->plan = *plan;
        s->used = used;
        l->uses = used > l->uses ? used : l->uses;
    }
}

uint32_t ps_learnt_next_stream(const struct ps_learnt *l, uint32_t stream)
{
    while (stream < PS_STREAMS_MAX && l->streams[stream] == NULL) {
        stream++;
    }
    return stream;
}
