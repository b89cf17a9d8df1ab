#include <string.h>
#include <xxhash.h>
#define FORMAT "flights"
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/format/format_check.h"

/* Slots, in the order of docs/data-formats.md. */
enum {
    ORIGIN,
    DESTINATION,
    ROUTE,
    HOUR,
    DAY,
    ORIGIN_HOUR,
    DESTINATION_HOUR,
    ROUTE_HOUR,
    ORIGIN_DAY,
    DESTINATION_DAY,
    HOUR_DAY,
    ORIGIN_HOUR_DAY,
    DESTINATION_HOUR_DAY,
    SLOTS
};

TEST(labels)
{
    assert_int_equal(format->slots, SLOTS);
    assert_int_equal(parse_line("01010001,16,405,MCI,MDW"), HUB_PARSED);
    assert_int_equal((int)sample.label, 1);
    assert_int_equal(sample.key_count, SLOTS);
    assert_int_equal(parse_line("01010001,15,405,MCI,MDW"), HUB_PARSED);
    assert_int_equal((int)sample.label, 0);
    assert_int_equal(parse_line("01010001,-11,405,MCI,MDW"), HUB_PARSED);
    assert_int_equal((int)sample.label, 0);
}

/* Which slots' keys change with one part of the line. */
static uint32_t changed_slots(const char *line)
{
    uint64_t keys[SLOTS];
    uint32_t changed = 0;
    assert_int_equal(parse_line("01010001,14,405,MCI,MDW"), HUB_PARSED);
    memcpy(keys, sample.keys, sizeof(keys));
    assert_int_equal(parse_line(line), HUB_PARSED);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        changed |= (uint32_t)(keys[slot] != sample.keys[slot]) << slot;
    return changed;
}

TEST(keys_follow_their_parts)
{
    assert_int_equal(changed_slots("01010059,99,7,MCI,MDW"), 0); /* minute, delay, distance: in no slot */
    assert_int_equal(changed_slots("01010001,14,405,LAX,MDW"), 1u << ORIGIN | 1u << ROUTE |
                                                                   1u << ORIGIN_HOUR | 1u << ROUTE_HOUR |
                                                                   1u << ORIGIN_DAY | 1u << ORIGIN_HOUR_DAY);
    assert_int_equal(changed_slots("01010001,14,405,MCI,LAX"),
                     1u << DESTINATION | 1u << ROUTE | 1u << DESTINATION_HOUR | 1u << ROUTE_HOUR |
                         1u << DESTINATION_DAY | 1u << DESTINATION_HOUR_DAY);
    assert_int_equal(changed_slots("01010101,14,405,MCI,MDW"),
                     1u << HOUR | 1u << ORIGIN_HOUR | 1u << DESTINATION_HOUR | 1u << ROUTE_HOUR |
                         1u << HOUR_DAY | 1u << ORIGIN_HOUR_DAY | 1u << DESTINATION_HOUR_DAY);
    assert_int_equal(changed_slots("01020001,14,405,MCI,MDW"),
                     1u << DAY | 1u << ORIGIN_DAY | 1u << DESTINATION_DAY | 1u << HOUR_DAY |
                         1u << ORIGIN_HOUR_DAY | 1u << DESTINATION_HOUR_DAY);
}

TEST(parts_do_not_run_together)
{
    uint64_t key;
    assert_int_equal(parse_line("01010001,14,405,ABC,D"), HUB_PARSED);
    key = sample.keys[ROUTE];
    assert_int_equal(parse_line("01010001,14,405,AB,CD"), HUB_PARSED);
    assert_int_not_equal(sample.keys[ROUTE], key);
}

TEST(the_header_is_one_only_at_the_top)
{
    static const char header[] = "date,delay,distance,origin,destination";
    assert_int_equal(parse_bytes(header, sizeof(header) - 1, 1), HUB_NO_SAMPLE);
    assert_int_equal(parse_bytes(header, sizeof(header) - 1, 2), HUB_BROKEN);
    assert_int_equal(parse_line(""), HUB_NO_SAMPLE);
}

TEST(broken_lines)
{
    static const char *const bad[] = {
        "01010001,14,405,MCI",     "01010001,14,405,MCI,MDW,",  "1010001,14,405,MCI,MDW",
        "01010001,,405,MCI,MDW",   "01010001,x,405,MCI,MDW",    "01010001,14,-1,MCI,MDW",
        "01010001,14,405,,MDW",    "01010001,14,405,MCI,",      "01010001,14,405,MCIII,MD",
        "01010001,14,405,mci,MDW", "13010001,14,405,MCI,MDW",   "00010001,14,405,MCI,MDW",
        "01320001,14,405,MCI,MDW", "01012500,14,405,MCI,MDW",   "01010060,14,405,MCI,MDW",
        "0101000x,14,405,MCI,MDW", "01010001,14.5,405,MCI,MDW",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(parse_line(bad[i]), HUB_BROKEN);
}

/* Rows of trained tables are found by them. */
TEST(keys_are_those_of_earlier_versions)
{
    assert_int_equal(parse_line("01010001,14,405,MCI,MDW"), HUB_PARSED);
    assert_int_equal(XXH3_64bits(sample.keys, sample.key_count * sizeof(*sample.keys)),
                     UINT64_C(0x4ca70ce2c46263ff));
}

TEST(garbage_does_no_harm)
{
    static const char *const pieces[] = {"01010001", "02281259", ",", "14", "-5", ",405,", "MCI", "MDW", "A"};
    parse_garbage(pieces, sizeof(pieces) / sizeof(pieces[0]));
}

int main(void)
{
    return tests_run(make_formats_and_find, free_formats);
}
