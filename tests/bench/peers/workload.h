/* The work that every peer gets: 13312 rows of 16 floats out of 163,840, gradients for them, and what must
 * come back.
 *
 * All values are small multiples of powers of two, so that sums and SGD's steps are exact in any order and
 * every peer has to return the same bits. Pure; no allocation. */
#ifndef PEERS_WORKLOAD_H
#define PEERS_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WORK_KEYS        163840u /* rows of the table: about the demo's */
#define WORK_ROWS        13312u  /* of a call: 512 samples x 26 slots */
#define WORK_DIM         16u
#define WORK_BAGS        512u
#define WORK_OUTSTANDING 64u
#define WORK_SGD_RATE    0.125f
#define WORK_RATE        0.1f /* Adagrad's; its accumulators start at 0 */
#define WORK_EPSILON     1e-8f

/* What a push of gradients does to a row. */
enum work_update {
    WORK_SGD,
    WORK_ADAGRAD,      /* a repeated key's gradients are summed first */
    WORK_ADAGRAD_EACH, /* one step for each gradient, in the order of the keys */
};

struct workload {
    uint64_t keys[WORK_ROWS];
    uint32_t offsets[WORK_BAGS + 1]; /* bags of 26 keys */
    float gradients[WORK_ROWS * WORK_DIM];
    float rows[WORK_ROWS * WORK_DIM]; /* of the keys, other than the table's: what `set` writes */
};

void work_make(struct workload *out);
/* A row of the table, as it is before any push. */
void work_row(uint64_t key, float out[WORK_DIM]);

/* Whether what came back is right; `*at` is the first element that is not. */
bool work_pulled(const struct workload *w, const float *rows, uint32_t *at);
bool work_summed(const struct workload *w, const float *sums, uint32_t *at);
bool work_set(const struct workload *w, const float *rows, uint32_t *at);
/* After one push onto rows that were zero (`from_zero`) or the table's. Bits for SGD, 1e-5 for Adagrad. */
bool work_pushed(const struct workload *w, enum work_update update, bool from_zero, const float *rows,
                 uint32_t *at);
/* FNV-1a over the floats' bits. */
uint64_t work_checksum(const float *values, uint32_t count);

#ifdef __cplusplus
}
#endif

#endif
