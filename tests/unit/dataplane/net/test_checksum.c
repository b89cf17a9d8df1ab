#include <stdlib.h>
#include <string.h>
#include "dataplane/net/checksum.h"
#include "tests/test.h"

/* RFC 1071, section 3: the sum of these bytes is 0xddf2. */
TEST(sums_the_example_of_the_rfc)
{
    static const uint8_t data[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
    uint8_t field[2];
    dp_checksum_store(field, dp_checksum_add(0, data, sizeof(data)), 0);
    assert_int_equal(field[0], 0x22);
    assert_int_equal(field[1], 0x0d);
}

static uint16_t sum_by_the_definition(const uint8_t *data, size_t bytes)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < bytes; i++)
        sum += i % 2 == 0 ? (uint32_t)data[i] << 8 : data[i];
    while (sum >> 16 != 0)
        sum = (sum >> 16) + (sum & 0xffff);
    return (uint16_t)sum;
}

TEST(agrees_with_the_definition_at_every_length_and_alignment)
{
    uint8_t data[300];
    srand(1);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(rand() % 4 == 0 ? 0xff : rand());
    for (size_t start = 0; start < 9; start++) {
        for (size_t bytes = 0; start + bytes <= sizeof(data); bytes++) {
            uint16_t expected = sum_by_the_definition(data + start, bytes);
            uint8_t field[2];
            dp_checksum_store(field, dp_checksum_add(0, data + start, bytes), 0);
            assert_int_equal((uint16_t) ~((unsigned)field[0] << 8 | field[1]), expected);
        }
    }
}

TEST(pieces_add_up_to_the_whole)
{
    uint8_t data[64];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 37 + 11);
    uint16_t whole = dp_checksum_fold(dp_checksum_add(0, data, sizeof(data)));
    for (size_t cut = 0; cut <= sizeof(data); cut += 2) {
        uint64_t sum = dp_checksum_add(0, data, cut);
        assert_int_equal(dp_checksum_fold(dp_checksum_add(sum, data + cut, sizeof(data) - cut)), whole);
    }
}

TEST(a_largest_packet_does_not_overflow)
{
    uint8_t *data = malloc(65536);
    assert_non_null(data);
    memset(data, 0xff, 65536);
    assert_int_equal(dp_checksum_fold(dp_checksum_add(0, data, 65536)), 0xffff);
    free(data);
}

TEST(udp_writes_no_zero)
{
    uint8_t field[2];
    dp_checksum_store(field, 0xffff, 0);
    assert_int_equal(field[0] | field[1], 0);
    dp_checksum_store(field, 0xffff, 1);
    assert_int_equal(field[0] & field[1], 0xff);
}
