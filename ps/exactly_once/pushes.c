#include "ps/exactly_once/pushes.h"

#include <assert.h>
#include <string.h>
#include "dataplane/wire/format/mr_feature.h"

struct running {
    const struct ps_push_lane *lane;
    uint64_t number;
};

struct ps_pushes {
    struct ps_arena *arena;
    uint64_t pushes;
    uint64_t forgotten;
    uint32_t running_count;
    struct running running[PS_PUSH_RUNNING_MAX];
    struct ps_push_lane *places[PS_PUSH_LANES_MAX]; /* NULL: free */
};

struct ps_pushes *ps_pushes_create(struct ps_arena *arena)
{
    struct ps_pushes *p = ps_arena_alloc(arena, sizeof(*p), 64);
    if (p != NULL)
        p->arena = arena;
    return p;
}

static void free_pieces(struct ps_pushes *p, struct ps_push_lane **first)
{
    while (*first != NULL) {
        struct ps_push_lane *next = (*first)->next;
        ps_arena_free(p->arena, *first, sizeof(**first), 8);
        *first = next;
    }
}

void ps_pushes_clear(struct ps_pushes *p)
{
    for (uint32_t i = 0; i < PS_PUSH_LANES_MAX; i++)
        free_pieces(p, &p->places[i]);
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

/* Uuids are random, but a client may choose its own: mix both halves. */
static uint32_t set_of(const uint8_t *uuid, uint16_t lane)
{
    uint64_t halves[2];
    memcpy(halves, uuid, sizeof(halves));
    uint64_t mixed = (halves[0] ^ (halves[1] >> 29) ^ (halves[1] << 35)) * UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 31) ^ lane) * UINT64_C(0xC2B2AE3D27D4EB4F);
    return (uint32_t)(mixed >> 32) % (PS_PUSH_LANES_MAX / PS_PUSH_SET_WAYS) * PS_PUSH_SET_WAYS;
}

static struct ps_push_lane *find(const struct ps_pushes *p, const uint8_t *uuid, uint16_t lane)
{
    uint32_t set = set_of(uuid, lane);
    for (uint32_t i = set; i < set + PS_PUSH_SET_WAYS; i++) {
        struct ps_push_lane *at = p->places[i];
        if (at != NULL && at->lane == lane && memcmp(at->uuid, uuid, MR_UUID_BYTES) == 0)
            return at;
    }
    return NULL;
}

static bool is_running(const struct ps_pushes *p, const struct ps_push_lane *lane)
{
    uint32_t i = 0;
    while (i < p->running_count && p->running[i].lane != lane)
        i++;
    return i < p->running_count;
}

/* A free place of the set, else the one used longest ago with nothing in flight; NULL when there is none. */
static struct ps_push_lane **place_to_take(struct ps_pushes *p, uint32_t set)
{
    struct ps_push_lane **oldest = NULL;
    for (struct ps_push_lane **at = p->places + set; at < p->places + set + PS_PUSH_SET_WAYS; at++) {
        if (*at == NULL)
            return at;
        if (!is_running(p, *at) && (oldest == NULL || (*at)->used < (*oldest)->used))
            oldest = at;
    }
    return oldest;
}

static struct ps_push_lane *new_piece(struct ps_pushes *p, const uint8_t *uuid, uint16_t lane)
{
    struct ps_push_lane *piece = ps_arena_alloc(p->arena, sizeof(*piece), 8);
    if (piece != NULL) {
        memcpy(piece->uuid, uuid, MR_UUID_BYTES);
        piece->lane = lane;
        piece->partition_end = MR_PARTITION_COUNT;
    }
    return piece;
}

static enum mr_status find_or_add(struct ps_pushes *p, const uint8_t *uuid, uint16_t lane,
                                  struct ps_push_lane **out)
{
    *out = find(p, uuid, lane);
    if (*out != NULL)
        return MR_OK;
    struct ps_push_lane **place = place_to_take(p, set_of(uuid, lane));
    if (place == NULL)
        return MR_BUSY;
    p->forgotten += *place != NULL;
    free_pieces(p, place);
    *out = *place = new_piece(p, uuid, lane);
    return *out != NULL ? MR_OK : MR_OUT_OF_MEMORY;
}

/* ---- pushes ---- */

/* It is being applied, or its mark would give up one that is. */
static bool has_to_wait(const struct ps_pushes *p, const struct ps_push_lane *lane, uint64_t number)
{
    uint64_t gives_up = 0;
    for (const struct ps_push_lane *piece = lane; piece != NULL; piece = piece->next) {
        uint64_t of_piece = ps_push_window_gives_up(&piece->window, number);
        gives_up = of_piece > gives_up ? of_piece : gives_up;
    }
    for (uint32_t i = 0; i < p->running_count; i++) {
        const struct running *r = &p->running[i];
        if (r->lane == lane && (r->number == number || r->number <= gives_up))
            return true;
    }
    return p->running_count == PS_PUSH_RUNNING_MAX;
}

enum ps_push_state ps_pushes_look_up(struct ps_pushes *p, const struct ps_push_id *id)
{
    struct ps_push_lane *lane;
    enum mr_status status = find_or_add(p, id->uuid, id->lane, &lane);
    if (status != MR_OK)
        return status == MR_BUSY ? PS_PUSH_WAITS : PS_PUSH_NO_MEMORY;
    lane->used = ++p->pushes;
    uint32_t pieces = 0, applied = 0;
    for (const struct ps_push_lane *piece = lane; piece != NULL; piece = piece->next) {
        pieces++;
        applied += ps_push_window_has(&piece->window, id->number);
    }
    if (applied == pieces)
        return PS_PUSH_APPLIED;
    if (has_to_wait(p, lane, id->number))
        return PS_PUSH_WAITS;
    return applied == 0 ? PS_PUSH_NEW : PS_PUSH_PARTLY;
}

bool ps_pushes_has(const struct ps_pushes *p, const struct ps_push_id *id, uint32_t partition)
{
    const struct ps_push_lane *piece = find(p, id->uuid, id->lane);
    while (piece != NULL && (partition < piece->partition || partition >= piece->partition_end))
        piece = piece->next;
    return piece != NULL && ps_push_window_has(&piece->window, id->number);
}

void ps_pushes_partitions(const struct ps_pushes *p, const struct ps_push_id *id,
                          uint64_t bits[MR_PARTITION_COUNT / 64])
{
    memset(bits, 0, MR_PARTITION_COUNT / 8);
    for (const struct ps_push_lane *piece = find(p, id->uuid, id->lane); piece != NULL; piece = piece->next) {
        if (!ps_push_window_has(&piece->window, id->number))
            continue;
        for (uint32_t i = piece->partition; i < piece->partition_end; i++)
            bits[i / 64] |= UINT64_C(1) << (i % 64);
    }
}

void ps_pushes_start(struct ps_pushes *p, const struct ps_push_id *id)
{
    struct ps_push_lane *lane = find(p, id->uuid, id->lane);
    assert(lane != NULL);
    if (p->running_count < PS_PUSH_RUNNING_MAX) /* else it was applied before, and is marked */
        p->running[p->running_count++] = (struct running){lane, id->number};
}

static uint64_t mark(struct ps_push_lane *lane, uint64_t number)
{
    uint64_t given_up = 0;
    for (struct ps_push_lane *piece = lane; piece != NULL; piece = piece->next) {
        uint64_t of_piece = ps_push_window_add(&piece->window, number);
        given_up = of_piece > given_up ? of_piece : given_up;
    }
    return given_up;
}

uint64_t ps_pushes_finish(struct ps_pushes *p, const struct ps_push_id *id)
{
    struct ps_push_lane *lane = find(p, id->uuid, id->lane);
    for (uint32_t i = 0; i < p->running_count && lane != NULL; i++) {
        if (p->running[i].lane == lane && p->running[i].number == id->number) {
            p->running[i] = p->running[--p->running_count];
            return mark(lane, id->number);
        }
    }
    return 0;
}

/* ---- checkpoints ---- */

uint64_t ps_pushes_durable(const struct ps_pushes *p, const uint8_t *uuid, uint16_t lane)
{
    const struct ps_push_lane *piece = find(p, uuid, lane);
    uint64_t lowest = piece != NULL ? UINT64_MAX : 0;
    for (; piece != NULL; piece = piece->next) {
        const uint64_t floor = piece->floors[PS_FLOOR_DURABLE];
        lowest = floor < lowest ? floor : lowest;
    }
    return lowest;
}

void ps_pushes_cut(struct ps_pushes *p)
{
    assert(p->running_count == 0);
    for (uint32_t i = 0; i < PS_PUSH_LANES_MAX; i++)
        for (struct ps_push_lane *piece = p->places[i]; piece != NULL; piece = piece->next)
            piece->floors[PS_FLOOR_CUT] = piece->window.floor;
}

void ps_pushes_advance(struct ps_pushes *p, enum ps_push_floor from, enum ps_push_floor to)
{
    for (uint32_t i = 0; i < PS_PUSH_LANES_MAX; i++)
        for (struct ps_push_lane *piece = p->places[i]; piece != NULL; piece = piece->next)
            for (uint32_t floor = from + 1; floor <= to; floor++)
                piece->floors[floor] = piece->floors[from];
}

static bool is_empty(const struct ps_push_lane *piece)
{
    static const struct ps_push_window nothing;
    return memcmp(&piece->window, &nothing, sizeof(nothing)) == 0;
}

const struct ps_push_lane *ps_pushes_at(const struct ps_pushes *p, uint32_t i)
{
    const struct ps_push_lane *lane = p->places[i];
    return lane == NULL || (lane->next == NULL && is_empty(lane)) ? NULL : lane;
}

static enum mr_status add_piece(struct ps_pushes *p, const struct ps_push_lane *piece,
                                struct ps_push_lane **out)
{
    struct ps_push_lane *last = find(p, piece->uuid, piece->lane);
    if (last == NULL)
        return find_or_add(p, piece->uuid, piece->lane, out);
    while (last->next != NULL)
        last = last->next;
    *out = last->next = new_piece(p, piece->uuid, piece->lane);
    return *out != NULL ? MR_OK : MR_OUT_OF_MEMORY;
}

/* There is no place for it but that of one that pushed later. */
static bool has_no_place(struct ps_pushes *p, const struct ps_push_lane *piece)
{
    if (find(p, piece->uuid, piece->lane) != NULL)
        return false;
    struct ps_push_lane **place = place_to_take(p, set_of(piece->uuid, piece->lane));
    return place == NULL || (*place != NULL && (*place)->used > piece->used);
}

enum mr_status ps_pushes_load(struct ps_pushes *p, const struct ps_push_lane *piece)
{
    struct ps_push_lane *to;
    if (has_no_place(p, piece)) {
        p->forgotten++;
        return MR_OK;
    }
    enum mr_status status = add_piece(p, piece, &to);
    if (status == MR_OK) {
        to->partition = piece->partition;
        to->partition_end = piece->partition_end;
        to->window = piece->window;
        to->floors[PS_FLOOR_CUT] = piece->window.floor;
        to->used = piece->used;
        p->pushes = p->pushes > piece->used ? p->pushes : piece->used;
    }
    return status;
}

void ps_pushes_succeed(struct ps_pushes *p, const struct ps_pushes *older)
{
    p->forgotten = older->forgotten;
}

uint64_t ps_pushes_forgotten(const struct ps_pushes *p)
{
    return p->forgotten;
}
