/* The hub's book-keeping: hand-out, leases, the server's record, restarts. */
#include <stdlib.h>
#include <string.h>
#include "trainer_client/hub/plan/plan.h"
#include "tests/test.h"

#define LEASE_US 1000u

static struct hub_plan *plan_make(uint64_t batches, uint32_t prefetch, bool read_only)
{
    struct hub_plan *p = malloc(sizeof(*p));
    assert_non_null(p);
    hub_plan_init(p, batches, prefetch, LEASE_US, read_only);
    return p;
}

static bool record(struct hub_plan *p, uint64_t watermark, uint64_t word)
{
    hub_plan_record_asked(p);
    return hub_plan_record(p, watermark, &word, 1);
}

static uint64_t feed(struct hub_plan *p)
{
    uint64_t sequence = UINT64_MAX;
    assert_true(hub_plan_next_feed(p, &sequence));
    hub_plan_fed(p, sequence, p->generation, true);
    return sequence;
}

static uint64_t hand_out(struct hub_plan *p, uint64_t now_us)
{
    uint64_t sequence = UINT64_MAX;
    assert_true(hub_plan_hand_out(p, now_us, &sequence));
    return sequence;
}

TEST(nothing_is_fed_before_the_first_record)
{
    struct hub_plan *p = plan_make(10, 4, false);
    uint64_t sequence;
    assert_false(hub_plan_next_feed(p, &sequence));
    assert_false(hub_plan_at_end(p));
    assert_false(record(p, 0, 0));
    assert_int_equal(feed(p), 0);
    free(p);
}

TEST(feeds_run_ahead_by_prefetch)
{
    struct hub_plan *p = plan_make(10, 3, false);
    uint64_t sequence;
    record(p, 0, 0);
    for (uint64_t i = 0; i < 3; i++) {
        assert_true(hub_plan_next_feed(p, &sequence));
        assert_int_equal(sequence, i);
    }
    assert_false(hub_plan_next_feed(p, &sequence));
    assert_false(hub_plan_hand_out(p, 0, &sequence)); /* not before its feed is acknowledged */
    hub_plan_fed(p, 1, p->generation, true);
    assert_int_equal(hand_out(p, 0), 1);
    assert_true(hub_plan_next_feed(p, &sequence));
    assert_int_equal(sequence, 3);
    free(p);
}

TEST(a_plan_is_idle_when_no_batch_is_on_its_way)
{
    struct hub_plan *p = plan_make(10, 1, false);
    uint64_t sequence;
    record(p, 0, 0);
    assert_true(hub_plan_is_idle(p));
    for (int turn = 0; turn < 2; turn++) { /* it ends by the lease, and by the record */
        assert_true(hub_plan_next_feed(p, &sequence));
        assert_false(hub_plan_is_idle(p));
        hub_plan_fed(p, sequence, p->generation, true);
        assert_false(hub_plan_is_idle(p));
        assert_int_equal(hand_out(p, 0), 0);
        assert_false(hub_plan_is_idle(p));
        if (turn == 0) {
            hub_plan_expire(p, LEASE_US);
        } else {
            hub_plan_done(p, 0);
            assert_false(hub_plan_is_idle(p));
            record(p, 1, 0);
        }
        assert_true(hub_plan_is_idle(p));
    }
    assert_int_equal(feed(p), 1);
    assert_int_equal(hand_out(p, 0), 1);
    record(p, 0, 0); /* the server went back */
    assert_true(hub_plan_is_idle(p));
    free(p);
}

TEST(what_the_hub_pushes_waits_for_the_record)
{
    struct hub_plan *p = plan_make(3, 1, false);
    uint64_t sequence;
    record(p, 0, 0);
    for (uint64_t i = 0; i < 3; i++) { /* it takes no place among those fed ahead, and is not fed again */
        assert_true(hub_plan_next_feed(p, &sequence));
        assert_int_equal(sequence, i);
        hub_plan_pushed(p, i, p->generation);
        assert_int_equal(hub_plan_state(p, i), HUB_BATCH_CLAIMED);
    }
    assert_false(hub_plan_next_feed(p, &sequence));
    assert_false(record(p, 1, 0x2)); /* 0 and 2; batch 1 was lost */
    assert_true(hub_plan_next_feed(p, &sequence));
    assert_int_equal(sequence, 1);
    hub_plan_server_restarted(p);
    hub_plan_pushed(p, 1, p->generation - 1); /* void */
    assert_int_equal(hub_plan_state(p, 1), HUB_BATCH_EMPTY);
    record(p, 3, 0);
    assert_true(hub_plan_at_end(p));
    assert_int_equal(p->fed, 0);
    free(p);
}

TEST(a_failed_feed_is_tried_again)
{
    struct hub_plan *p = plan_make(10, 1, false);
    uint64_t sequence;
    record(p, 0, 0);
    assert_true(hub_plan_next_feed(p, &sequence));
    hub_plan_fed(p, sequence, p->generation, false);
    assert_int_equal(p->fed, 0);
    assert_int_equal(feed(p), 0);
    assert_int_equal(p->fed, 1);
    free(p);
}

TEST(a_batch_goes_to_one_trainer)
{
    struct hub_plan *p = plan_make(4, 4, false);
    bool seen[4] = {false};
    uint64_t sequence;
    record(p, 0, 0);
    for (int i = 0; i < 4; i++)
        feed(p);
    for (int i = 0; i < 4; i++) {
        sequence = hand_out(p, 0);
        assert_false(seen[sequence]);
        seen[sequence] = true;
    }
    assert_false(hub_plan_hand_out(p, 0, &sequence));
    free(p);
}

TEST(the_end_is_when_all_is_applied)
{
    struct hub_plan *p = plan_make(3, 3, false);
    record(p, 0, 0);
    for (int i = 0; i < 3; i++) {
        feed(p);
        hub_plan_done(p, hand_out(p, 0));
    }
    assert_false(hub_plan_at_end(p)); /* the trainers' word is not enough */
    record(p, 1, 2);                  /* 0 and 2 */
    assert_false(hub_plan_at_end(p));
    assert_int_equal(p->applied, 2);
    record(p, 3, 0);
    assert_true(hub_plan_at_end(p));
    assert_int_equal(p->applied, 3);
    free(p);
}

TEST(a_claim_without_a_record_is_handed_out_again)
{
    struct hub_plan *p = plan_make(2, 1, false);
    record(p, 0, 0);
    feed(p);
    hub_plan_record_asked(p);
    hub_plan_done(p, hand_out(p, 0));
    uint64_t nothing = 0;
    hub_plan_record(p, 0, &nothing, 1); /* was asked for before the claim: says nothing about it */
    assert_int_equal(hub_plan_state(p, 0), HUB_BATCH_CLAIMED);
    record(p, 0, 0);
    assert_int_equal(hub_plan_state(p, 0), HUB_BATCH_EMPTY);
    assert_int_equal(feed(p), 0);
    assert_int_equal(hand_out(p, 0), 0);
    assert_int_equal(p->handed_again, 1);
    free(p);
}

TEST(a_lease_ends)
{
    struct hub_plan *p = plan_make(2, 1, false);
    record(p, 0, 0);
    feed(p);
    hand_out(p, 5);
    hub_plan_expire(p, 5 + LEASE_US - 1);
    assert_int_equal(hub_plan_state(p, 0), HUB_BATCH_HANDED);
    hub_plan_expire(p, 5 + LEASE_US);
    assert_int_equal(hub_plan_state(p, 0), HUB_BATCH_EMPTY);
    assert_int_equal(p->expired, 1);
    assert_int_equal(feed(p), 0);
    assert_int_equal(hand_out(p, 2000), 0);
    free(p);
}

TEST(an_applied_batch_is_not_handed_out_again)
{
    struct hub_plan *p = plan_make(3, 1, false);
    record(p, 0, 0);
    feed(p);
    hand_out(p, 0);
    record(p, 1, 0); /* its trainer pushed it, then fell silent */
    hub_plan_expire(p, 10 * LEASE_US);
    assert_int_equal(p->expired, 0);
    assert_int_equal(feed(p), 1);
    free(p);
}

TEST(a_restarted_server_is_fed_again)
{
    struct hub_plan *p = plan_make(8, 4, false);
    uint64_t sequence;
    record(p, 0, 0);
    for (int i = 0; i < 4; i++)
        feed(p);
    hand_out(p, 0);
    assert_true(hub_plan_next_feed(p, &sequence));
    assert_int_equal(sequence, 4);
    uint32_t before = p->generation;
    hub_plan_server_restarted(p);
    assert_false(hub_plan_hand_out(p, 0, &sequence));
    assert_false(hub_plan_next_feed(p, &sequence)); /* not before it has said what it holds */
    assert_false(hub_plan_at_end(p));
    record(p, 1, 0);
    hub_plan_fed(p, 4, before, true); /* an answer from before */
    assert_int_equal(hub_plan_state(p, 4), HUB_BATCH_EMPTY);
    assert_int_equal(feed(p), 1);
    free(p);
}

TEST(a_restored_server_takes_the_plan_back)
{
    struct hub_plan *p = plan_make(3000, 4, false);
    record(p, 2500, 0);
    assert_int_equal(feed(p), 2500);
    assert_true(record(p, 1000, 5)); /* 1000 and 1002 are there, 1001 and all from 1003 on are lost */
    assert_int_equal(p->applied, 1002);
    assert_int_equal(feed(p), 1001);
    assert_int_equal(feed(p), 1003);
    assert_int_equal(feed(p), 1004);
    assert_false(record(p, 1000, 5));
    free(p);
}

TEST(a_hole_in_the_record_is_a_step_back)
{
    struct hub_plan *p = plan_make(10, 4, false);
    record(p, 1, 2); /* 0 and 2 */
    assert_int_equal(hub_plan_state(p, 2), HUB_BATCH_APPLIED);
    assert_true(record(p, 1, 0));
    assert_int_equal(hub_plan_state(p, 2), HUB_BATCH_EMPTY);
    free(p);
}

TEST(a_hub_that_restarts_goes_on_behind_the_record)
{
    struct hub_plan *p = plan_make(100, 2, false);
    assert_false(record(p, 40, 3)); /* 40 and 41 too */
    assert_int_equal(feed(p), 42);
    assert_int_equal(p->applied, 42);
    free(p);
}

TEST(a_record_beyond_the_plan_is_its_end)
{
    struct hub_plan *p = plan_make(5, 2, false);
    uint64_t sequence;
    record(p, 90, UINT64_MAX);
    assert_true(hub_plan_at_end(p));
    assert_int_equal(p->applied, 5);
    assert_false(hub_plan_next_feed(p, &sequence));
    free(p);
}

TEST(the_window_bounds_how_far_ahead)
{
    struct hub_plan *p = plan_make(UINT64_C(1) << 40, HUB_WINDOW, false);
    uint64_t sequence;
    record(p, 0, 0);
    for (uint32_t i = 0; i < HUB_WINDOW; i++) {
        feed(p);
        hand_out(p, 0);
    }
    assert_false(hub_plan_next_feed(p, &sequence));
    record(p, 1, 0);
    assert_int_equal(feed(p), HUB_WINDOW);
    assert_false(hub_plan_next_feed(p, &sequence));
    free(p);
}

TEST(a_record_longer_than_the_window_is_understood)
{
    struct hub_plan *p = plan_make(1u << 20, 2, false);
    uint64_t bitmap[40];
    memset(bitmap, 0xff, sizeof(bitmap)); /* 2560 batches behind a hole at 0 that is filled meanwhile */
    bitmap[0] &= ~UINT64_C(1);
    hub_plan_record_asked(p);
    hub_plan_record(p, 0, bitmap, 40);
    assert_int_equal(p->applied, 2559);
    assert_int_equal(feed(p), 0);
    hub_plan_record_asked(p);
    bitmap[0] |= 1;
    hub_plan_record(p, 0, bitmap, 40);
    assert_int_equal(p->oldest, 2560);
    assert_int_equal(feed(p), 2560);
    free(p);
}

TEST(read_only_batches_are_over_when_the_trainer_says_so)
{
    struct hub_plan *p = plan_make(3, 2, true);
    assert_int_equal(feed(p), 0);
    assert_int_equal(feed(p), 1);
    assert_int_equal(hand_out(p, 0), 0);
    assert_int_equal(hand_out(p, 0), 1);
    hub_plan_done(p, 1);
    hub_plan_done(p, 1);
    assert_int_equal(p->applied, 1);
    hub_plan_done(p, 2); /* never handed out */
    assert_int_equal(p->applied, 1);
    hub_plan_done(p, 0);
    assert_int_equal(feed(p), 2);
    hub_plan_done(p, hand_out(p, 0));
    assert_true(hub_plan_at_end(p));
    free(p);
}

/* One without samples goes to no trainer, and there is no record to say that it was applied. */
TEST(read_only_batches_without_samples_are_over_at_once)
{
    struct hub_plan *p = plan_make(HUB_BATCHES_UNKNOWN, 2, true);
    uint64_t s;
    assert_true(hub_plan_next_feed(p, &s));
    hub_plan_pushed(p, s, p->generation);
    assert_int_equal(p->oldest, 1);
    assert_int_equal(p->applied, 1);
    assert_true(hub_plan_is_idle(p));
    hub_plan_end(p, 1);
    assert_true(hub_plan_at_end(p));
    free(p);
}

TEST(read_only_batches_survive_a_restart)
{
    struct hub_plan *p = plan_make(2, 2, true);
    feed(p);
    feed(p);
    hub_plan_done(p, hand_out(p, 0));
    hand_out(p, 0);
    hub_plan_server_restarted(p);
    assert_int_equal(hub_plan_state(p, 0), HUB_BATCH_APPLIED);
    assert_int_equal(feed(p), 1);
    free(p);
}

TEST(a_late_word_about_a_batch_taken_back_does_no_harm)
{
    struct hub_plan *p = plan_make(4, 4, false);
    record(p, 0, 0);
    feed(p);
    hand_out(p, 0);
    hub_plan_expire(p, LEASE_US);
    hub_plan_done(p, 0);
    hub_plan_done(p, 3);
    hub_plan_done(p, 4);
    hub_plan_done(p, UINT64_MAX);
    assert_int_equal(hub_plan_state(p, 0), HUB_BATCH_EMPTY);
    assert_int_equal(p->claimed, 0);
    free(p);
}

TEST(an_empty_plan_is_at_its_end)
{
    struct hub_plan *p = plan_make(0, 1, true);
    uint64_t sequence;
    assert_true(hub_plan_at_end(p));
    assert_false(hub_plan_next_feed(p, &sequence));
    free(p);
}

/* A server that learns, forgets on restarts from a checkpoint, and trainers that push, drop or fall silent,
 * all by a seed. Whatever happens, the plan ends with every batch applied, and never counts more than it
 * may. */
TEST(a_plan_may_learn_its_end_late)
{
    struct hub_plan *p = plan_make(HUB_BATCHES_UNKNOWN, 4, false);
    record(p, 7, 0);
    for (uint64_t n = 7; n < 10; n++)
        assert_int_equal(feed(p), n);
    record(p, 10, 0);
    assert_int_equal(p->applied, 10);
    assert_false(hub_plan_at_end(p));
    hub_plan_end(p, 11);
    assert_false(hub_plan_at_end(p));
    record(p, 11, 0);
    assert_true(hub_plan_at_end(p));
    hub_plan_init(p, HUB_BATCHES_UNKNOWN, 4, LEASE_US, false);
    record(p, 7, 0);
    hub_plan_end(p, 5); /* fewer than were applied at an earlier start */
    assert_true(hub_plan_at_end(p));
    free(p);
}

TEST(every_batch_is_applied_whatever_happens)
{
    enum { BATCHES = 300, PREFETCH = 4, ROUNDS_MAX = 100000 };
    for (uint32_t seed = 1; seed <= 50; seed++) {
        struct hub_plan *p = plan_make(BATCHES, PREFETCH, false);
        uint64_t applied[(BATCHES + 63) / 64] = {0}, saved[(BATCHES + 63) / 64] = {0}, now_us = 0;
        unsigned int random = seed;
        uint32_t round = 0, restarts = 0;
        for (; round < ROUNDS_MAX && !hub_plan_at_end(p); round++) {
            uint64_t sequence;
            uint32_t dice = (uint32_t)rand_r(&random) % 100;
            now_us += 10;
            hub_plan_expire(p, now_us);
            if (dice < 40 && hub_plan_next_feed(p, &sequence)) {
                hub_plan_fed(p, sequence, p->generation, dice != 0);
            } else if (dice < 80 && hub_plan_hand_out(p, now_us, &sequence)) {
                uint32_t fate = (uint32_t)rand_r(&random) % 10;
                if (fate > 1) /* 0: falls silent, 1: drops it */
                    applied[sequence / 64] |= UINT64_C(1) << (sequence % 64);
                if (fate > 0)
                    hub_plan_done(p, sequence);
            } else if (dice < 90) {
                hub_plan_record_asked(p);
                hub_plan_record(p, 0, applied, (BATCHES + 63) / 64);
            } else if (dice < 92) {
                memcpy(saved, applied, sizeof(saved));
            } else if (dice == 92 && restarts < 20) {
                restarts++;
                memcpy(applied, saved, sizeof(saved));
                hub_plan_server_restarted(p);
            }
            assert_true(p->ahead <= PREFETCH);
        }
        assert_true(hub_plan_at_end(p));
        assert_int_equal(p->applied, BATCHES);
        free(p);
    }
}
