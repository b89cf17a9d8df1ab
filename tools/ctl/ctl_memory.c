/* millrace ctl memory. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/base/plural.h"
#include "millrace_observe.h"
#include "tools/ctl/ctl.h"
#include "dataplane/wire/base/cli.h"

#define MIB (1024.0 * 1024.0)

/* Of one core, or summed over all. */
struct account {
    struct mr_core_memory core;
    struct mr_table_memory *tables; /* [table_max] */
    uint32_t table_count, table_max;
};

static void add_table(void *arg, const struct mr_table_memory *t)
{
    struct account *a = arg;
    uint32_t at = 0;
    while (at < a->table_count && a->tables[at].id != t->id)
        at++;
    if (at == a->table_max) /* made after the list was */
        return;
    if (at == a->table_count) {
        a->table_count++;
        a->tables[at] = *t;
        return;
    }
    struct mr_table_memory *sum = &a->tables[at];
    sum->rows += t->rows;
    sum->index_bytes += t->index_bytes;
    sum->values_bytes += t->values_bytes;
    sum->state_bytes += t->state_bytes;
    sum->slack_bytes += t->slack_bytes;
    sum->filter_bytes += t->filter_bytes;
}

static void add_core(struct mr_core_memory *sum, const struct mr_core_memory *c)
{
    sum->limit_bytes += c->limit_bytes;
    sum->mapped_bytes += c->mapped_bytes;
    sum->allocated_bytes += c->allocated_bytes;
    sum->ahead_bytes += c->ahead_bytes;
    sum->units_failed += c->units_failed;
    sum->batch_limit_bytes += c->batch_limit_bytes;
    sum->batch_mapped_bytes += c->batch_mapped_bytes;
    sum->batch_bytes += c->batch_bytes;
    sum->variable_bytes += c->variable_bytes;
    sum->scratch_bytes += c->scratch_bytes;
    sum->checkpoint_bytes += c->checkpoint_bytes;
}

static uint64_t table_bytes(const struct mr_table_memory *t)
{
    return t->index_bytes + t->values_bytes + t->state_bytes + t->slack_bytes + t->filter_bytes;
}

static const char *name_of(const struct mr_feature_info *infos, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++)
        if (infos[i].id == id)
            return infos[i].feature.name;
    return "";
}

static json_t *account_json(const struct account *a, const struct mr_feature_info *infos, uint32_t count)
{
    const struct mr_core_memory *c = &a->core;
    json_t *tables = json_array();
    for (uint32_t i = 0; i < a->table_count; i++) {
        const struct mr_table_memory *t = &a->tables[i];
        json_array_append_new(
            tables,
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name",
                      name_of(infos, count, t->id), "id", (json_int_t)t->id, "rows", (json_int_t)t->rows,
                      "bytes", (json_int_t)table_bytes(t), "index_bytes", (json_int_t)t->index_bytes,
                      "values_bytes", (json_int_t)t->values_bytes, "state_bytes", (json_int_t)t->state_bytes,
                      "slack_bytes", (json_int_t)t->slack_bytes, "filter_bytes", (json_int_t)t->filter_bytes,
                      "limit_bytes", (json_int_t)t->limit_bytes));
    }
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "limit_bytes",
        (json_int_t)c->limit_bytes, "mapped_bytes", (json_int_t)c->mapped_bytes, "allocated_bytes",
        (json_int_t)c->allocated_bytes, "ahead_bytes", (json_int_t)c->ahead_bytes, "units_failed",
        (json_int_t)c->units_failed, "batch_limit_bytes", (json_int_t)c->batch_limit_bytes,
        "batch_mapped_bytes", (json_int_t)c->batch_mapped_bytes, "batch_bytes", (json_int_t)c->batch_bytes,
        "variable_bytes", (json_int_t)c->variable_bytes, "scratch_bytes", (json_int_t)c->scratch_bytes,
        "checkpoint_bytes", (json_int_t)c->checkpoint_bytes, "tables", tables);
}

static void print_line(const char *what, uint64_t bytes, const char *meaning)
{
    (void)printf("%-12s %12.1f  %s\n", what, (double)bytes / MIB, meaning);
}

static void print_account(const struct account *a, const struct mr_feature_info *infos, uint32_t count)
{
    const struct mr_core_memory *c = &a->core;
    (void)printf("%-12s %12s\n", "", "MiB");
    print_line("limit", c->limit_bytes, "of tables and variables");
    print_line("mapped", c->mapped_bytes, "of it, taken from the kernel");
    print_line("allocated", c->allocated_bytes, "of this, in use");
    print_line("ahead", c->ahead_bytes, "of what is mapped: made ready before it is needed");
    print_line("variables", c->variable_bytes, "");
    print_line("batches", c->batch_bytes, "");
    print_line("record", c->batch_mapped_bytes, "mapped for batches and records, beside the above");
    print_line("record limit", c->batch_limit_bytes, "");
    print_line("scratch", c->scratch_bytes, "working memory of pushes, beside the limits");
    print_line("checkpoint", c->checkpoint_bytes, "buffers of a running checkpoint, beside the limits");
    if (c->units_failed > 0)
        (void)printf("the machine had no memory for 2 MiB units %" PRIu64 " times\n", c->units_failed);
    (void)printf("\n%-24s %12s %10s %10s %10s %10s %10s %10s %8s\n", "table", "rows", "total MiB", "index",
                 "values", "state", "slack", "filter", "over");
    for (uint32_t i = 0; i < a->table_count; i++) {
        const struct mr_table_memory *t = &a->tables[i];
        double raw = (double)(t->values_bytes + t->state_bytes), all = (double)table_bytes(t);
        (void)printf("%-24s %12" PRIu64 " %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f ",
                     name_of(infos, count, t->id), t->rows, all / MIB, (double)t->index_bytes / MIB,
                     (double)t->values_bytes / MIB, (double)t->state_bytes / MIB,
                     (double)t->slack_bytes / MIB, (double)t->filter_bytes / MIB);
        if (raw >= MIB) /* a smaller one is mostly its first blocks */
            (void)printf("%7.1f%%\n", 100 * (all / raw - 1));
        else
            (void)printf("%8s\n", "-");
    }
}

int tool_ctl_memory(const struct tool_query *q)
{
    struct mr_feature_info *infos = NULL;
    uint32_t count = 0;
    enum mr_status status = mr_list(q->client, NULL, &infos, &count);
    if (status != MR_OK)
        return tool_call_failed(q->command, status);
    struct account a = {.table_max = count};
    a.tables = calloc(count + 1u, sizeof(*a.tables));
    if (a.tables == NULL) {
        free(infos);
        return cli_fail(q->command, "no memory for %" PRIu32 " table%s", count, mr_plural(count));
    }
    for (uint32_t core = q->first_core; core < q->end_core && status == MR_OK; core++) {
        struct mr_core_memory of_core;
        status = mr_memory(q->client, NULL, core, &of_core, add_table, &a);
        if (status == MR_OK)
            add_core(&a.core, &of_core);
    }
    int exit_code = 0;
    if (status != MR_OK)
        exit_code = tool_call_failed(q->command, status);
    else if (q->json)
        exit_code = tool_print_json(q->command, account_json(&a, infos, count));
    else
        print_account(&a, infos, count);
    free(a.tables);
    free(infos);
    return exit_code;
}
