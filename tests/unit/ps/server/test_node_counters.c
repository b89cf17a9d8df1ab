/* The declarations of counters: what dataplane/wire/base/counter_set.h asks of a name, and of its unit. */
#include <string.h>
#include "dataplane/loop/phases.h"
#include "dataplane/wire/format/wire_counters.h"
#include "ps/server/metric_sets.h"
#include "ps/server/node_counters.h"
#include "tests/test.h"

static const struct mr_counter_set *const sets[] = {
    &mr_wire_counter_set,     &ps_core_counter_set,     &ps_table_counter_set,   &ps_checkpoint_counter_set,
    &ps_uring_counter_set,    &ps_scrubber_counter_set, &ps_node_metric_set,     &ps_cluster_metric_set,
    &ps_core_metric_set,      &ps_core_memory_set,      &ps_table_memory_set,    &ps_variable_metric_set,
    &ps_copier_counter_set,   &ps_rpc_counter_set,      &ps_cluster_counter_set, &dp_phase_counter_set,
    &dp_op_calls_counter_set, &ps_log_counter_set,
};

typedef void check_counter(const struct mr_counter_set *set, const struct mr_counter *counter);

static void each(check_counter *check)
{
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        assert_true(sets[i]->count > 0);
        for (uint32_t j = 0; j < sets[i]->count; j++)
            check(sets[i], &sets[i]->counters[j]);
    }
}

static bool ends_with(const char *name, const char *end)
{
    size_t bytes = strlen(name), end_bytes = strlen(end);
    return bytes >= end_bytes && strcmp(name + bytes - end_bytes, end) == 0;
}

static enum mr_unit unit_of_name(const struct mr_counter *counter)
{
    if (ends_with(counter->name, "_us"))
        return MR_UNIT_MICROSECONDS;
    if (ends_with(counter->name, "_s"))
        return counter->unit == MR_UNIT_TIMESTAMP ? MR_UNIT_TIMESTAMP : MR_UNIT_SECONDS;
    if (ends_with(counter->name, "_ppm"))
        return MR_UNIT_PPM;
    return strstr(counter->name, "bytes") != NULL ? MR_UNIT_BYTES : MR_UNIT_NONE;
}

static void check_unit(const struct mr_counter_set *set, const struct mr_counter *counter)
{
    if (counter->unit != unit_of_name(counter))
        fail_msg("%s.%s has another unit than its name says", set->name, counter->name);
    if (counter->kind == MR_COUNTER && counter->unit == MR_UNIT_TIMESTAMP)
        fail_msg("%s.%s: a time is no counter", set->name, counter->name);
}

TEST(a_name_says_its_unit)
{
    each(check_unit);
}

static void check_name(const struct mr_counter_set *set, const struct mr_counter *counter)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < set->count; i++)
        found += strcmp(set->counters[i].name, counter->name) == 0;
    if (found != 1)
        fail_msg("%s.%s is declared %u times", set->name, counter->name, found);
    if (counter->help[0] == '\0' || ends_with(counter->help, ".") || strpbrk(counter->help, "|\n") != NULL)
        fail_msg("%s.%s: its meaning is no phrase of one line: %s", set->name, counter->name, counter->help);
}

TEST(a_name_is_declared_once_with_its_meaning)
{
    each(check_name);
}
