/* Fetches: a column after the other, a few calls in flight at a time, whose answers are delivered in
 * order. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "trainer_client/torchrec/instance.h"
#include "trainer_client/torchrec/table_name.h"

#define WINDOW 4u

/* A column of a fetch. */
struct column {
    struct tde_instance *t;
    const struct tde_job *job;
    const struct tde_fetch *fetch;
    uint32_t number;
    char name[MR_NAME_BYTES];
    struct tde_table *table;
    uint32_t delivered; /* ids */
    char error[TDE_ERROR_BYTES];
};

static void deliver_absent(const struct tde_fetch *f, uint32_t place)
{
    for (uint32_t state = 0; state < f->state_count; state++)
        f->on_fetched(f->context, place, state, NULL, 0);
}

static uint32_t place_of(const struct column *c, uint32_t id)
{
    uint32_t columns = c->fetch->column_count;
    return columns == 0 ? id : id * columns + c->number;
}

static void deliver_rest_absent(struct column *c)
{
    for (; c->delivered < c->fetch->id_count; c->delivered++)
        deliver_absent(c->fetch, place_of(c, c->delivered));
}

/* False: the row lacks states that the fetch asks for. */
static bool deliver_row(struct column *c, const float *row, uint32_t dim)
{
    const struct tde_fetch *f = c->fetch;
    uint32_t place = place_of(c, c->delivered);
    if (!(row[0] > 0)) { /* nobody has set it */
        deliver_absent(f, place);
        return true;
    }
    uint32_t states = row[0] < (float)dim ? (uint32_t)row[0] : 0;
    if (states == 0 || (dim - 1) % states != 0 || states < f->state_count) {
        (void)snprintf(c->error, sizeof(c->error),
                       "id %" PRId64
                       " has %u state%s, and the fetch asks for %u: it was pushed with another optimizer",
                       f->ids[c->delivered], states, mr_plural(states), f->state_count);
        return false;
    }
    uint32_t floats = (dim - 1) / states;
    for (uint32_t state = 0; state < f->state_count; state++)
        f->on_fetched(f->context, place, state, (void *)(uintptr_t)(row + 1 + (size_t)state * floats),
                      floats * (uint32_t)sizeof(float));
    return true;
}

static enum mr_status deliver_rows(struct column *c, const struct mr_reply *reply, uint32_t count)
{
    const struct mr_tensor *rows = mr_reply_tensor(reply, 0);
    if (rows == NULL || rows->dims[0] != count || rows->dims[1] != c->table->dim) {
        (void)snprintf(c->error, sizeof(c->error), "the server has another table under its number");
        return MR_WRONG_DIM;
    }
    const float *values = rows->data;
    for (uint32_t i = 0; i < count; i++, c->delivered++)
        if (!deliver_row(c, values + (size_t)i * c->table->dim, c->table->dim))
            return MR_FEATURE_MISMATCH;
    return MR_OK;
}

/* ---- calls ---- */

struct window {
    struct mr_future *futures[WINDOW];
    uint32_t counts[WINDOW]; /* ids of each */
    uint32_t first, in_flight;
    uint32_t asked; /* ids */
};

static enum mr_status fetch_ask(struct column *c, struct window *w)
{
    const uint32_t count = tde_rows_of_call(c->fetch->id_count - w->asked, c->table->dim);
    uint32_t at = (w->first + w->in_flight) % WINDOW;
    const struct mr_options options = {
        .deadline_ms = tde_left_ms(c->job), .read_only = true, .future = &w->futures[at]};
    if (options.deadline_ms == 0)
        return tde_time_is_up(c->t, c->error);
    /* ids are keys by their bits */
    enum mr_status status =
        mr_lookup(c->t->client, &options, c->table->id,
                  (const uint64_t *)(const void *)(c->fetch->ids + w->asked), count, NULL);
    if (status != MR_OK)
        return tde_note(c->error, status);
    w->counts[at] = count;
    w->in_flight++;
    w->asked += count;
    return MR_OK;
}

static enum mr_status fetch_take(struct column *c, struct window *w)
{
    uint32_t at = w->first;
    struct mr_reply *reply = NULL;
    enum mr_status status = mr_future_wait(w->futures[at], &reply);
    if (status != MR_OK)
        (void)tde_note(c->error, status);
    else if (!tde_table_is_current(c->table, c->t->client))
        status = MR_UNKNOWN_TABLE; /* the number may be another's by now */
    else
        status = deliver_rows(c, reply, w->counts[at]);
    mr_reply_free(reply);
    mr_future_destroy(w->futures[at]);
    w->first = (at + 1) % WINDOW;
    w->in_flight--;
    return status;
}

/* Fetches the ids that have not been delivered yet. */
static enum mr_status fetch_rest(struct column *c)
{
    struct window w = {.asked = c->delivered};
    enum mr_status status = MR_OK;
    while (status == MR_OK && c->delivered < c->fetch->id_count)
        if (w.in_flight < WINDOW && w.asked < c->fetch->id_count)
            status = fetch_ask(c, &w);
        else
            status = fetch_take(c, &w);
    if (status == MR_UNKNOWN_TABLE || status == MR_WRONG_DIM)
        tde_table_forget(c->table);
    for (; w.in_flight > 0; w.in_flight--, w.first = (w.first + 1) % WINDOW)
        mr_future_destroy(w.futures[w.first]);
    return status;
}

static enum mr_status find_and_fetch(struct column *c)
{
    uint32_t left_ms = tde_left_ms(c->job);
    if (left_ms == 0)
        return tde_time_is_up(c->t, c->error);
    enum mr_status status =
        tde_table_find(&c->t->tables, c->t->client, c->name, left_ms, &c->table, c->error, sizeof(c->error));
    if (status != MR_OK || c->table == NULL) {
        if (status == MR_OK)
            deliver_rest_absent(c);
        return status;
    }
    return fetch_rest(c);
}

static bool run_column(struct column *c)
{
    enum mr_status status;
    do
        status = find_and_fetch(c);
    while (status != MR_OK && tde_waits_for_better(c->job, status));
    if (status == MR_OK)
        return true;
    tde_fail(c->t, "fetch", c->name, c->error[0] != '\0' ? c->error : mr_status_text(status));
    deliver_rest_absent(c);
    return false;
}

bool tde_fetch_run(struct tde_instance *t, struct tde_job *job)
{
    const struct tde_fetch *f = &job->fetch;
    uint32_t columns = f->column_count == 0 ? 1 : f->column_count;
    bool done = true;
    for (uint32_t i = 0; i < columns && f->id_count > 0; i++) {
        struct column c = {.t = t, .job = job, .fetch = f, .number = i};
        tde_table_name(t->configuration.prefix, f->table, f->column_count > 0,
                       f->column_count > 0 ? f->columns[i] : 0, c.name);
        done &= run_column(&c);
    }
    f->on_all_fetched(f->context);
    return done;
}
