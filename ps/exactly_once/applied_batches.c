#include "ps/exactly_once/applied_batches.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#define WINDOW_BITS_MIN 1024u

/* Bit of sequence number s: s modulo window_bits, so that moving the watermark moves no bits. Bits outside of
 * [watermark, end) are clear. */
struct stream {
    struct mr_plan plan;
    uint64_t used;   /* value of `uses` then */
    uint32_t used_s; /* the same by the guard's clock, or when it was loaded */
    struct ps_share maker;
    uint8_t user[MR_UUID_BYTES];
    uint64_t watermark;
    uint64_t added;
    uint64_t ahead;       /* applied from the watermark on */
    uint64_t end;         /* one after the newest applied; watermark when none is beyond it */
    uint32_t window_bits; /* a power of two */
    uint64_t *bits;
};

struct ps_applied_batches {
    struct ps_arena *arena;
    struct ps_push_guard guard; /* now_s NULL: there is none */
    struct ps_shares shares;    /* of those who made streams */
    uint64_t uses;              /* claims, and streams made */
    uint32_t
        reserved; /* the stream of the last ps_applied_batches_reserve(): a push may be about to add to it */
    uint64_t dropped;
    uint32_t count;
    struct stream *streams[PS_STREAMS_MAX];
};

struct ps_applied_batches *ps_applied_batches_create(struct ps_arena *arena,
                                                     const struct ps_push_guard *guard)
{
    struct ps_applied_batches *a = ps_arena_alloc(arena, sizeof(*a), 64);
    if (a != NULL) {
        a->arena = arena;
        a->reserved = PS_STREAMS_MAX;
    }
    if (a != NULL && guard != NULL)
        a->guard = *guard;
    if (a != NULL)
        a->shares.secret = a->guard.secret;
    return a;
}

static void free_storage(struct ps_applied_batches *a, struct stream *s)
{
    if (s != NULL) {
        ps_arena_free(a->arena, s->bits, s->window_bits / 8, 8);
        ps_arena_free(a->arena, s, sizeof(*s), 8);
    }
}

static void free_stream(struct ps_applied_batches *a, uint32_t number)
{
    if (a->streams[number] == NULL)
        return;
    a->count--;
    ps_shares_remove(&a->shares, a->streams[number]->maker);
    free_storage(a, a->streams[number]);
    a->streams[number] = NULL;
}

void ps_applied_batches_clear(struct ps_applied_batches *a)
{
    for (uint32_t i = 0; i < PS_STREAMS_MAX; i++)
        free_stream(a, i);
}

void ps_applied_batches_destroy(struct ps_applied_batches *a)
{
    if (a != NULL) {
        ps_applied_batches_clear(a);
        ps_arena_free(a->arena, a, sizeof(*a), 64);
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

bool ps_applied_batches_has(const struct ps_applied_batches *a, uint64_t batch_id)
{
    const struct stream *s = a->streams[mr_batch_stream(batch_id)];
    return s != NULL && stream_has(s, mr_batch_sequence(batch_id));
}

static bool widen(struct ps_applied_batches *a, struct stream *s, uint32_t window_bits)
{
    struct stream wide = *s;
    wide.window_bits = window_bits;
    wide.bits = ps_arena_alloc(a->arena, window_bits / 8, 8);
    if (wide.bits == NULL)
        return false;
    for (uint64_t sequence = s->watermark; sequence < s->end; sequence++)
        if (bit_at(s, sequence))
            flip_bit(&wide, sequence);
    ps_arena_free(a->arena, s->bits, s->window_bits / 8, 8);
    *s = wide;
    return true;
}

static uint32_t clock_s(const struct ps_applied_batches *a)
{
    return a->guard.now_s != NULL ? a->guard.now_s(a->guard.arg) : 0;
}

static void note_use(struct ps_applied_batches *a, struct stream *s, const struct ps_stream_user *user)
{
    s->used_s = clock_s(a);
    if (user != NULL)
        memcpy(s->user, user->uuid, MR_UUID_BYTES);
}

/* Of one that was loaded no user is known. */
static bool may_be_dropped(const struct ps_applied_batches *a, const struct stream *s)
{
    const struct ps_push_guard *g = &a->guard;
    return g->now_s == NULL ||
           (g->now_s(g->arg) - s->used_s >= PS_PUSH_STREAM_KEPT_S && !g->has_session(g->arg, s->user));
}

/* Which streams may make room for another. */
enum room_of {
    ROOM_OF_ANY,     /* whoever uses them */
    ROOM_OF_IDLE,    /* those that may be dropped */
    ROOM_OF_NETWORK, /* of these, those that the network made */
    ROOM_OF_CLIENT,  /* those that the client made */
};

static bool may_make_room(const struct ps_applied_batches *a, const struct stream *s, struct ps_share maker,
                          enum room_of whose)
{
    switch (whose) {
    case ROOM_OF_ANY:
        return true;
    case ROOM_OF_IDLE:
        return may_be_dropped(a, s);
    case ROOM_OF_NETWORK:
        return s->maker.network == maker.network && may_be_dropped(a, s);
    case ROOM_OF_CLIENT:
        return s->maker.client == maker.client;
    }
    return false;
}

/* The stream used longest ago of those that may make room for one of this maker; PS_STREAMS_MAX: none. */
static uint32_t least_used(const struct ps_applied_batches *a, struct ps_share maker, enum room_of whose)
{
    uint32_t least = PS_STREAMS_MAX;
    for (uint32_t i = ps_applied_batches_next_stream(a, 0); i < PS_STREAMS_MAX;
         i = ps_applied_batches_next_stream(a, i + 1)) {
        const struct stream *s = a->streams[i];
        const bool is_newer = least != PS_STREAMS_MAX && s->used >= a->streams[least]->used;
        if (i != a->reserved && !is_newer && may_make_room(a, s, maker, whose))
            least = i;
    }
    return least;
}

/* The stream that makes room for one of this maker; PS_STREAMS_MAX: none may. */
static uint32_t stream_to_drop(const struct ps_applied_batches *a, struct ps_share maker)
{
    uint32_t drops = PS_STREAMS_MAX;
    if (ps_shares_of_client(&a->shares, maker) < PS_STREAMS_PER_CLIENT)
        drops = least_used(a, maker,
                           ps_shares_of_network(&a->shares, maker) <
                                   ps_push_guard_share(&a->guard, PS_STREAMS_KEPT)
                               ? ROOM_OF_IDLE
                               : ROOM_OF_NETWORK);
    return drops != PS_STREAMS_MAX || maker.client == PS_SHARE_NONE ? drops
                                                                    : least_used(a, maker, ROOM_OF_CLIENT);
}

/* False: there is none now. is_loaded: whoever makes room. */
static bool stream_room(struct ps_applied_batches *a, struct ps_share maker, bool is_loaded)
{
    const bool has_share =
        ps_shares_of_client(&a->shares, maker) < PS_STREAMS_PER_CLIENT &&
        ps_shares_of_network(&a->shares, maker) < ps_push_guard_share(&a->guard, PS_STREAMS_KEPT);
    if ((has_share || is_loaded) && a->count < PS_STREAMS_KEPT)
        return true;
    const uint32_t drops = is_loaded ? least_used(a, maker, ROOM_OF_ANY) : stream_to_drop(a, maker);
    if (drops == PS_STREAMS_MAX)
        return false;
    free_stream(a, drops);
    a->dropped++;
    return true;
}

/* user NULL: it is loaded, and finds room in any case. */
static enum mr_status new_stream(struct ps_applied_batches *a, uint32_t number,
                                 const struct ps_stream_user *user)
{
    struct ps_share maker = {PS_SHARE_NONE, PS_SHARE_NONE};
    if (user != NULL && a->guard.now_s != NULL)
        maker = ps_shares_find(&a->shares, user->uuid, user->network);
    if (!stream_room(a, maker, user == NULL))
        return MR_BUSY;
    struct stream *s = ps_arena_alloc(a->arena, sizeof(*s), 8);
    if (s == NULL)
        return MR_OUT_OF_MEMORY;
    s->window_bits = WINDOW_BITS_MIN;
    s->bits = ps_arena_alloc(a->arena, s->window_bits / 8, 8);
    if (s->bits == NULL) {
        ps_arena_free(a->arena, s, sizeof(*s), 8);
        return MR_OUT_OF_MEMORY;
    }
    s->used = ++a->uses;
    s->maker = maker;
    ps_shares_add(&a->shares, maker);
    note_use(a, s, user);
    a->streams[number] = s;
    a->count++;
    return MR_OK;
}

/* The stream, made when missing, with a window of at least `ahead` + 1 from its watermark. */
static enum mr_status make_room(struct ps_applied_batches *a, uint32_t number, uint64_t ahead,
                                const struct ps_stream_user *user)
{
    if (ahead >= PS_APPLIED_BATCHES_WINDOW)
        return MR_INVALID_ARGUMENT;
    const enum mr_status status = a->streams[number] == NULL ? new_stream(a, number, user) : MR_OK;
    if (status != MR_OK)
        return status;
    struct stream *s = a->streams[number];
    note_use(a, s, user);
    uint32_t window_bits = s->window_bits;
    while (window_bits <= ahead)
        window_bits *= 2;
    return window_bits == s->window_bits || widen(a, s, window_bits) ? MR_OK : MR_OUT_OF_MEMORY;
}

enum mr_status ps_applied_batches_claim(struct ps_applied_batches *a, uint32_t stream,
                                        const struct mr_plan *plan, const struct ps_stream_user *user)
{
    struct stream *s = a->streams[stream];
    if (s != NULL && !mr_plan_same(&s->plan, plan) && !mr_plan_same(&s->plan, &MR_PLAN_UNKNOWN))
        return MR_ALREADY_STARTED;
    const enum mr_status status = make_room(a, stream, 0, user);
    if (status != MR_OK)
        return status;
    s = a->streams[stream];
    s->plan = *plan;
    s->used = ++a->uses;
    return MR_OK;
}

const struct mr_plan *ps_applied_batches_plan(const struct ps_applied_batches *a, uint32_t stream)
{
    return a->streams[stream] != NULL ? &a->streams[stream]->plan : NULL;
}

void ps_applied_batches_forget(struct ps_applied_batches *a, uint32_t stream)
{
    free_stream(a, stream);
}

uint64_t ps_applied_batches_used(const struct ps_applied_batches *a, uint32_t stream)
{
    return a->streams[stream] != NULL ? a->streams[stream]->used : 0;
}

uint32_t ps_applied_batches_streams(const struct ps_applied_batches *a)
{
    return a->count;
}

uint64_t ps_applied_batches_dropped(const struct ps_applied_batches *a)
{
    return a->dropped;
}

enum mr_status ps_applied_batches_reserve(struct ps_applied_batches *a, uint64_t batch_id,
                                          const struct ps_stream_user *user)
{
    uint64_t sequence = mr_batch_sequence(batch_id);
    uint64_t watermark = ps_applied_batches_watermark(a, mr_batch_stream(batch_id));
    a->reserved = mr_batch_stream(batch_id);
    return make_room(a, mr_batch_stream(batch_id), sequence > watermark ? sequence - watermark : 0, user);
}

void ps_applied_batches_add(struct ps_applied_batches *a, uint64_t batch_id)
{
    struct stream *s = a->streams[mr_batch_stream(batch_id)];
    uint64_t sequence = mr_batch_sequence(batch_id);
    assert(s != NULL && (sequence < s->watermark || sequence - s->watermark < s->window_bits));
    s->added++;
    s->used = a->uses;
    if (stream_has(s, sequence))
        return;
    flip_bit(s, sequence);
    s->ahead++;
    s->end = sequence >= s->end ? sequence + 1 : s->end;
    while (s->watermark < s->end && bit_at(s, s->watermark)) {
        flip_bit(s, s->watermark++);
        s->ahead--;
    }
}

uint64_t ps_applied_batches_watermark(const struct ps_applied_batches *a, uint32_t stream)
{
    return a->streams[stream] != NULL ? a->streams[stream]->watermark : 0;
}

uint64_t ps_applied_batches_added(const struct ps_applied_batches *a, uint32_t stream)
{
    return a->streams[stream] != NULL ? a->streams[stream]->added : 0;
}

uint64_t ps_applied_batches_count(const struct ps_applied_batches *a, uint32_t stream)
{
    const struct stream *s = a->streams[stream];
    return s != NULL ? s->watermark + s->ahead : 0;
}

uint32_t ps_applied_batches_bitmap_words(const struct ps_applied_batches *a, uint32_t stream)
{
    const struct stream *s = a->streams[stream];
    return s != NULL ? (uint32_t)((s->end - s->watermark + 63) / 64) : 0;
}

void ps_applied_batches_bitmap(const struct ps_applied_batches *a, uint32_t stream, uint64_t *words)
{
    const struct stream *s = a->streams[stream];
    memset(words, 0, ps_applied_batches_bitmap_words(a, stream) * sizeof(*words));
    for (uint64_t i = 0; s != NULL && s->watermark + i < s->end; i++)
        words[i / 64] |= (uint64_t)bit_at(s, s->watermark + i) << (i % 64);
}

enum mr_status ps_applied_batches_load(struct ps_applied_batches *a, uint32_t stream, uint64_t watermark,
                                       const uint64_t *words, uint32_t word_count, uint64_t added)
{
    struct stream *older = a->streams[stream];
    a->streams[stream] = NULL;
    a->count -= older != NULL;
    while (word_count > 0 && words[word_count - 1] == 0)
        word_count--;
    enum mr_status status = make_room(a, stream, word_count > 0 ? (uint64_t)word_count * 64 - 1 : 0, NULL);
    if (status != MR_OK) {
        free_stream(a, stream);
        a->streams[stream] = older;
        a->count += older != NULL;
        return status;
    }
    free_storage(a, older);
    a->streams[stream]->plan = MR_PLAN_UNKNOWN;
    uint64_t first_id = (uint64_t)stream << MR_BATCH_SEQUENCE_BITS;
    a->streams[stream]->watermark = a->streams[stream]->end = watermark;
    for (uint64_t i = 0; i < (uint64_t)word_count * 64; i++)
        if ((words[i / 64] >> (i % 64) & 1) != 0)
            ps_applied_batches_add(a, first_id | (watermark + i));
    a->streams[stream]->added = added;
    return MR_OK;
}

void ps_applied_batches_load_plan(struct ps_applied_batches *a, uint32_t stream, const struct mr_plan *plan,
                                  uint64_t used)
{
    struct stream *s = a->streams[stream];
    if (s != NULL) {
        s->plan = *plan;
        s->used = used;
        a->uses = used > a->uses ? used : a->uses;
    }
}

uint32_t ps_applied_batches_next_stream(const struct ps_applied_batches *a, uint32_t stream)
{
    while (stream < PS_STREAMS_MAX && a->streams[stream] == NULL)
        stream++;
    return stream;
}
