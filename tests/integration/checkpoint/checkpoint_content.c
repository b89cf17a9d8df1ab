#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "ps/checkpoint/checkpoint.h"
#include "tests/integration/checkpoint/checkpoint_content.h"
#include "tests/test.h"
#include "tests/unit/ps/reader_each.h"

static void checkpoint_content_add(struct content *c, const struct content_piece *piece)
{
    if ((c->count & (c->count - 1)) == 0) {
        struct content_piece *grown =
            realloc(c->pieces, (c->count == 0 ? 1 : 2 * c->count) * sizeof(*c->pieces));
        assert_non_null(grown);
        c->pieces = grown;
    }
    c->pieces[c->count] = *piece;
    c->pieces[c->count].order = c->count;
    c->count++;
}

static enum mr_status add_record(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct content_piece piece = {.feature = record->feature, .kind = record->kind};
    if (record->kind == PS_RECORD_VARIABLE) {
        piece.key = record->offset;
        piece.hash = XXH3_64bits(bytes, record->bytes);
        checkpoint_content_add(arg, &piece);
    }
    if (record->kind != PS_RECORD_ROWS && record->kind != PS_RECORD_GONE)
        return MR_OK;
    piece.kind = PS_RECORD_ROWS;
    for (uint32_t i = 0; i < record->count; i++) {
        memcpy(&piece.key, bytes + i * sizeof(piece.key), sizeof(piece.key));
        piece.hash =
            record->kind == PS_RECORD_GONE
                ? 0
                : XXH3_64bits(bytes + record->count * sizeof(piece.key) + (size_t)i * record->row_bytes,
                              record->row_bytes) |
                      1;
        checkpoint_content_add(arg, &piece);
    }
    return MR_OK;
}

static int same_place(const struct content_piece *a, const struct content_piece *b)
{
    if (a->feature != b->feature)
        return a->feature < b->feature ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return a->key < b->key ? -1 : a->key > b->key;
}

static int by_place(const void *left, const void *right)
{
    const struct content_piece *a = left, *b = right;
    int place = same_place(a, b);
    return place != 0 ? place : a->order < b->order ? -1 : a->order > b->order;
}

/* Of each place the last; rows that are gone go. */
static void keep_last(struct content *c)
{
    uint64_t kept = 0;
    qsort(c->pieces, c->count, sizeof(*c->pieces), by_place);
    for (uint64_t i = 0; i < c->count; i++) {
        const struct content_piece piece = c->pieces[i];
        if (i + 1 < c->count && same_place(&piece, &c->pieces[i + 1]) == 0)
            continue;
        if (piece.kind != PS_RECORD_ROWS || piece.hash != 0)
            c->pieces[kept++] = piece;
    }
    c->count = kept;
}

void content_read(const char *directory, uint64_t id, struct content *content)
{
    struct ps_reader *reader;
    char text[256];
    memset(content, 0, sizeof(*content));
    if (ps_reader_open(NULL, directory, id, &reader, text) != MR_OK || text[0] != '\0')
        fail_msg("%s", text);
    if (reader_each(reader, add_record, content, text) != MR_OK)
        fail_msg("%s", text);
    ps_reader_close(reader);
    assert_true(content->count > 0);
    keep_last(content);
}

uint64_t content_differences(const struct content *a, const struct content *b)
{
    uint64_t i = 0, j = 0, differences = 0;
    while (i < a->count && j < b->count) {
        int place = same_place(&a->pieces[i], &b->pieces[j]);
        differences += place != 0 || a->pieces[i].hash != b->pieces[j].hash;
        i += place <= 0;
        j += place >= 0;
    }
    return differences + (a->count - i) + (b->count - j);
}

void content_free(struct content *content)
{
    free(content->pieces);
    content->pieces = NULL;
}
