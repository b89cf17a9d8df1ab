#include "ps/exactly_once/pushes.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>
#include "dataplane/wire/format/mr_feature.h"

#define SWEEP_PLACES 64u /* that one push looks at for a network which has its share: some microseconds */

struct running {
    const struct ps_push_stream *stream;
    uint64_t number;
};

struct ps_pushes {
    struct ps_arena *arena;
    uint64_t pushes;
    uint64_t forgotten, lost;
    struct ps_push_guard guard; /* now_s NULL: there is none */
    uint32_t running_count;
    struct running running[PS_PUSH_RUNNING_MAX];
    uint32_t sweep_next; /* the place at which pushes_sweep() goes on */
    struct ps_shares shares;
    uint16_t tags[PS_PUSH_STREAMS_MAX]; /* some bits of the push stream's hash, or 0: the place is free */
    struct ps_push_stream *places[PS_PUSH_STREAMS_MAX]; /* NULL: free */
};

struct ps_pushes *ps_pushes_create(struct ps_arena *arena, const struct ps_push_guard *guard)
{
    struct ps_pushes *p = ps_arena_alloc(arena, sizeof(*p), 64);
    if (p != NULL)
        p->arena = arena;
    if (p != NULL && guard != NULL)
        p->guard = *guard;
    if (p != NULL)
        p->shares.secret = p->guard.secret;
    return p;
}

/* ---- hashes ---- */

/* A client may choose its uuid and its push streams, but does not know the secret. */
static uint64_t hash_of(const struct ps_pushes *p, const uint8_t *uuid, uint32_t stream_id)
{
    uint8_t bytes[MR_UUID_BYTES + sizeof(stream_id)];
    memcpy(bytes, uuid, MR_UUID_BYTES);
    memcpy(bytes + MR_UUID_BYTES, &stream_id, sizeof(stream_id));
    return XXH3_64bits_withSeed(bytes, sizeof(bytes), p->guard.secret);
}

/* The first places of the two sets in which a push stream may be, and its tag there. */
struct stream_sets {
    uint32_t first[2];
    uint16_t tag;
};

static struct stream_sets sets_of(const struct ps_pushes *p, const uint8_t *uuid, uint32_t stream_id)
{
    const uint64_t hash = hash_of(p, uuid, stream_id);
    const uint32_t sets = PS_PUSH_STREAMS_MAX / PS_PUSH_SET_WAYS;
    return (struct stream_sets){
        {(uint32_t)(hash % sets * PS_PUSH_SET_WAYS), (uint32_t)((hash >> 16) % sets * PS_PUSH_SET_WAYS)},
        (uint16_t)(hash >> 48 | 1)};
}

static void free_piece(struct ps_pushes *p, struct ps_push_piece **at)
{
    struct ps_push_piece *piece = *at;
    *at = piece->mark.next;
    ps_arena_free(p->arena, piece, sizeof(*piece), 8);
}

static void free_stream(struct ps_pushes *p, struct ps_push_stream **at)
{
    struct ps_push_stream *stream = *at;
    if (stream == NULL)
        return;
    while (stream->rest.next != NULL)
        free_piece(p, &stream->rest.next);
    ps_shares_remove(&p->shares, stream->share);
    ps_arena_free(p->arena, stream, sizeof(*stream), 8);
    *at = NULL;
    p->tags[at - p->places] = 0;
}

void ps_pushes_clear(struct ps_pushes *p)
{
    for (uint32_t i = 0; i < PS_PUSH_STREAMS_MAX; i++)
        free_stream(p, &p->places[i]);
    p->pushes = 0;
    p->running_count = 0;
}

void ps_pushes_destroy(struct ps_pushes *p)
{
    if (p != NULL) {
        ps_pushes_clear(p);
        ps_arena_free(p->arena, p, sizeof(*p), 64);
    }
}

/* ---- places ---- */

static struct ps_push_stream *pushes_find(const struct ps_pushes *p, const uint8_t *uuid, uint32_t stream_id)
{
    const struct stream_sets sets = sets_of(p, uuid, stream_id);
    for (uint32_t i = 0; i < 2 * PS_PUSH_SET_WAYS; i++) {
        const uint32_t place = sets.first[i / PS_PUSH_SET_WAYS] + i % PS_PUSH_SET_WAYS;
        struct ps_push_stream *at = p->places[place];
        if (p->tags[place] == sets.tag && at->stream_id == stream_id &&
            memcmp(at->uuid, uuid, MR_UUID_BYTES) == 0)
            return at;
    }
    return NULL;
}

static bool is_running(const struct ps_pushes *p, const struct ps_push_stream *stream)
{
    uint32_t i = 0;
    while (i < p->running_count && p->running[i].stream != stream)
        i++;
    return i < p->running_count;
}

static bool may_be_forgotten(const struct ps_pushes *p, const struct ps_push_stream *stream)
{
    const struct ps_push_guard *g = &p->guard;
    return g->now_s == NULL || (g->now_s(g->arg) - stream->used_s >= PS_PUSH_STREAM_KEPT_S &&
                                !g->has_session(g->arg, stream->uuid));
}

/* A client may have pushes on the way in such a push stream. */
static bool was_used_lately(const struct ps_pushes *p, const struct ps_push_stream *stream)
{
    const struct ps_push_guard *g = &p->guard;
    return g->now_s != NULL && g->now_s(g->arg) - stream->used_s < PS_PUSH_STREAM_KEPT_S;
}

static bool is_older(struct ps_push_stream *const *at, struct ps_push_stream *const *than)
{
    return than == NULL || (*at)->used < (*than)->used;
}

/* A place for a push stream of this client: a free one, in the emptier of its sets, else that of the push
 * stream used longest ago, with nothing in flight, of those that may be forgotten, then, with `any`, of
 * all, then of its own client. `any`: the limits of shares do not hold. NULL: there is none. */
static struct ps_push_stream **place_to_take(struct ps_pushes *p, const uint8_t *uuid,
                                             const struct stream_sets *sets, struct ps_share share, bool any)
{
    struct ps_push_stream **idle = NULL, **others = NULL, **own = NULL, **free[2] = {NULL, NULL};
    uint32_t free_count[2] = {0, 0};
    const bool client_has_room = any || ps_shares_of_client(&p->shares, share) < PS_PUSH_STREAMS_PER_CLIENT;
    const bool network_has_room =
        any || ps_shares_of_network(&p->shares, share) < ps_push_guard_share(&p->guard, PS_PUSH_STREAMS_MAX);
    for (uint32_t i = 0; i < 2 * PS_PUSH_SET_WAYS; i++) {
        const uint32_t set = i / PS_PUSH_SET_WAYS;
        struct ps_push_stream **at = &p->places[sets->first[set] + i % PS_PUSH_SET_WAYS];
        if (*at == NULL) {
            free[set] = at;
            free_count[set]++;
            continue;
        }
        if (is_running(p, *at))
            continue;
        if (memcmp((*at)->uuid, uuid, MR_UUID_BYTES) == 0)
            own = is_older(at, own) ? at : own;
        if (client_has_room && (network_has_room || (*at)->share.network == share.network) &&
            is_older(at, idle) && may_be_forgotten(p, *at))
            idle = at;
        if (any && is_older(at, others))
            others = at;
    }
    if (client_has_room && network_has_room && free_count[0] + free_count[1] > 0)
        return free_count[0] >= free_count[1] ? free[0] : free[1];
    return idle != NULL ? idle : others != NULL ? others : own;
}

/* Forgets push streams of the share's network that may be forgotten, in the next places. Returns whether
 * there were any. */
static bool pushes_sweep(struct ps_pushes *p, struct ps_share share)
{
    const uint64_t forgotten = p->forgotten;
    for (uint32_t i = 0; i < SWEEP_PLACES; i++) {
        struct ps_push_stream **at = &p->places[p->sweep_next];
        p->sweep_next = (p->sweep_next + 1) % PS_PUSH_STREAMS_MAX;
        if (*at == NULL || (*at)->share.network != share.network || is_running(p, *at) ||
            !may_be_forgotten(p, *at))
            continue;
        free_stream(p, at);
        p->forgotten++;
    }
    return p->forgotten > forgotten;
}

static enum mr_status find_or_add(struct ps_pushes *p, const struct ps_push_id *id, bool any,
                                  struct ps_push_stream **out)
{
    *out = pushes_find(p, id->uuid, id->stream_id);
    if (*out != NULL)
        return MR_OK;
    const struct stream_sets sets = sets_of(p, id->uuid, id->stream_id);
    const struct ps_share share = ps_shares_find(&p->shares, id->uuid, id->network);
    struct ps_push_stream **place = place_to_take(p, id->uuid, &sets, share, any);
    if (place == NULL &&
        ps_shares_of_network(&p->shares, share) >= ps_push_guard_share(&p->guard, PS_PUSH_STREAMS_MAX) &&
        pushes_sweep(p, share))
        place = place_to_take(p, id->uuid, &sets, share, any);
    if (place == NULL)
        return MR_BUSY;
    if (*place != NULL) {
        p->forgotten++;
        p->lost += !may_be_forgotten(p, *place) && was_used_lately(p, *place);
    }
    free_stream(p, place);
    *out = *place = ps_arena_alloc(p->arena, sizeof(**place), 8);
    if (*out == NULL)
        return MR_OUT_OF_MEMORY;
    p->tags[place - p->places] = sets.tag;
    memcpy((*out)->uuid, id->uuid, MR_UUID_BYTES);
    (*out)->stream_id = id->stream_id;
    (*out)->network = id->network;
    (*out)->share = share;
    ps_shares_add(&p->shares, share);
    return MR_OK;
}

/* A client's network is known, or another, since it pushed last. */
static void note_network(struct ps_pushes *p, struct ps_push_stream *stream, const struct ps_push_id *id)
{
    if (id->network == stream->network || id->network == 0)
        return;
    ps_shares_remove(&p->shares, stream->share);
    stream->share = ps_shares_find(&p->shares, id->uuid, id->network);
    stream->network = id->network;
    ps_shares_add(&p->shares, stream->share);
}

/* ---- pieces ---- */

struct ps_partition_set ps_push_stream_rest(const struct ps_push_stream *stream)
{
    struct ps_partition_set rest = ps_partitions_all();
    for (const struct ps_push_piece *piece = stream->rest.next; piece != NULL; piece = piece->mark.next)
        rest = ps_partitions_without(&rest, &piece->partitions);
    return rest;
}

static bool is_same(const struct ps_push_mark *a, const struct ps_push_mark *b)
{
    return a->is_unknown == b->is_unknown && memcmp(&a->window, &b->window, sizeof(a->window)) == 0;
}

/* Both are recorded as one from now on: the lower floors hold for it. */
static void pushes_join(struct ps_push_mark *to, const struct ps_push_mark *from)
{
    for (uint32_t i = 0; i < PS_FLOOR_COUNT; i++)
        to->floors[i] = from->floors[i] < to->floors[i] ? from->floors[i] : to->floors[i];
}

/* Pieces that have become alike are one piece. */
static void join_alike(struct ps_pushes *p, struct ps_push_stream *stream)
{
    for (struct ps_push_piece **at = &stream->rest.next; *at != NULL;) {
        if (is_same(&(*at)->mark, &stream->rest)) {
            pushes_join(&stream->rest, &(*at)->mark);
            free_piece(p, at);
            continue;
        }
        for (struct ps_push_piece **other = &(*at)->mark.next; *other != NULL;) {
            if (!is_same(&(*at)->mark, &(*other)->mark)) {
                other = &(*other)->mark.next;
                continue;
            }
            pushes_join(&(*at)->mark, &(*other)->mark);
            (*at)->partitions = ps_partitions_or(&(*at)->partitions, &(*other)->partitions);
            free_piece(p, other);
        }
        at = &(*at)->mark.next;
    }
}

/* Replaces what is recorded for some partitions. */
static enum mr_status assign(struct ps_pushes *p, struct ps_push_stream *stream,
                             const struct ps_partition_set *partitions, const struct ps_push_mark *mark)
{
    const struct ps_partition_set rest = ps_push_stream_rest(stream);
    struct ps_push_piece *piece = NULL; /* else it is the rest, of which nothing is left beside it */
    if (!ps_partitions_within(&rest, partitions) &&
        (piece = ps_arena_alloc(p->arena, sizeof(*piece), 8)) == NULL)
        return MR_OUT_OF_MEMORY;
    for (struct ps_push_piece **at = &stream->rest.next; *at != NULL;) {
        (*at)->partitions = ps_partitions_without(&(*at)->partitions, partitions);
        if (ps_partitions_empty(&(*at)->partitions))
            free_piece(p, at);
        else
            at = &(*at)->mark.next;
    }
    struct ps_push_mark *to = piece == NULL ? &stream->rest : &piece->mark;
    struct ps_push_piece *next = stream->rest.next;
    *to = *mark;
    to->next = next;
    if (piece != NULL) {
        piece->partitions = *partitions;
        stream->rest.next = piece;
    }
    join_alike(p, stream);
    return MR_OK;
}

static struct ps_push_mark *next_mark(const struct ps_push_mark *mark)
{
    return mark->next != NULL ? &mark->next->mark : NULL;
}

/* ---- pushes ---- */

static uint64_t highest_given_up(const struct ps_push_stream *stream, uint64_t number)
{
    uint64_t highest = 0;
    for (const struct ps_push_mark *mark = &stream->rest; mark != NULL; mark = next_mark(mark)) {
        uint64_t of_mark = mark->is_unknown ? 0 : ps_push_window_gives_up(&mark->window, number);
        highest = of_mark > highest ? of_mark : highest;
    }
    return highest;
}

/* It is being applied, or its mark would give up one that is. */
static bool has_to_wait(const struct ps_pushes *p, const struct ps_push_stream *stream, uint64_t number)
{
    uint64_t gives_up = highest_given_up(stream, number);
    for (uint32_t i = 0; i < p->running_count; i++) {
        const struct running *r = &p->running[i];
        if (r->stream == stream && (r->number == number || r->number <= gives_up))
            return true;
    }
    return p->running_count == PS_PUSH_RUNNING_MAX;
}

/* Nothing is recorded where it is unknown. */
static bool has_number(const struct ps_push_mark *mark, uint64_t number)
{
    return !mark->is_unknown && ps_push_window_has(&mark->window, number);
}

static uint32_t clock_s(const struct ps_pushes *p)
{
    return p->guard.now_s != NULL ? p->guard.now_s(p->guard.arg) : 0;
}

enum ps_push_state ps_pushes_look_up(struct ps_pushes *p, const struct ps_push_id *id)
{
    struct ps_push_stream *stream;
    enum mr_status status = find_or_add(p, id, false, &stream);
    if (status != MR_OK)
        return status == MR_BUSY ? PS_PUSH_WAITS : PS_PUSH_NO_MEMORY;
    note_network(p, stream, id);
    stream->used = ++p->pushes;
    stream->used_s = clock_s(p);
    uint32_t marks = 0, applied = 0;
    for (const struct ps_push_mark *mark = &stream->rest; mark != NULL; mark = next_mark(mark)) {
        marks++;
        applied += has_number(mark, id->number);
    }
    if (applied == marks)
        return PS_PUSH_APPLIED;
    if (has_to_wait(p, stream, id->number))
        return PS_PUSH_WAITS;
    return applied == 0 ? PS_PUSH_NEW : PS_PUSH_PARTLY;
}

bool ps_pushes_has(const struct ps_pushes *p, const struct ps_push_id *id, uint32_t partition)
{
    const struct ps_push_stream *stream = pushes_find(p, id->uuid, id->stream_id);
    if (stream == NULL)
        return false;
    const struct ps_push_piece *piece = stream->rest.next;
    while (piece != NULL && !ps_partitions_has(&piece->partitions, partition))
        piece = piece->mark.next;
    return has_number(piece != NULL ? &piece->mark : &stream->rest, id->number);
}

struct ps_partition_set ps_pushes_partitions(const struct ps_pushes *p, const struct ps_push_id *id)
{
    struct ps_partition_set partitions = {{0}};
    const struct ps_push_stream *stream = pushes_find(p, id->uuid, id->stream_id);
    if (stream == NULL)
        return partitions;
    if (has_number(&stream->rest, id->number))
        partitions = ps_push_stream_rest(stream);
    for (const struct ps_push_piece *piece = stream->rest.next; piece != NULL; piece = piece->mark.next)
        if (has_number(&piece->mark, id->number))
            partitions = ps_partitions_or(&partitions, &piece->partitions);
    return partitions;
}

bool ps_pushes_has_unknown(const struct ps_pushes *p, const struct ps_push_id *id)
{
    const struct ps_push_stream *stream = pushes_find(p, id->uuid, id->stream_id);
    const struct ps_push_mark *mark = stream != NULL ? &stream->rest : NULL;
    while (mark != NULL && !mark->is_unknown)
        mark = next_mark(mark);
    return mark != NULL;
}

static struct ps_partition_set unknown_of(const struct ps_push_stream *stream)
{
    struct ps_partition_set unknown = {{0}};
    if (stream->rest.is_unknown)
        unknown = ps_push_stream_rest(stream);
    for (const struct ps_push_piece *piece = stream->rest.next; piece != NULL; piece = piece->mark.next)
        if (piece->mark.is_unknown)
            unknown = ps_partitions_or(&unknown, &piece->partitions);
    return unknown;
}

/* Of earlier numbers only those can still come that the client may have in flight. */
enum mr_status ps_pushes_cover(struct ps_pushes *p, const struct ps_push_id *id,
                               const struct ps_partition_set *touched)
{
    struct ps_push_stream *stream = pushes_find(p, id->uuid, id->stream_id);
    if (stream == NULL)
        return MR_OK;
    const struct ps_partition_set unknown = unknown_of(stream), known = ps_partitions_and(&unknown, touched);
    const struct ps_push_mark mark = {.window.floor =
                                          id->number > MR_PUSH_WINDOW ? id->number - MR_PUSH_WINDOW : 0};
    return ps_partitions_empty(&known) ? MR_OK : assign(p, stream, &known, &mark);
}

void ps_pushes_start(struct ps_pushes *p, const struct ps_push_id *id)
{
    struct ps_push_stream *stream = pushes_find(p, id->uuid, id->stream_id);
    assert(stream != NULL);
    if (p->running_count < PS_PUSH_RUNNING_MAX) /* else it was applied before, and is marked */
        p->running[p->running_count++] = (struct running){stream, id->number};
}

static uint64_t pushes_add(struct ps_pushes *p, struct ps_push_stream *stream, uint64_t number)
{
    uint64_t given_up = 0;
    for (struct ps_push_mark *mark = &stream->rest; mark != NULL; mark = next_mark(mark)) {
        uint64_t of_mark = mark->is_unknown ? 0 : ps_push_window_add(&mark->window, number);
        given_up = of_mark > given_up ? of_mark : given_up;
    }
    join_alike(p, stream);
    return given_up;
}

uint64_t ps_pushes_finish(struct ps_pushes *p, const struct ps_push_id *id)
{
    struct ps_push_stream *stream = pushes_find(p, id->uuid, id->stream_id);
    for (uint32_t i = 0; i < p->running_count && stream != NULL; i++) {
        if (p->running[i].stream == stream && p->running[i].number == id->number) {
            p->running[i] = p->running[--p->running_count];
            return pushes_add(p, stream, id->number);
        }
    }
    return 0;
}

bool ps_pushes_skip(struct ps_pushes *p, const struct ps_push_id *id, uint64_t from)
{
    struct ps_push_stream *stream = pushes_find(p, id->uuid, id->stream_id);
    assert(stream != NULL);
    uint64_t in_the_way = highest_given_up(stream, id->number);
    for (uint32_t i = 0; i < p->running_count; i++) {
        const struct running *r = &p->running[i];
        if (r->stream == stream &&
            (r->number <= in_the_way || (r->number >= from && r->number <= id->number)))
            return false;
    }
    for (struct ps_push_mark *mark = &stream->rest; mark != NULL; mark = next_mark(mark))
        if (!mark->is_unknown)
            ps_push_window_add_range(&mark->window, from, id->number);
    join_alike(p, stream);
    return true;
}

/* ---- checkpoints ---- */

/* The lowest of the stream's marks: that floor of each, or of PS_FLOOR_COUNT its window's. */
static uint64_t lowest_floor(const struct ps_pushes *p, const uint8_t *uuid, uint32_t stream_id,
                             enum ps_push_floor which)
{
    const struct ps_push_stream *at = pushes_find(p, uuid, stream_id);
    uint64_t lowest = UINT64_MAX;
    for (const struct ps_push_mark *mark = at != NULL ? &at->rest : NULL; mark != NULL;
         mark = next_mark(mark)) {
        const uint64_t floor = which == PS_FLOOR_COUNT ? mark->window.floor : mark->floors[which];
        lowest = !mark->is_unknown && floor < lowest ? floor : lowest;
    }
    return lowest != UINT64_MAX ? lowest : 0;
}

uint64_t ps_pushes_durable(const struct ps_pushes *p, const uint8_t *uuid, uint32_t stream_id)
{
    return lowest_floor(p, uuid, stream_id, PS_FLOOR_DURABLE);
}

uint64_t ps_pushes_floor(const struct ps_pushes *p, const uint8_t *uuid, uint32_t stream_id)
{
    return lowest_floor(p, uuid, stream_id, PS_FLOOR_COUNT);
}

void ps_pushes_cut(struct ps_pushes *p)
{
    assert(p->running_count == 0);
    for (uint32_t i = 0; i < PS_PUSH_STREAMS_MAX; i++)
        for (struct ps_push_mark *mark = p->places[i] != NULL ? &p->places[i]->rest : NULL; mark != NULL;
             mark = next_mark(mark))
            mark->floors[PS_FLOOR_CUT] = mark->window.floor;
}

void ps_pushes_advance(struct ps_pushes *p, enum ps_push_floor from, enum ps_push_floor to)
{
    for (uint32_t i = 0; i < PS_PUSH_STREAMS_MAX; i++)
        for (struct ps_push_mark *mark = p->places[i] != NULL ? &p->places[i]->rest : NULL; mark != NULL;
             mark = next_mark(mark))
            for (uint32_t floor = from + 1; floor <= to; floor++)
                mark->floors[floor] = mark->floors[from];
}

const struct ps_push_stream *ps_pushes_stream(const struct ps_pushes *p, const uint8_t *uuid,
                                              uint32_t stream_id)
{
    return pushes_find(p, uuid, stream_id);
}

static bool is_nothing(const struct ps_push_mark *mark)
{
    static const struct ps_push_window nothing;
    return memcmp(&mark->window, &nothing, sizeof(nothing)) == 0;
}

const struct ps_push_stream *ps_pushes_at(const struct ps_pushes *p, uint32_t i)
{
    const struct ps_push_stream *stream = p->places[i];
    return stream == NULL || (stream->rest.next == NULL && is_nothing(&stream->rest)) ? NULL : stream;
}

/* There is no place for it but that of one that pushed later. */
static bool has_no_place(struct ps_pushes *p, const struct ps_push_load *piece)
{
    if (pushes_find(p, piece->uuid, piece->stream_id) != NULL)
        return false;
    const struct stream_sets sets = sets_of(p, piece->uuid, piece->stream_id);
    const struct ps_share share = ps_shares_find(&p->shares, piece->uuid, 0);
    struct ps_push_stream **place = place_to_take(p, piece->uuid, &sets, share, true);
    const bool is_taken = place != NULL && *place != NULL;
    const bool is_idle = is_taken && p->guard.now_s != NULL && may_be_forgotten(p, *place);
    return place == NULL || (is_taken && !is_idle && (*place)->used > piece->used);
}

enum mr_status ps_pushes_load(struct ps_pushes *p, const struct ps_push_load *piece,
                              const struct ps_partition_set *partitions)
{
    const struct ps_partition_set all = ps_partitions_all();
    struct ps_push_stream *stream;
    if (has_no_place(p, piece)) {
        p->forgotten++;
        p->lost++;
        return MR_OK;
    }
    const bool is_new = pushes_find(p, piece->uuid, piece->stream_id) == NULL;
    const struct ps_push_id id = {.uuid = piece->uuid, .stream_id = piece->stream_id};
    enum mr_status status = find_or_add(p, &id, true, &stream);
    if (status != MR_OK)
        return status;
    if (is_new)
        stream->rest.is_unknown = true;
    struct ps_push_mark mark = {.window = piece->window};
    for (uint32_t i = 0; i < PS_FLOOR_COUNT; i++)
        mark.floors[i] = piece->is_cut ? (i == PS_FLOOR_CUT ? piece->window.floor : 0) : piece->durable;
    stream->used = piece->used > stream->used ? piece->used : stream->used;
    p->pushes = p->pushes > piece->used ? p->pushes : piece->used;
    stream->used_s = clock_s(p);
    return assign(p, stream, partitions != NULL ? partitions : &all, &mark);
}

/* Of one of which nothing is known any more. */
static bool is_unknown(const struct ps_push_stream *stream)
{
    return stream->rest.is_unknown && stream->rest.next == NULL;
}

enum mr_status ps_pushes_forget(struct ps_pushes *p, const struct ps_partition_set *partitions)
{
    static const struct ps_push_mark unknown = {.is_unknown = true};
    for (uint32_t i = 0; i < PS_PUSH_STREAMS_MAX; i++) {
        if (p->places[i] == NULL)
            continue;
        enum mr_status status = assign(p, p->places[i], partitions, &unknown);
        if (status != MR_OK)
            return status;
        if (is_unknown(p->places[i]) && !is_running(p, p->places[i]))
            free_stream(p, &p->places[i]);
    }
    return MR_OK;
}

void ps_pushes_succeed(struct ps_pushes *p, const struct ps_pushes *older)
{
    p->forgotten = older->forgotten;
    p->lost = older->lost;
}

uint64_t ps_pushes_forgotten(const struct ps_pushes *p)
{
    return p->forgotten;
}

uint64_t ps_pushes_lost(const struct ps_pushes *p)
{
    return p->lost;
}
