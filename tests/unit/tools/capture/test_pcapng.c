#include <string.h>
#include "tools/capture/pcapng.h"
#include "tests/test.h"

static uint32_t u32(const struct pcapng *p, uint32_t at)
{
    uint32_t value;
    assert_true(at + sizeof(value) <= p->count);
    memcpy(&value, p->bytes + at, sizeof(value));
    return value;
}

static uint16_t u16(const struct pcapng *p, uint32_t at)
{
    return (uint16_t)(u32(p, at & ~3u) >> (at & 2 ? 16 : 0));
}

/* Checks the lengths of the block that begins at `at`; returns where it ends. */
static uint32_t expect_block(const struct pcapng *p, uint32_t at, uint32_t type)
{
    const uint32_t bytes = u32(p, at + 4);
    assert_int_equal(u32(p, at), type);
    assert_int_equal(bytes % 4, 0);
    assert_int_equal(u32(p, at + bytes - 4), bytes);
    return at + bytes;
}

/* Where the value of an option is, of a block whose options begin at `at`; 0: it has none of that code. */
static uint32_t option(const struct pcapng *p, uint32_t at, uint16_t code, uint16_t *bytes)
{
    while (u16(p, at) != 0) {
        *bytes = u16(p, at + 2);
        if (u16(p, at) == code)
            return at + 4;
        at += 4 + ((*bytes + 3u) & ~3u);
    }
    return 0;
}

static void expect_text(const struct pcapng *p, uint32_t options, uint16_t code, const char *text)
{
    uint16_t bytes = 0;
    const uint32_t at = option(p, options, code, &bytes);
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(p->bytes + at, text, bytes);
}

static uint64_t u64_option(const struct pcapng *p, uint32_t options, uint16_t code)
{
    uint16_t bytes = 0;
    const uint32_t at = option(p, options, code, &bytes);
    assert_int_equal(bytes, 8);
    return u32(p, at) | (uint64_t)u32(p, at + 4) << 32;
}

TEST(a_section_says_where_it_comes_from)
{
    struct pcapng p = {.bytes = NULL};
    uint16_t bytes;
    pcapng_add_section(
        &p, &(struct pcapng_section){
                .hardware = "node7, x86_64", .system = "Linux", .program = "millrace 1", .comment = ""});
    assert_int_equal(expect_block(&p, 0, 0x0a0d0d0a), p.count);
    assert_int_equal(u32(&p, 8), 0x1a2b3c4d);
    assert_int_equal(u16(&p, 12), 1);
    assert_int_equal(u16(&p, 14), 0);
    assert_int_equal(u32(&p, 16), UINT32_MAX);
    assert_int_equal(u32(&p, 20), UINT32_MAX);
    expect_text(&p, 24, 2, "node7, x86_64");
    expect_text(&p, 24, 3, "Linux");
    expect_text(&p, 24, 4, "millrace 1");
    assert_int_equal(option(&p, 24, 1, &bytes), 0);
    pcapng_free(&p);
}

TEST(an_interface_counts_in_nanoseconds)
{
    struct pcapng p = {.bytes = NULL};
    uint16_t bytes;
    pcapng_add_interface(&p,
                         &(struct pcapng_interface){
                             .link_type = 101, .snap_bytes = 512, .name = "core 3", .filter = "op lookup"});
    assert_int_equal(expect_block(&p, 0, 1), p.count);
    assert_int_equal(u16(&p, 8), 101);
    assert_int_equal(u32(&p, 12), 512);
    expect_text(&p, 16, 2, "core 3");
    assert_int_equal(p.bytes[option(&p, 16, 9, &bytes)], 9);
    assert_int_equal(bytes, 1);
    const uint32_t filter = option(&p, 16, 11, &bytes);
    assert_int_equal(bytes, 10);
    assert_int_equal(p.bytes[filter], 0);
    assert_memory_equal(p.bytes + filter + 1, "op lookup", 9);
    pcapng_free(&p);
}

TEST(a_packet_of_any_length)
{
    static const uint8_t data[] = "abcdefgh";
    for (uint32_t length = 0; length <= 8; length++) {
        struct pcapng p = {.bytes = NULL};
        const struct pcapng_packet packet = {.interface = 2,
                                             .time_ns = UINT64_C(0x1122334455667788),
                                             .bytes = data,
                                             .captured_bytes = length,
                                             .packet_bytes = 1500,
                                             .lost = length % 2 ? 77 : 0,
                                             .is_sent = length > 4};
        uint16_t bytes;
        pcapng_add_packet(&p, &packet);
        assert_int_equal(expect_block(&p, 0, 6), p.count);
        assert_int_equal(p.count, pcapng_packet_bytes(&packet));
        assert_int_equal(u32(&p, 8), 2);
        assert_int_equal(u32(&p, 12), 0x11223344);
        assert_int_equal(u32(&p, 16), 0x55667788);
        assert_int_equal(u32(&p, 20), length);
        assert_int_equal(u32(&p, 24), 1500);
        assert_memory_equal(p.bytes + 28, data, length);
        const uint32_t options = 28 + ((length + 3u) & ~3u);
        assert_int_equal(u32(&p, option(&p, options, 2, &bytes)), packet.is_sent ? 2 : 1);
        if (packet.lost != 0)
            assert_int_equal(u64_option(&p, options, 4), 77);
        else
            assert_int_equal(option(&p, options, 4, &bytes), 0);
        pcapng_free(&p);
    }
}

TEST(statistics_say_what_was_lost)
{
    struct pcapng p = {.bytes = NULL};
    uint16_t bytes;
    pcapng_add_statistics(&p, &(struct pcapng_statistics){.interface = 1,
                                                          .start_ns = UINT64_C(1) << 32,
                                                          .end_ns = UINT64_C(2) << 32 | 5,
                                                          .received = 1000,
                                                          .lost = UINT64_C(1) << 40,
                                                          .wanted = 30,
                                                          .written = 29});
    assert_int_equal(expect_block(&p, 0, 5), p.count);
    assert_int_equal(u32(&p, 8), 1);
    assert_int_equal(u32(&p, 12), 2);
    assert_int_equal(u32(&p, 16), 5);
    const uint32_t start = option(&p, 20, 2, &bytes);
    assert_int_equal(u32(&p, start), 1); /* the upper half comes first */
    assert_int_equal(u32(&p, start + 4), 0);
    assert_int_equal(u64_option(&p, 20, 4), 1000);
    assert_true(u64_option(&p, 20, 5) == UINT64_C(1) << 40);
    assert_int_equal(u64_option(&p, 20, 6), 30);
    assert_int_equal(u64_option(&p, 20, 8), 29);
    pcapng_free(&p);
}

/* More than the room at first. */
TEST(many_blocks_follow_each_other)
{
    static const uint8_t data[1000];
    struct pcapng p = {.bytes = NULL};
    const struct pcapng_packet packet = {.bytes = data, .captured_bytes = sizeof(data)};
    uint32_t count = 0;
    for (uint32_t i = 0; i < 500; i++)
        pcapng_add_packet(&p, &packet);
    assert_false(p.no_memory);
    for (uint32_t at = 0; at < p.count; at = expect_block(&p, at, 6))
        count++;
    assert_int_equal(count, 500);
    pcapng_clear(&p);
    assert_int_equal(p.count, 0);
    pcapng_free(&p);
}
