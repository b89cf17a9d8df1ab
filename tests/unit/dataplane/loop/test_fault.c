#include <string.h>
#include "dataplane/loop/fault.h"
#include "dataplane/net/checksum.h"
#include "tests/test.h"

enum { PACKETS = 200000, FRAME = 200, SPARE = 42 };

static const struct dp_fault_rates rates = {.loss_ppm = 10000,
                                            .duplicate_ppm = 20000,
                                            .reorder_ppm = 30000,
                                            .delay_ppm = 40000,
                                            .corrupt_ppm = 50000,
                                            .reorder_packets = 3,
                                            .delay_us = 500};

TEST(every_fault_comes_at_its_rate)
{
    static const double expected[] = {0.90, 0.01, 0.02, 0.03, 0.04};
    uint32_t counted[5] = {0}, corrupt = 0;
    struct dp_fault fault;
    dp_fault_init(&fault, &rates, 7);
    for (uint32_t i = 0; i < PACKETS; i++) {
        struct dp_fault_choice choice = dp_fault_choose(&fault);
        counted[choice.kind]++;
        corrupt += choice.corrupt;
        assert_false(choice.corrupt && choice.kind == DP_FAULT_LOSE);
    }
    for (int i = 0; i < 5; i++) {
        double share = (double)counted[i] / PACKETS;
        assert_true(share > expected[i] * 0.9 && share < expected[i] * 1.1);
    }
    assert_true(corrupt > PACKETS * 0.045 && corrupt < PACKETS * 0.055);
}

TEST(rates_of_nothing_and_of_all_are_exact)
{
    struct dp_fault_rates none = {0}, all = {.loss_ppm = DP_FAULT_PPM};
    struct dp_fault quiet, deaf;
    dp_fault_init(&quiet, &none, 1);
    dp_fault_init(&deaf, &all, 1);
    for (uint32_t i = 0; i < PACKETS; i++) {
        struct dp_fault_choice choice = dp_fault_choose(&quiet);
        assert_int_equal(choice.kind, DP_FAULT_NONE);
        assert_false(choice.corrupt);
        assert_int_equal(dp_fault_choose(&deaf).kind, DP_FAULT_LOSE);
    }
}

TEST(a_seed_decides_the_same_again_and_another_differently)
{
    struct dp_fault first, again, other;
    uint32_t differences = 0;
    dp_fault_init(&first, &rates, 0);
    dp_fault_init(&again, &rates, 0);
    dp_fault_init(&other, &rates, 1);
    for (uint32_t i = 0; i < 1000; i++) {
        enum dp_fault_kind kind = dp_fault_choose(&first).kind;
        assert_int_equal(dp_fault_choose(&again).kind, kind);
        differences += dp_fault_choose(&other).kind != kind;
    }
    assert_true(differences > 0);
}

TEST(a_reordered_packet_lets_its_number_pass)
{
    struct dp_fault fault;
    int packet;
    dp_fault_init(&fault, &rates, 1);
    assert_true(dp_fault_hold(&fault, DP_FAULT_REORDER, &packet, 100));
    for (uint32_t i = 0; i < rates.reorder_packets; i++) {
        assert_null(dp_fault_release(&fault, 100));
        (void)dp_fault_choose(&fault);
    }
    assert_ptr_equal(dp_fault_release(&fault, 100), &packet);
    assert_null(dp_fault_release(&fault, UINT64_MAX));
}

TEST(a_reordered_packet_with_none_behind_it_goes_on_in_the_end)
{
    struct dp_fault fault;
    int packet;
    dp_fault_init(&fault, &rates, 1);
    assert_true(dp_fault_hold(&fault, DP_FAULT_REORDER, &packet, 100));
    assert_null(dp_fault_release(&fault, 100 + DP_FAULT_REORDER_WAIT_US - 1));
    assert_ptr_equal(dp_fault_release(&fault, 100 + DP_FAULT_REORDER_WAIT_US), &packet);
}

TEST(a_late_packet_waits_for_its_time_however_many_pass)
{
    struct dp_fault fault;
    int late, second;
    dp_fault_init(&fault, &rates, 1);
    assert_true(dp_fault_hold(&fault, DP_FAULT_DELAY, &late, 100));
    assert_true(dp_fault_hold(&fault, DP_FAULT_DELAY, &second, 101));
    for (uint32_t i = 0; i < 100; i++)
        (void)dp_fault_choose(&fault);
    assert_null(dp_fault_release(&fault, 599));
    assert_ptr_equal(dp_fault_release(&fault, 600), &late);
    assert_null(dp_fault_release(&fault, 600));
    assert_ptr_equal(dp_fault_release(&fault, 601), &second);
    assert_int_equal(fault.held_count, 0);
}

TEST(no_more_are_held_than_there_is_room_for)
{
    struct dp_fault fault;
    int packet;
    dp_fault_init(&fault, &rates, 1);
    for (uint32_t i = 0; i < DP_FAULT_HELD_MAX; i++)
        assert_true(dp_fault_hold(&fault, DP_FAULT_DELAY, &packet, 0));
    assert_false(dp_fault_hold(&fault, DP_FAULT_DELAY, &packet, 0));
    for (uint32_t i = 0; i < DP_FAULT_HELD_MAX; i++)
        assert_ptr_equal(dp_fault_release(&fault, UINT64_MAX), &packet);
    assert_null(dp_fault_release(&fault, UINT64_MAX));
}

TEST(damage_spares_the_headers_and_fools_the_checksum_half_the_time)
{
    uint8_t before[FRAME], frame[FRAME];
    uint32_t unseen = 0, rounds = 1000;
    struct dp_fault fault;
    for (uint32_t i = 0; i < FRAME; i++)
        before[i] = (uint8_t)(i * 37 + 5);
    dp_fault_init(&fault, &rates, 3);
    uint16_t sum = dp_checksum_fold(dp_checksum_add(0, before, FRAME));
    for (uint32_t i = 0; i < rounds; i++) {
        memcpy(frame, before, FRAME);
        dp_fault_damage(&fault, frame, FRAME, SPARE);
        assert_memory_equal(frame, before, SPARE);
        unseen +=
            memcmp(frame, before, FRAME) != 0 && dp_checksum_fold(dp_checksum_add(0, frame, FRAME)) == sum;
    }
    assert_true(unseen > rounds * 4 / 10 && unseen < rounds * 6 / 10);
    memcpy(frame, before, FRAME);
    dp_fault_damage(&fault, frame, SPARE, SPARE);
    assert_memory_equal(frame, before, FRAME);
}

TEST(damage_finds_bits_to_flip_where_all_words_are_equal)
{
    static const uint8_t zero[FRAME];
    struct dp_fault fault;
    uint32_t changed = 0;
    dp_fault_init(&fault, &rates, 4);
    for (uint32_t i = 0; i < 100; i++) {
        uint8_t frame[FRAME] = {0};
        dp_fault_damage(&fault, frame, FRAME, SPARE);
        changed += memcmp(frame, zero, FRAME) != 0;
    }
    assert_true(changed > 95); /* one bit may be flipped twice */
}
