/* Pushes: a column after the other, call by call, so that of an id that comes twice the last row counts.
 * While a call is in flight the rows of the next are put together. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "trainer_client/torchrec/instance.h"
#include "trainer_client/torchrec/report.h"
#include "trainer_client/torchrec/table_name.h"

/* A column of a push. */
struct column {
    struct tde_instance *t;
    const struct tde_job *job;
    const struct tde_push *push;
    uint32_t number;
    char name[MR_NAME_BYTES];
    uint64_t block_bytes;
    uint32_t dim; /* floats of its rows: the number of states, and then these */
    struct tde_table *table;
    float *rows;             /* of a call: */
    uint32_t first, count;   /* ids */
    struct mr_pushed pushed; /* of the call in flight */
    char error[TDE_ERROR_BYTES];
};

static uint32_t columns_of(const struct tde_push *p)
{
    return p->column_count == 0 ? 1 : p->column_count;
}

/* Of an id's first block in the offsets. */
static size_t block_of(const struct column *c, uint32_t id)
{
    return ((size_t)id * columns_of(c->push) + c->number) * c->push->state_count;
}

/* ---- what may be pushed ---- */

static enum mr_status refuse(struct column *c, const char *why)
{
    (void)snprintf(c->error, sizeof(c->error), "%s", why);
    return MR_INVALID_ARGUMENT;
}

static enum mr_status check_states(struct column *c)
{
    const struct tde_push *p = c->push;
    bool seen[TDE_STATES_MAX] = {false};
    if (p->state_count == 0 || p->state_count > TDE_STATES_MAX)
        return refuse(c, "a row has from 1 to 256 states");
    for (uint32_t i = 0; i < p->state_count; i++) {
        if (p->states[i] >= p->state_count || seen[p->states[i]])
            return refuse(c, "states must be pushed all together: 0, 1, ... each once, in any order");
        seen[p->states[i]] = true;
    }
    if (p->offset_count != (uint64_t)p->id_count * columns_of(p) * p->state_count + 1)
        return refuse(c, "the number of offsets is not ids x columns x states + 1");
    return MR_OK;
}

static enum mr_status check_blocks(struct column *c)
{
    const struct tde_push *p = c->push;
    const uint64_t *first = p->offsets + block_of(c, 0);
    c->block_bytes = first[1] < first[0] ? 0 : first[1] - first[0];
    for (uint32_t id = 0; id < p->id_count; id++) {
        const uint64_t *at = p->offsets + block_of(c, id);
        for (uint32_t i = 0; i < p->state_count; i++)
            if (at[i + 1] < at[i] || at[i + 1] - at[i] != c->block_bytes)
                return refuse(c, "its blocks are not all of the same length");
    }
    if (c->block_bytes == 0 || c->block_bytes % sizeof(float) != 0)
        return refuse(c, "its blocks are not of f32");
    uint64_t floats = c->block_bytes / sizeof(float);
    if (floats > MR_DIM_MAX || 1 + floats * p->state_count > MR_DIM_MAX) {
        (void)snprintf(c->error, sizeof(c->error),
                       "%u states of %" PRIu64
                       " floats and 1 beside them are more than the %u that a row has at "
                       "most: shard the table by column, or use an optimizer with less state",
                       p->state_count, floats, MR_DIM_MAX);
        return MR_INVALID_ARGUMENT;
    }
    c->dim = (uint32_t)(1 + floats * p->state_count);
    return MR_OK;
}

/* ---- rows ---- */

/* The rows of the call that begins with id `first`. */
static void gather(struct column *c, uint32_t first)
{
    const struct tde_push *p = c->push;
    c->first = first;
    c->count = tde_rows_of_call(p->id_count - first, c->dim);
    for (uint32_t i = 0; i < c->count; i++) {
        float *row = c->rows + (size_t)i * c->dim;
        const uint64_t *at = p->offsets + block_of(c, first + i);
        row[0] = (float)p->state_count;
        for (uint32_t k = 0; k < p->state_count; k++)
            memcpy((uint8_t *)(row + 1) + p->states[k] * c->block_bytes, (const uint8_t *)p->data + at[k],
                   c->block_bytes);
    }
}

/* ---- calls ---- */

static enum mr_status push_call(struct column *c, struct mr_future **future)
{
    const struct mr_options options = {
        .deadline_ms = tde_left_ms(c->job), .future = future, .pushed = &c->pushed};
    if (options.deadline_ms == 0)
        return tde_time_is_up(c->t, c->error);
    enum mr_status status = tde_table_make(&c->t->tables, c->t->client, c->name, c->dim, &c->t->configuration,
                                           options.deadline_ms, &c->table, c->error, sizeof(c->error));
    if (status != MR_OK)
        return status;
    /* ids are keys by their bits */
    status = mr_push_gradients(c->t->client, &options, c->table->id,
                               (const uint64_t *)(const void *)(c->push->ids + c->first), c->count, c->dim,
                               c->rows);
    return status == MR_OK ? MR_OK : tde_note(c->error, status);
}

static enum mr_status column_wait(struct column *c, struct mr_future *future)
{
    enum mr_status status = mr_future_wait(future, NULL);
    if (status != MR_OK)
        (void)tde_note(c->error, status);
    mr_future_destroy(future);
    if (status == MR_OK && !tde_table_is_current(c->table, c->t->client))
        status = MR_UNKNOWN_TABLE; /* whatever had its number may have got the rows */
    if (status == MR_UNKNOWN_TABLE || status == MR_WRONG_DIM)
        tde_table_forget(c->table);
    return status;
}

/* The call whose rows are there; those of the next are then, or of the same again if it failed. */
static enum mr_status push_and_advance(struct column *c)
{
    const uint32_t first = c->first, next = c->first + c->count;
    struct mr_future *future = NULL;
    enum mr_status status = push_call(c, &future);
    if (status == MR_OK && next < c->push->id_count)
        gather(c, next); /* the library has its own copy of the last */
    else
        c->first = next;
    if (status == MR_OK)
        status = column_wait(c, future);
    if (status == MR_OK) {
        tde_losses_add(&c->t->losses, c->name, &c->pushed, mr_clock_us());
        return MR_OK;
    }
    if (!tde_waits_for_better(c->job, status))
        return status;
    gather(c, first);
    return MR_OK;
}

static enum mr_status run_column(struct column *c)
{
    enum mr_status status = check_states(c);
    if (status == MR_OK)
        status = check_blocks(c);
    if (status != MR_OK)
        return status;
    if (c->push->data == NULL)
        return refuse(c, "the blocks of another column are wrong");
    c->rows = malloc((size_t)tde_rows_of_call(c->push->id_count, c->dim) * c->dim * sizeof(float));
    if (c->rows == NULL)
        return refuse(c, "no memory");
    gather(c, 0);
    while (status == MR_OK && c->first < c->push->id_count)
        status = push_and_advance(c);
    free(c->rows);
    return status;
}

bool tde_push_run(struct tde_instance *t, struct tde_job *job)
{
    const struct tde_push *p = &job->push;
    bool done = true;
    for (uint32_t i = 0; i < columns_of(p) && p->id_count > 0; i++) {
        struct column c = {.t = t, .job = job, .push = p, .number = i};
        tde_table_name(t->configuration.prefix, p->table, p->column_count > 0,
                       p->column_count > 0 ? p->columns[i] : 0, c.name);
        enum mr_status status = run_column(&c);
        if (status != MR_OK)
            tde_fail(t, "push", c.name, c.error[0] != '\0' ? c.error : mr_status_text(status));
        done &= status == MR_OK;
    }
    p->on_pushed(p->context);
    return done;
}
