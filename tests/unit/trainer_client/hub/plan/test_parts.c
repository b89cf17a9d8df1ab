/* The parts of a plan: each with its own book, and one plan for trainers. */
#include "trainer_client/hub/plan/parts.h"
#include "tests/test.h"

#define LEASE_US 100u

static void parts_begin(struct hub_part *part, uint32_t stream, uint64_t batches)
{
    hub_plan_init(&part->plan, batches, 4, LEASE_US, false);
    part->stream = stream;
    part->has_stream = true;
    hub_plan_record_asked(&part->plan);
    hub_plan_record(&part->plan, 0, NULL, 0);
}

static void feed(struct hub_part *part, uint32_t batches)
{
    uint64_t sequence;
    for (uint32_t i = 0; i < batches; i++) {
        assert_true(hub_plan_next_feed(&part->plan, &sequence));
        hub_plan_fed(&part->plan, sequence, part->plan.generation, true);
    }
}

TEST(batches_come_from_the_parts_in_turn)
{
    struct hub_parts parts = {0};
    uint64_t sequence;
    assert_true(hub_parts_make(&parts, 3));
    for (uint32_t i = 0; i < 3; i++)
        parts_begin(&parts.all[i], 10 + i, HUB_BATCHES_UNKNOWN);
    feed(&parts.all[0], 3);
    feed(&parts.all[2], 1);
    static const uint32_t order[] = {0, 2, 0, 0};
    static const uint64_t sequences[] = {0, 0, 1, 2};
    for (uint32_t i = 0; i < 4; i++) {
        assert_ptr_equal(hub_parts_hand_out(&parts, 0, &sequence), &parts.all[order[i]]);
        assert_int_equal(sequence, sequences[i]);
    }
    assert_null(hub_parts_hand_out(&parts, 0, &sequence));
    struct hub_parts_counts counts = hub_parts_count(&parts);
    assert_true(counts.fed == 4 && counts.handed_out == 4 && counts.ahead == 0 && counts.applied == 0);
    hub_parts_expire(&parts, LEASE_US);
    assert_int_equal(hub_parts_count(&parts).expired, 4);
    feed(&parts.all[2], 1);
    assert_ptr_equal(hub_parts_hand_out(&parts, LEASE_US, &sequence), &parts.all[2]);
    assert_int_equal(hub_parts_count(&parts).handed_again, 1);
    hub_parts_free(&parts);
}

TEST(parts_that_are_added_begin_empty_beside_the_others)
{
    struct hub_parts parts = {0};
    uint64_t sequence;
    assert_true(hub_parts_make(&parts, 1));
    parts_begin(&parts.all[0], 10, HUB_BATCHES_UNKNOWN);
    feed(&parts.all[0], 3);
    assert_ptr_equal(hub_parts_hand_out(&parts, 0, &sequence), &parts.all[0]);
    assert_true(hub_parts_grow(&parts, 40));
    assert_int_equal(parts.count, 40);
    assert_ptr_equal(hub_parts_find(&parts, 10), &parts.all[0]);
    assert_int_equal(hub_parts_count(&parts).fed, 3);
    for (uint32_t i = 1; i < 40; i++)
        assert_false(parts.all[i].has_stream);
    parts_begin(&parts.all[39], 49, HUB_BATCHES_UNKNOWN);
    feed(&parts.all[39], 1);
    assert_ptr_equal(hub_parts_hand_out(&parts, 0, &sequence), &parts.all[0]);
    assert_int_equal(sequence, 1); /* it goes on where it was */
    assert_ptr_equal(hub_parts_hand_out(&parts, 0, &sequence), &parts.all[39]);
    assert_int_equal(sequence, 0);
    hub_parts_free(&parts);
}

TEST(a_part_is_found_by_the_stream_that_it_has)
{
    struct hub_parts parts = {0};
    assert_true(hub_parts_make(&parts, 2));
    assert_null(hub_parts_find(&parts, 0)); /* the number that both begin with is nobody's */
    parts_begin(&parts.all[1], 7, 5);
    assert_ptr_equal(hub_parts_find(&parts, 7), &parts.all[1]);
    parts.all[1].has_stream = false;
    assert_null(hub_parts_find(&parts, 7));
    hub_parts_free(&parts);
}

TEST(the_plan_ends_with_its_last_part)
{
    struct hub_parts parts = {0};
    assert_true(hub_parts_make(&parts, 2));
    assert_true(hub_parts_at_end(&parts)); /* nothing has begun */
    parts_begin(&parts.all[0], 1, 2);
    parts_begin(&parts.all[1], 2, HUB_BATCHES_UNKNOWN);
    assert_int_equal(hub_parts_batches(&parts), 0);
    hub_plan_end(&parts.all[1].plan, 3);
    assert_int_equal(hub_parts_batches(&parts), 5);
    hub_plan_record_asked(&parts.all[0].plan);
    hub_plan_record(&parts.all[0].plan, 2, NULL, 0);
    assert_false(hub_parts_at_end(&parts));
    hub_plan_record_asked(&parts.all[1].plan);
    hub_plan_record(&parts.all[1].plan, 3, NULL, 0);
    assert_true(hub_parts_at_end(&parts));
    assert_int_equal(hub_parts_count(&parts).applied, 5);
    hub_parts_server_restarted(&parts); /* what it has applied is not known now */
    assert_false(hub_parts_at_end(&parts));
    hub_parts_free(&parts);
}
