/* What a target makes of a source's blocks. */
#include <stdlib.h>
#include <string.h>
#include "ps/checkpoint/checkpoint.h"
#include "ps/move/migration_source.h"
#include "ps/move/load.h"
#include "tests/test.h"

struct piece {
    struct ps_record record;
    uint8_t bytes[8];
};

static struct piece piece_at(uint64_t offset, const char *bytes)
{
    struct piece p = {.record = {.kind = PS_MOVE_RECORD, .offset = offset, .bytes = strlen(bytes)}};
    memcpy(p.bytes, bytes, strlen(bytes));
    return p;
}

/* Pieces come in order; what was collected before stays the caller's. */
TEST(test_a_piece_out_of_order_is_refused)
{
    const struct piece pieces[] = {piece_at(0, "abc"), piece_at(3, "de"), piece_at(9, "f")};
    const struct ps_move_block good = {.bytes = (const uint8_t *)pieces, .byte_count = 2 * sizeof(*pieces)};
    const struct ps_move_block bad = {.bytes = (const uint8_t *)pieces, .byte_count = sizeof(pieces)};
    struct ps_move_collected out = {NULL, 0};
    assert_true(ps_move_collect(&good, &out));
    assert_int_equal(out.byte_count, 5);
    assert_memory_equal(out.bytes, "abcde", 5);
    free(out.bytes);
    out = (struct ps_move_collected){NULL, 0};
    assert_false(ps_move_collect(&bad, &out));
    assert_int_equal(out.byte_count, 5);
    assert_memory_equal(out.bytes, "abcde", 5);
    free(out.bytes);
}
