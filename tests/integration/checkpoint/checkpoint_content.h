/* What a checkpoint on disk says of the model, for comparing two of them bit by bit. For cmocka tests. */
#ifndef TESTS_CHECKPOINT_CONTENT_H
#define TESTS_CHECKPOINT_CONTENT_H

#include <stdint.h>

/* A row with its optimizer's state, or a part of a variable. */
struct content_piece {
    uint32_t feature, kind; /* enum ps_record_kind */
    uint64_t key;           /* of a variable: its part's place */
    uint64_t order;         /* in which it was read: of a key's rows the last counts */
    uint64_t hash;          /* of all its bytes */
};

struct content {
    struct content_piece *pieces; /* by feature, kind and key */
    uint64_t count;
};

/* Checkpoint `id` of a directory, 0: the newest, which must be whole. */
void content_read(const char *directory, uint64_t id, struct content *content);
/* Pieces that only one of them has, or that differ. */
uint64_t content_differences(const struct content *a, const struct content *b);
void content_free(struct content *content);

#endif
