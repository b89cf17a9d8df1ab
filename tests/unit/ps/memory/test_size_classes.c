#include <stdlib.h>
#include <string.h>
#include "ps/memory/size_classes.h"
#include "table_fixture.h"
#include "tests/test.h"

#define LIMIT ((size_t)64 << 20)

struct fixture {
    struct ps_huge_pages space;
    struct ps_size_classes pieces;
    uint64_t rng;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_true(ps_huge_pages_init(&f->space, LIMIT));
    assert_true(ps_size_classes_init(&f->pieces, &f->space));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(f->space.mapped_bytes, 0); /* whatever was taken, it all goes back */
    ps_size_classes_free(&f->pieces);
    ps_huge_pages_free(&f->space);
    free(f);
    return 0;
}

TEST(test_sizes_are_rounded_by_an_eighth_at_most)
{
    size_t previous = 0;
    for (size_t bytes = 1; bytes <= PS_PIECE_BYTES_MAX; bytes += bytes < 5000 ? 1 : 61) {
        size_t rounded = ps_piece_bytes(bytes);
        assert_true(rounded >= bytes && rounded >= previous && rounded % PS_PIECE_LINE_BYTES == 0);
        assert_true(rounded <= bytes + 63 || (rounded - bytes) * 8 < bytes + 64);
        assert_int_equal(ps_piece_bytes(rounded), rounded);
        previous = rounded;
    }
    assert_int_equal(ps_piece_bytes(PS_PIECE_BYTES_MAX), PS_PIECE_BYTES_MAX);
}

struct piece {
    uint8_t *p;
    size_t bytes;
    uint8_t mark;
};

static void check_and_give(struct fixture *f, struct piece *piece)
{
    assert_int_equal(piece->p[0], piece->mark);
    assert_memory_equal(piece->p, piece->p + 1, piece->bytes - 1);
    ps_size_classes_give(&f->pieces, piece->p, piece->bytes);
}

/* Pieces of all sizes come and go; none overlaps another. */
TEST(test_pieces_come_and_go, set_up, tear_down)
{
    enum { PIECES = 600, STEPS = 60000 };
    static struct piece pieces[PIECES];
    struct fixture *f = *state;
    uint32_t count = 0;
    f->rng = fixture_seed("pieces come and go");
    for (uint32_t i = 0; i < STEPS; i++) {
        if (count < PIECES && (count == 0 || random_below(&f->rng, 8) < 4 + (i / 10000 % 2))) {
            size_t bytes = 1 + random_below(&f->rng, 1u << (6 + random_below(&f->rng, 15)));
            struct piece piece = {.bytes = bytes, .mark = (uint8_t)i};
            piece.p = ps_size_classes_take(&f->pieces, bytes);
            assert_true(f->space.mapped_bytes <= LIMIT);
            if (piece.p == NULL)
                continue;
            assert_int_equal((uintptr_t)piece.p % PS_PIECE_LINE_BYTES, 0);
            memset(piece.p, piece.mark, bytes);
            pieces[count++] = piece;
        } else {
            uint32_t which = random_below(&f->rng, count);
            check_and_give(f, &pieces[which]);
            pieces[which] = pieces[--count];
        }
    }
    while (count > 0)
        check_and_give(f, &pieces[--count]);
}

/* As when a table's partitions grow: one after another goes to the next size, and the huge pages of the
 * old size become free. */
TEST(test_the_units_of_a_size_that_is_left_go_back, set_up, tear_down)
{
    enum { PIECES = 2000, OLD = 8192, NEW = 9216 };
    static void *pieces[PIECES];
    struct fixture *f = *state;
    size_t peak = 0;
    for (uint32_t i = 0; i < PIECES; i++)
        assert_non_null(pieces[i] = ps_size_classes_take(&f->pieces, OLD));
    assert_int_in_range(f->space.mapped_bytes, (size_t)PIECES * OLD,
                        (size_t)PIECES * OLD + PS_HUGE_PAGE_BYTES);
    for (uint32_t i = 0; i < PIECES; i++) {
        void *grown = ps_size_classes_take(&f->pieces, NEW);
        ps_size_classes_give(&f->pieces, pieces[i], OLD);
        pieces[i] = grown;
        peak = f->space.mapped_bytes > peak ? f->space.mapped_bytes : peak;
    }
    assert_true(peak <= (size_t)PIECES * NEW + (size_t)PIECES * NEW / 16 + 2 * PS_HUGE_PAGE_BYTES);
    for (uint32_t i = 0; i < PIECES; i++)
        ps_size_classes_give(&f->pieces, pieces[i], NEW);
}

/* In any other order, pieces of the old size are left all over the huge pages: those huge pages that are
 * cleared go back. */
TEST(test_units_are_cleared_of_their_last_pieces, set_up, tear_down)
{
    enum { PIECES = 2000, OLD = 8192, NEW = 9216 };
    static struct piece pieces[PIECES];
    struct fixture *f = *state;
    struct ps_size_classes *p = &f->pieces;
    f->rng = fixture_seed("clearing");
    for (uint32_t i = 0; i < PIECES; i++) {
        pieces[i] = (struct piece){ps_size_classes_take(p, OLD), OLD, (uint8_t)i};
        memset(pieces[i].p, pieces[i].mark, OLD);
    }
    assert_false(ps_size_classes_clear_begin(p));
    for (uint32_t i = 0; i < PIECES; i++) {
        uint32_t which = i + random_below(&f->rng, PIECES - i);
        struct piece grown = {ps_size_classes_take(p, NEW), NEW, (uint8_t)i}, old = pieces[which];
        memset(grown.p, grown.mark, NEW);
        check_and_give(f, &old);
        pieces[which] = pieces[i];
        pieces[i] = grown;
        if (!ps_size_classes_clear_begin(p))
            continue;
        uint32_t leaving = p->clear_huge_page, moved = 0;
        for (uint32_t j = 0; j < PIECES && moved < 5; j++) {
            if (!ps_piece_is_leaving(p, pieces[j].p))
                continue;
            struct piece moved_to = {ps_size_classes_take(p, pieces[j].bytes), pieces[j].bytes,
                                     pieces[j].mark};
            assert_false(ps_piece_is_leaving(p, moved_to.p));
            memcpy(moved_to.p, pieces[j].p, pieces[j].bytes);
            check_and_give(f, &pieces[j]);
            pieces[j] = moved_to;
            moved++;
        }
        assert_true(moved == 5 ||
                    p->clear_huge_page != leaving); /* with its last piece the huge page has gone */
    }
    assert_true(p->clear_count > 5);
    assert_true(f->space.mapped_bytes <=
                (size_t)PIECES * NEW + (size_t)PIECES * NEW / 16 + 2 * PS_HUGE_PAGE_BYTES);
    for (uint32_t i = 0; i < PIECES; i++)
        check_and_give(f, &pieces[i]);
}

/* Its room is had again when it is given up, and when there is no other. */
TEST(test_a_unit_that_is_not_cleared_is_used_again, set_up, tear_down)
{
    enum { BYTES = 64 << 10, PER_UNIT = PS_HUGE_PAGE_BYTES / BYTES, PIECES = LIMIT / BYTES };
    static void *pieces[PIECES];
    struct fixture *f = *state;
    for (uint32_t i = 0; i < PIECES; i++)
        assert_non_null(pieces[i] = ps_size_classes_take(&f->pieces, BYTES));
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 3 * PER_UNIT; i++) /* of three huge pages, all but one in each */
            if (i % PER_UNIT != 7)
                ps_size_classes_give(&f->pieces, pieces[i], BYTES);
        assert_true(ps_size_classes_clear_begin(&f->pieces));
        assert_true(ps_piece_is_leaving(&f->pieces, pieces[7]));
        if (round == 0)
            ps_size_classes_clear_end(&f->pieces);
        for (uint32_t i = 0; i < 3 * PER_UNIT; i++)
            if (i % PER_UNIT != 7)
                assert_non_null(pieces[i] = ps_size_classes_take(&f->pieces, BYTES));
        assert_null(ps_size_classes_take(&f->pieces, BYTES));
        assert_false(ps_piece_is_leaving(&f->pieces, pieces[7]));
        assert_false(ps_size_classes_clear_begin(&f->pieces));
        f->pieces.clear_from = 0;
    }
    for (uint32_t i = 0; i < PIECES; i++)
        ps_size_classes_give(&f->pieces, pieces[i], BYTES);
}

TEST(test_at_the_limit_pieces_are_refused_until_one_comes_back, set_up, tear_down)
{
    enum { BYTES = 40000, MOST = LIMIT / BYTES + 1 };
    static void *pieces[MOST];
    struct fixture *f = *state;
    uint32_t count = 0;
    while ((pieces[count] = ps_size_classes_take(&f->pieces, BYTES)) != NULL)
        count++;
    assert_true(count * ps_piece_bytes(BYTES) > LIMIT - LIMIT / 8);
    assert_int_equal(f->space.mapped_bytes, LIMIT);
    assert_null(ps_size_classes_take(&f->pieces, BYTES));
    ps_size_classes_give(&f->pieces, pieces[5], BYTES);
    pieces[5] = ps_size_classes_take(&f->pieces, BYTES);
    assert_non_null(pieces[5]);
    while (count > 0)
        ps_size_classes_give(&f->pieces, pieces[--count], BYTES);
}
