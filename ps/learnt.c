#include "ps/learnt.h"

#include <assert.h>
#include <string.h>
#include "dataplane/wire/op.h"

#define WINDOW_BITS_MIN 1024u

/* Bit of sequence number s: s modulo window_bits, so that moving the watermark moves no bits. Bits outside of
 * [watermark, end) are clear. */
struct stream {
    uint64_t watermark;
    uint64_t added;
    uint64_t end;         /* one behind the newest learnt; watermark when none is beyond it */
    uint32_t window_bits; /* a power of two */
    uint64_t *bits;
};

struct ps_learnt {
    struct ps_arena *arena;
    struct stream *streams[PS_STREAMS_MAX];
};

struct ps_learnt *ps_learnt_create(struct ps_arena *arena)
{
    struct ps_learnt *l = ps_arena_alloc(arena, sizeof(*l), 64);
    if (l != NULL) {
        l->arena = arena;
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

static struct stream *new_stream(struct ps_learnt *l, uint32_t number)
{
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
    l->streams[number] = s;
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

enum mr_status ps_learnt_reserve(struct ps_learnt *l, uint64_t batch_id)
{
    uint64_t sequence = mr_batch_sequence(batch_id);
    uint64_t watermark = ps_learnt_watermark(l, mr_batch_stream(batch_id));
    return make_room(l, mr_batch_stream(batch_id), sequence > watermark ? sequence - watermark : 0);
}

void ps_learnt_add(struct ps_learnt *l, uint64_t batch_id)
{
    struct stream *s = l->streams[mr_batch_stream(batch_id)];
    uint64_t sequence = mr_batch_sequence(batch_id);
    assert(s != NULL && (sequence < s->watermark || sequence - s->watermark < s->window_bits));
    s->added++;
    if (stream_has(s, sequence)) {
        return;
    }
    flip_bit(s, sequence);
    s->end = sequence >= s->end ? sequence + 1 : s->end;
    while (s->watermark < s->end && bit_at(s, s->watermark)) {
        flip_bit(s, s->watermark++);
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

uint32_t ps_learnt_next_stream(const struct ps_learnt *l, uint32_t stream)
{
    while (stream < PS_STREAMS_MAX && l->streams[stream] == NULL) {
        stream++;
    }
    return stream;
}
