#include "tools/bench/load_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/base/clock.h"
#include "millrace_admin.h"
#include "tools/connection.h"

#define PRELOAD_KEYS    4096u /* a call */
#define PRELOAD_CALLS   8u    /* in flight */
#define DROP_WAIT_US    60000000u
#define DROP_AGAIN_US   100000u
#define VARIABLE_ENDING "-variable"

static bool needs_variable(const struct tool_bench_plan *plan)
{
    return plan->mix.weights[TOOL_VARIABLE] > 0 || plan->mix.weights[TOOL_VARIABLE_PUSH] > 0;
}

/* No other run has the same name, also on other machines. */
static void draw_names(struct tool_load_table *t)
{
    uint64_t random = mr_clock_ns();
    (void)!getrandom(&random, sizeof(random), 0);
    (void)snprintf(t->name, sizeof(t->name), "bench-%016" PRIx64, random);
    (void)snprintf(t->variable, sizeof(t->variable), "bench-%016" PRIx64 VARIABLE_ENDING, random);
}

/* ---- a table that is there ---- */

/* The info of the table; false: there is none of that name, or *status says why nobody knows. */
static bool load_table_find(struct mr_client *client, const char *name, struct mr_feature_info *out,
                            enum mr_status *status)
{
    struct mr_feature_info *infos = NULL;
    uint32_t count = 0;
    bool is_found = false;
    *status = mr_list(client, NULL, &infos, &count);
    for (uint32_t i = 0; *status == MR_OK && i < count && !is_found; i++) {
        is_found = strcmp(infos[i].feature.name, name) == 0;
        *out = infos[i];
    }
    free(infos);
    return is_found;
}

static struct tool_drop_stats drop_stats_of(const struct mr_feature_info *info)
{
    return (struct tool_drop_stats){info->rows_refused, info->gradients_without_row, info->gradients_skipped};
}

static int use_existing(struct tool_load_table *t, struct tool_bench_plan *plan, const char *name,
                        bool may_write)
{
    struct mr_feature_info info;
    enum mr_status status;
    if (!load_table_find(t->client, name, &info, &status))
        return status != MR_OK ? tool_call_failed(t->command, status)
                               : cli_fail(t->command,
                                          "there is no table named %s; millrace ctl list shows what there "
                                          "is, and without --table the command makes one of its own",
                                          name);
    if (info.feature.kind != MR_TABLE)
        return cli_fail(t->command, "%s is a variable; --table takes a table", name);
    (void)snprintf(t->name, sizeof(t->name), "%s", name);
    t->is_own = false;
    t->before = drop_stats_of(&info);
    plan->feature = info.feature;
    plan->table = info.id;
    plan->is_read_only = !may_write;
    return 0;
}

/* ---- what is made ---- */

static int make_table(struct tool_load_table *t, struct tool_bench_plan *plan)
{
    memcpy(plan->feature.name, t->name, sizeof(plan->feature.name));
    const enum mr_status status = mr_create(t->client, NULL, &plan->feature, 1, &plan->table);
    t->has_table = status == MR_OK;
    return status == MR_OK ? 0 : tool_call_failed(t->command, status);
}

static int make_variable(struct tool_load_table *t, struct tool_bench_plan *plan)
{
    const struct mr_feature feature = mr_feature_variable(t->variable, 1, &plan->variable_values);
    const enum mr_status status = mr_create(t->client, NULL, &feature, 1, &plan->variable);
    t->has_variable = status == MR_OK;
    return status == MR_OK ? 0 : tool_call_failed(t->command, status);
}

int tool_load_table_make(struct tool_load_table *t, struct tool_bench_plan *plan, const char *existing,
                         bool write_existing)
{
    int exit_code = 0;
    draw_names(t);
    t->is_own = true;
    if (existing != NULL)
        exit_code = use_existing(t, plan, existing, write_existing);
    else if (tool_mix_has_keys(&plan->mix))
        exit_code = make_table(t, plan);
    else
        t->name[0] = '\0';
    if (exit_code == 0 && needs_variable(plan))
        exit_code = make_variable(t, plan);
    return exit_code;
}

/* ---- rows before the run ---- */

struct preload {
    const struct tool_load_table *t;
    const struct tool_bench_plan *plan;
    struct mr_future *futures[PRELOAD_CALLS];
    uint64_t keys[PRELOAD_KEYS];
};

static enum mr_status await(struct preload *p, uint32_t slot)
{
    if (p->futures[slot] == NULL)
        return MR_OK;
    const enum mr_status status = mr_future_wait(p->futures[slot], NULL);
    mr_future_destroy(p->futures[slot]);
    p->futures[slot] = NULL;
    return status;
}

static enum mr_status load_table_ask(struct preload *p, uint32_t slot, uint64_t first)
{
    const struct mr_options options = {.future = &p->futures[slot], .wire_dtype = MR_F16};
    const uint64_t left = p->plan->preload - first;
    const uint32_t count = left < PRELOAD_KEYS ? (uint32_t)left : PRELOAD_KEYS;
    for (uint32_t i = 0; i < count; i++)
        p->keys[i] = first + i;
    return mr_lookup(p->t->client, &options, p->plan->table, p->keys, count, NULL);
}

static void show_progress(uint64_t done, uint64_t all)
{
    if (isatty(STDERR_FILENO) == 1)
        (void)fprintf(stderr, "\rpreloading: %" PRIu64 " %%%s", done * 100 / all,
                      done == all ? "\r\033[K" : "");
}

int tool_load_table_preload(const struct tool_load_table *t, const struct tool_bench_plan *plan,
                            const atomic_bool *stop)
{
    static struct preload p;
    enum mr_status status = MR_OK, last;
    uint32_t slot = 0;
    p = (struct preload){.t = t, .plan = plan};
    for (uint64_t first = 0; status == MR_OK && first < plan->preload && !atomic_load(stop);
         first += PRELOAD_KEYS, slot = (slot + 1) % PRELOAD_CALLS) {
        status = await(&p, slot);
        if (status == MR_OK)
            status = load_table_ask(&p, slot, first);
        if (slot == 0)
            show_progress(first, plan->preload);
    }
    for (slot = 0; slot < PRELOAD_CALLS; slot++) {
        last = await(&p, slot);
        status = status == MR_OK ? last : status;
    }
    if (plan->preload > 0)
        show_progress(plan->preload, plan->preload);
    return status == MR_OK ? 0 : tool_call_failed(t->command, status);
}

bool tool_load_table_drop_stats(const struct tool_load_table *t, struct tool_drop_stats *out)
{
    struct mr_feature_info info;
    enum mr_status status;
    if (t->name[0] == '\0' || !load_table_find(t->client, t->name, &info, &status))
        return false;
    const struct tool_drop_stats now = drop_stats_of(&info);
    *out = (struct tool_drop_stats){now.rows_refused - t->before.rows_refused,
                                    now.gradients_without_row - t->before.gradients_without_row,
                                    now.gradients_skipped - t->before.gradients_skipped};
    return true;
}

/* ---- the end ---- */

/* A name that is gone already, after a restart of the server for instance, is as good. */
static enum mr_status load_table_drop(const struct tool_load_table *t, const char *name)
{
    const uint64_t until_us = mr_clock_us() + DROP_WAIT_US;
    enum mr_status status;
    while ((status = mr_drop(t->client, NULL, &name, 1)) == MR_CHECKPOINT_RUNNING &&
           mr_clock_us() < until_us) {
        const struct timespec pause = mr_span_us(DROP_AGAIN_US);
        (void)nanosleep(&pause, NULL);
    }
    return status == MR_UNKNOWN_TABLE ? MR_OK : status;
}

static int drop_own(const struct tool_load_table *t, const char *what, const char *name)
{
    const enum mr_status status = load_table_drop(t, name);
    const char *where = mr_last_error();
    if (status == MR_OK)
        return 0;
    return cli_fail(t->command, "the %s of this run is still there (%s): drop it with millrace ctl drop %s",
                    what, where[0] != '\0' ? where : mr_status_text(status), name);
}

int tool_load_table_drop(struct tool_load_table *t)
{
    int exit_code = t->has_variable ? drop_own(t, "variable", t->variable) : 0;
    if (t->has_table && drop_own(t, "table", t->name) != 0)
        exit_code = CLI_EXIT_FAILED;
    t->has_table = t->has_variable = false;
    return exit_code;
}
