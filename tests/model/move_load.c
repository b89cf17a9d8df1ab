/* ps/move/load.c: whoever waits for a load frees it, and closes what it wakes, once it has ended: no core
 * touches either after that, and what each core has written is seen.
 */
#include "model.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CORES 2u

static uint32_t woken; /* as the eventfd's memory in the kernel */

static long model_write(const uint64_t *one)
{
    woken += (uint32_t)*one;
    return sizeof(*one);
}

#undef write
#define write(fd, value, bytes) model_write(value)

#include "ps/move/load.c" // NOLINT(bugprone-suspicious-include)

static struct ps_move_load *loads;
static const uint32_t cores[CORES] = {0, 1};

static void *load_part(void *arg)
{
    const uint32_t core = *(const uint32_t *)arg;
    loads->parts[core].at = core + 1;
    end_part(loads);
    return NULL;
}

static void *wait_for_load(void *arg)
{
    (void)arg;
    MODEL_WAIT_WHILE(atomic_load_explicit(&loads->left, memory_order_relaxed) > 0);
    const bool has_ended = ps_move_load_has_ended(loads);
    assert(has_ended);
    assert(woken == 1);
    for (uint32_t i = 0; i < CORES; i++)
        assert(loads->parts[i].at == i + 1);
    free(loads);
    woken = 0; /* closed */
    return NULL;
}

static void model_run(void)
{
    pthread_t threads[CORES + 1];
    loads = malloc(sizeof(*loads) + CORES * sizeof(loads->parts[0]));
    assert(loads != NULL);
    loads->wakes = 0;
    atomic_init(&loads->left, CORES);
    atomic_init(&loads->has_told, false);
    for (uint32_t i = 0; i < CORES; i++)
        threads[i] = model_start(load_part, (void *)&cores[i]);
    threads[CORES] = model_start(wait_for_load, NULL);
    for (uint32_t i = 0; i <= CORES; i++)
        pthread_join(threads[i], NULL);
}
