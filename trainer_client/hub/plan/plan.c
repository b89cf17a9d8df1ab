#include "trainer_client/hub/plan/plan.h"

#include <assert.h>
#include <string.h>

void hub_plan_init(struct hub_plan *p, uint64_t batches, uint32_t prefetch, uint64_t lease_us, bool read_only)
{
    assert(prefetch >= 1 && prefetch <= HUB_WINDOW);
    *p = (struct hub_plan){.batches = batches,
                           .prefetch = prefetch,
                           .lease_us = lease_us,
                           .read_only = read_only,
                           .record_known = read_only};
}

static struct hub_plan_batch *batch_at(struct hub_plan *p, uint64_t sequence)
{
    return &p->window[sequence % HUB_WINDOW];
}

/* One past the last batch that the window holds. */
static uint64_t window_end(const struct hub_plan *p)
{
    return p->batches - p->oldest < HUB_WINDOW ? p->batches : p->oldest + HUB_WINDOW;
}

static bool in_window(const struct hub_plan *p, uint64_t sequence)
{
    return sequence >= p->oldest && sequence < window_end(p);
}

enum hub_batch_state hub_plan_state(const struct hub_plan *p, uint64_t sequence)
{
    if (sequence < p->oldest)
        return HUB_BATCH_APPLIED;
    return in_window(p, sequence) ? p->window[sequence % HUB_WINDOW].state : HUB_BATCH_EMPTY;
}

static void set_state(struct hub_plan *p, struct hub_plan_batch *b, enum hub_batch_state state)
{
    p->ahead -= b->state == HUB_BATCH_FEEDING || b->state == HUB_BATCH_READY;
    p->handed -= b->state == HUB_BATCH_HANDED;
    p->claimed -= b->state == HUB_BATCH_CLAIMED;
    b->state = (uint8_t)state;
    p->ahead += state == HUB_BATCH_FEEDING || state == HUB_BATCH_READY;
    p->handed += state == HUB_BATCH_HANDED;
    p->claimed += state == HUB_BATCH_CLAIMED;
}

/* Entries that the window leaves behind become those of the batches it takes in. */
static void advance(struct hub_plan *p)
{
    while (p->oldest < p->batches && batch_at(p, p->oldest)->state == HUB_BATCH_APPLIED) {
        *batch_at(p, p->oldest) = (struct hub_plan_batch){0};
        p->oldest++;
    }
}

void hub_plan_end(struct hub_plan *p, uint64_t batches)
{
    assert(p->batches == HUB_BATCHES_UNKNOWN);
    p->batches = batches > p->oldest ? batches : p->oldest;
}

bool hub_plan_next_feed(struct hub_plan *p, uint64_t *sequence)
{
    if (!p->record_known || p->ahead >= p->prefetch)
        return false;
    for (uint64_t s = p->oldest; s < window_end(p); s++) {
        if (batch_at(p, s)->state == HUB_BATCH_EMPTY) {
            set_state(p, batch_at(p, s), HUB_BATCH_FEEDING);
            *sequence = s;
            return true;
        }
    }
    return false;
}

/* False: the feed is void: the server lost it, or applied it meanwhile from another trainer's push. */
static bool is_feeding(const struct hub_plan *p, uint64_t sequence, uint32_t generation)
{
    return generation == p->generation && hub_plan_state(p, sequence) == HUB_BATCH_FEEDING;
}

static void plan_claim(struct hub_plan *p, struct hub_plan_batch *b)
{
    set_state(p, b, HUB_BATCH_CLAIMED);
    b->claim_record = p->records_asked;
}

/* Of a plan that pushes nothing: no record will say so. */
static void plan_apply(struct hub_plan *p, struct hub_plan_batch *b)
{
    set_state(p, b, HUB_BATCH_APPLIED);
    p->applied++;
    advance(p);
}

void hub_plan_fed(struct hub_plan *p, uint64_t sequence, uint32_t generation, bool ok)
{
    if (!is_feeding(p, sequence, generation))
        return;
    p->fed += ok;
    set_state(p, batch_at(p, sequence), ok ? HUB_BATCH_READY : HUB_BATCH_EMPTY);
}

void hub_plan_pushed(struct hub_plan *p, uint64_t sequence, uint32_t generation)
{
    if (!is_feeding(p, sequence, generation))
        return;
    if (p->read_only)
        plan_apply(p, batch_at(p, sequence));
    else
        plan_claim(p, batch_at(p, sequence));
}

void hub_plan_record_asked(struct hub_plan *p)
{
    p->records_asked++;
}

struct record {
    uint64_t watermark;
    const uint64_t *bitmap;
    uint32_t words;
};

static bool record_has(const struct record *r, uint64_t sequence)
{
    if (sequence < r->watermark)
        return true;
    uint64_t bit = sequence - r->watermark;
    return bit / 64 < r->words && (r->bitmap[bit / 64] >> (bit % 64) & 1) != 0;
}

static bool fell_behind(struct hub_plan *p, const struct record *r)
{
    for (uint64_t s = r->watermark; s < p->oldest; s++)
        if (!record_has(r, s))
            return true;
    for (uint64_t s = p->oldest; s < window_end(p); s++)
        if (batch_at(p, s)->state == HUB_BATCH_APPLIED && !record_has(r, s))
            return true;
    return false;
}

/* Start again from a record: nothing is fed or handed out. */
static void start_from(struct hub_plan *p, const struct record *r)
{
    memset(p->window, 0, sizeof(p->window));
    p->ahead = p->handed = p->claimed = 0;
    p->generation++;
    p->again_below = p->handed_end;
    p->oldest = r->watermark < p->batches ? r->watermark : p->batches;
}

static void apply_to_batch(struct hub_plan *p, uint64_t sequence, const struct record *r)
{
    struct hub_plan_batch *b = batch_at(p, sequence);
    if (record_has(r, sequence))
        set_state(p, b, HUB_BATCH_APPLIED);
    else if (b->state == HUB_BATCH_CLAIMED && b->claim_record < p->records_asked)
        set_state(p, b, HUB_BATCH_EMPTY);
}

static void count_applied(struct hub_plan *p, const struct record *r)
{
    p->applied = r->watermark < p->batches ? r->watermark : p->batches;
    for (uint32_t word = 0; word < r->words; word++)
        p->applied += (uint64_t)__builtin_popcountll(r->bitmap[word]);
    p->applied = p->applied < p->batches ? p->applied : p->batches;
}

bool hub_plan_record(struct hub_plan *p, uint64_t watermark, const uint64_t *bitmap, uint32_t words)
{
    assert(!p->read_only && p->records_asked > 0);
    const struct record r = {watermark, bitmap, words};
    bool behind = fell_behind(p, &r);
    if (behind || !p->record_known)
        start_from(p, &r);
    p->record_known = true;
    /* Each round of the loop moves the window by at least one batch, or ends it. */
    for (;;) {
        uint64_t end = window_end(p), oldest = p->oldest;
        for (uint64_t s = oldest; s < end; s++)
            apply_to_batch(p, s, &r);
        advance(p);
        if (p->oldest == oldest)
            break;
    }
    count_applied(p, &r);
    return behind;
}

void hub_plan_server_restarted(struct hub_plan *p)
{
    p->generation++;
    for (uint64_t s = p->oldest; s < window_end(p); s++) {
        struct hub_plan_batch *b = batch_at(p, s);
        if (b->state != HUB_BATCH_APPLIED)
            set_state(p, b, HUB_BATCH_EMPTY);
    }
    p->record_known = p->read_only;
}

bool hub_plan_hand_out(struct hub_plan *p, uint64_t now_us, uint64_t *sequence)
{
    for (uint64_t s = p->oldest; p->ahead > 0 && s < window_end(p); s++) {
        struct hub_plan_batch *b = batch_at(p, s);
        if (b->state == HUB_BATCH_READY) {
            set_state(p, b, HUB_BATCH_HANDED);
            b->lease_until_us = now_us + p->lease_us;
            p->handed_out++;
            p->handed_again += b->handed_before || s < p->again_below;
            p->handed_end = s < p->handed_end ? p->handed_end : s + 1;
            b->handed_before = true;
            *sequence = s;
            return true;
        }
    }
    return false;
}

void hub_plan_give_back(struct hub_plan *p, uint64_t sequence)
{
    assert(hub_plan_state(p, sequence) == HUB_BATCH_HANDED);
    set_state(p, batch_at(p, sequence), HUB_BATCH_READY);
    p->handed_out--;
}

void hub_plan_done(struct hub_plan *p, uint64_t sequence)
{
    if (!in_window(p, sequence))
        return;
    struct hub_plan_batch *b = batch_at(p, sequence);
    if (p->read_only && b->state != HUB_BATCH_APPLIED && b->handed_before)
        plan_apply(p, b);
    else if (!p->read_only && b->state == HUB_BATCH_HANDED)
        plan_claim(p, b);
}

void hub_plan_expire(struct hub_plan *p, uint64_t now_us)
{
    const uint64_t window = window_end(p), end = p->handed_end < window ? p->handed_end : window;
    for (uint64_t s = p->oldest; p->handed > 0 && s < end; s++) {
        struct hub_plan_batch *b = batch_at(p, s);
        if (b->state == HUB_BATCH_HANDED && now_us >= b->lease_until_us) {
            set_state(p, b, HUB_BATCH_EMPTY);
            p->expired++;
        }
    }
}

bool hub_plan_is_idle(const struct hub_plan *p)
{
    return p->ahead == 0 && p->handed == 0 && p->claimed == 0;
}

bool hub_plan_at_end(const struct hub_plan *p)
{
    return p->batches == 0 || (p->record_known && p->oldest == p->batches);
}
