#include "tests/bench/peers/workload.h"
#include <math.h>
#include <string.h>

#define BAG_KEYS (WORK_ROWS / WORK_BAGS)

static float value_of(uint64_t key, uint32_t element)
{
    return (float)((key * 31 + element * 7) % 2048) / 1024.0f - 1.0f;
}

static uint64_t next_key(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % WORK_KEYS;
}

void work_row(uint64_t key, float out[WORK_DIM])
{
    for (uint32_t d = 0; d < WORK_DIM; d++)
        out[d] = value_of(key, d);
}

void work_make(struct workload *out)
{
    uint64_t state = 1;
    for (uint32_t i = 0; i < WORK_ROWS; i++) {
        out->keys[i] = next_key(&state);
        for (uint32_t d = 0; d < WORK_DIM; d++) {
            out->gradients[i * WORK_DIM + d] = (float)((int)((i * 5 + d) % 7) - 3) / 256.0f;
            out->rows[i * WORK_DIM + d] = -value_of(out->keys[i] + 1, d);
        }
    }
    for (uint32_t b = 0; b <= WORK_BAGS; b++)
        out->offsets[b] = b * BAG_KEYS;
}

static bool same(float a, float b)
{
    return islessequal(a, b) && isgreaterequal(a, b); /* never for NaN */
}

bool work_pulled(const struct workload *w, const float *rows, uint32_t *at)
{
    for (uint32_t i = 0; i < WORK_ROWS * WORK_DIM; i++) {
        *at = i;
        if (!same(rows[i], value_of(w->keys[i / WORK_DIM], i % WORK_DIM)))
            return false;
    }
    return true;
}

bool work_summed(const struct workload *w, const float *sums, uint32_t *at)
{
    for (uint32_t i = 0; i < WORK_BAGS * WORK_DIM; i++) {
        float sum = 0;
        for (uint32_t k = 0; k < BAG_KEYS; k++)
            sum += value_of(w->keys[i / WORK_DIM * BAG_KEYS + k], i % WORK_DIM);
        *at = i;
        if (!same(sums[i], sum))
            return false;
    }
    return true;
}

bool work_set(const struct workload *w, const float *rows, uint32_t *at)
{
    for (uint32_t i = 0; i < WORK_ROWS * WORK_DIM; i++) {
        *at = i;
        if (!same(rows[i], w->rows[i]))
            return false;
    }
    return true;
}

/* All gradients of a key that some place of the call names, element by element. */
struct steps {
    float sum[WORK_DIM], squares[WORK_DIM], moved[WORK_DIM];
};

static void add_gradient(struct steps *s, const float *gradient)
{
    for (uint32_t d = 0; d < WORK_DIM; d++) {
        s->sum[d] += gradient[d];
        s->squares[d] += gradient[d] * gradient[d];
        s->moved[d] += WORK_RATE * gradient[d] / (sqrtf(s->squares[d]) + WORK_EPSILON);
    }
}

static bool moved_right(const struct steps *s, enum work_update update, uint32_t d, float start, float now)
{
    if (update == WORK_SGD)
        return same(now, start - WORK_SGD_RATE * s->sum[d]);
    float moved = update == WORK_ADAGRAD_EACH
                      ? s->moved[d]
                      : WORK_RATE * s->sum[d] / (sqrtf(s->sum[d] * s->sum[d]) + WORK_EPSILON);
    return fabsf(now - (start - moved)) <= 1e-5f;
}

bool work_pushed(const struct workload *w, enum work_update update, bool from_zero, const float *rows,
                 uint32_t *at)
{
    static struct steps steps[WORK_KEYS];
    memset(steps, 0, sizeof(steps));
    for (uint32_t i = 0; i < WORK_ROWS; i++)
        add_gradient(&steps[w->keys[i]], &w->gradients[i * WORK_DIM]);
    for (uint32_t i = 0; i < WORK_ROWS * WORK_DIM; i++) {
        uint64_t key = w->keys[i / WORK_DIM];
        uint32_t d = i % WORK_DIM;
        *at = i;
        if (!moved_right(&steps[key], update, d, from_zero ? 0.0f : value_of(key, d), rows[i]))
            return false;
    }
    return true;
}

uint64_t work_checksum(const float *values, uint32_t count)
{
    const uint8_t *bytes = (const uint8_t *)values;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint64_t i = 0; i < (uint64_t)count * sizeof(float); i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}
