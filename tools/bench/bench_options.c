#include "tools/bench/bench_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DIM_DEFAULT     16u
#define PRELOAD_DEFAULT 1000000u
#define PRELOAD_UNSET   UINT64_MAX
#define RATE_MAX        1e8
#define SECONDS_MAX     1e7

static const char summary[] =
    "Makes calls to a server as trainers would, and shows how many it answers in a second and\n"
    "how long each takes. It uses a table of its own, which it drops at the end, also after\n"
    "Ctrl-C. In a closed loop each client sends its next call once an earlier one has ended;\n"
    "with --rate calls are due by a schedule that the server cannot delay, and latency counts\n"
    "from when a call was due. On a terminal, one block a second is shown; in a pipe, only the\n"
    "table at the end.\n"
    "\n"
    "  millrace bench --server 10.0.0.1:7700 --clients 4 --in-flight 16\n"
    "  millrace bench --server 10.0.0.1:7700 --rate 20000 --keys zipf:10000000:1.05 --out a.jsonl";

void tool_bench_options_init(struct tool_bench_options *o)
{
    struct cli_option unused[TOOL_FEATURE_OPTION_COUNT];
    *o = (struct tool_bench_options){
        .plan = {.clients = 1,
                 .bag_keys = 10,
                 .warm_up_s = 1,
                 .seconds = 10,
                 .interval_s = 1,
                 .variable_values = 4096,
                 .preload = PRELOAD_UNSET,
                 .seed = 1},
        .keys = "uniform:1000000",
        .keys_per_call = "100",
        .mix = "lookup=80,push=20",
        .arrivals = "poisson",
        .wire_dtype = "f32",
    };
    tool_feature_args_init(&o->feature, unused);
}

void tool_bench_options_read(struct tool_bench_options *o, int argc, char **argv)
{
    struct tool_bench_plan *p = &o->plan;
    char error[256];
    tool_bench_options_init(o);
    const struct cli_option options[] = {
        {"how much is called", CLI_HEADING, NULL, NULL, NULL},
        {"clients", CLI_U32_IN(1, TOOL_CLIENTS_MAX), &p->clients, "N",
         "clients, each with a thread and connections of its own; default 1"},
        {"in-flight", CLI_U32_IN(1, TOOL_IN_FLIGHT_MAX), &p->in_flight, "N",
         "calls of a client at a time, at most; default 1, with --rate 256"},
        {"rate", CLI_DOUBLE_IN(0.001, RATE_MAX), &p->rate, "R",
         "open loop: calls per second of all clients together; default: a closed loop"},
        {"arrivals", CLI_STRING, &o->arrivals, "NAME",
         "with --rate: poisson (default), or even, with equal gaps"},
        {"seconds", CLI_DOUBLE_IN(0, SECONDS_MAX), &p->seconds, "S",
         "length of the measurement; default 10; 0: until Ctrl-C"},
        {"warm-up", CLI_DOUBLE_IN(0, SECONDS_MAX), &p->warm_up_s, "S",
         "seconds of calls before it, which do not count; default 1"},
        {"what is called", CLI_HEADING, NULL, NULL, NULL},
        {"mix", CLI_STRING, &o->mix, "CALL=N,..",
         "the calls and their shares: lookup, bags, push, variable, variable-push, echo;\n"
         "default lookup=80,push=20"},
        {"keys", CLI_STRING, &o->keys, "LAW",
         "the keys 0 to N-1: uniform:N, zipf:N:S, sequential:N, or hot:N:P:H (the share P of\n"
         "all falls on the first H of them); default uniform:1000000"},
        {"keys-per-call", CLI_STRING, &o->keys_per_call, "N[..M]",
         "keys of a lookup or push, or bounds between which they are drawn; default 100"},
        {"bag-keys", CLI_U32_IN(1, TOOL_KEYS_A_CALL_MAX), &p->bag_keys, "N",
         "bags: keys in each bag; default 10"},
        {"variable-values", CLI_U32_IN(1, TOOL_VARIABLE_MAX), &p->variable_values, "N",
         "variable, variable-push: values of the variable; default 4096"},
        {"echo-bytes", CLI_U32_IN(0, TOOL_ECHO_BYTES_MAX), &p->echo_bytes, "N",
         "echo: bytes each way; default 0"},
        {"wire-dtype", CLI_STRING, &o->wire_dtype, "NAME",
         "type of rows and gradients on the wire: f32 (default), f16, bf16, i8"},
        {"seed", CLI_U64, &p->seed, "N", "of all that is drawn; default 1"},
        {"the table", CLI_HEADING, NULL, NULL, NULL},
        {"dim", CLI_U32, &o->dim, "N", "floats per row, 1 to 1024; default 16"},
        {"optimizer", CLI_STRING, &o->feature.optimizer, "NAME",
         "as in \"millrace ctl create\"; default sgd"},
        {"optimizer-args", CLI_STRING, &o->feature.optimizer_args, "X,X,..", "as in \"millrace ctl create\""},
        {"preload", CLI_U64, &p->preload, "N",
         "make so many rows first, of keys 0, 1, ..; default: all, or 1000000 if there are more"},
        {"table", CLI_STRING, &o->table, "NAME",
         "use a table that is there; lookups make no rows in it, and pushes are refused"},
        {"write-existing", CLI_FLAG, &o->write_existing, NULL,
         "with --table: change it, by new rows and pushes"},
        {"output", CLI_HEADING, NULL, NULL, NULL},
        {"interval", CLI_DOUBLE_IN(0.05, 3600), &p->interval_s, "SECONDS",
         "seconds between two blocks, also in --out; default 1"},
        {"out", CLI_STRING, &o->out, "FILE",
         "also write every block with its histograms to this file, as JSON lines"},
        {"server", CLI_HEADING, NULL, NULL, NULL},
        TOOL_CONNECTION_OPTIONS(&o->connection),
    };
    const struct cli_usage usage = {
        .program = TOOL_BENCH_COMMAND, .synopsis = "[options]", .summary = summary, CLI_OPTIONS(options)};
    (void)cli_parse(&usage, argc, argv, NULL);
    if (!tool_bench_options_finish(o, error, sizeof(error)))
        cli_refuse(TOOL_BENCH_COMMAND, "%s", error);
}

static bool take_arrivals(struct tool_bench_options *o, char *error, size_t error_bytes)
{
    o->plan.is_even = strcmp(o->arrivals, "even") == 0;
    if (o->plan.is_even || strcmp(o->arrivals, "poisson") == 0)
        return true;
    (void)snprintf(error, error_bytes, "--arrivals must be poisson or even, not \"%s\"", o->arrivals);
    return false;
}

static bool take_wire_dtype(struct tool_bench_options *o, char *error, size_t error_bytes)
{
    static const enum mr_dtype dtypes[] = {MR_F32, MR_F16, MR_BF16, MR_I8};
    for (uint32_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++) {
        if (strcmp(o->wire_dtype, mr_dtype_name(dtypes[i])) == 0) {
            o->plan.wire_dtype = dtypes[i];
            return true;
        }
    }
    (void)snprintf(error, error_bytes, "--wire-dtype must be f32, f16, bf16 or i8, not \"%s\"",
                   o->wire_dtype);
    return false;
}

/* What belongs to a table of the run's own, and what changes one that is there. */
static const char *table_mistake(const struct tool_bench_options *o)
{
    const bool is_own = o->table == NULL;
    if (is_own && o->write_existing)
        return "--write-existing belongs to --table";
    if (!is_own && (o->dim != 0 || o->feature.optimizer != NULL || o->feature.optimizer_args != NULL))
        return "--dim, --optimizer and --optimizer-args belong to a table that the command makes: leave "
               "them, or "
               "--table, out";
    if (!is_own && !o->write_existing && o->plan.mix.weights[TOOL_PUSH] > 0)
        return "pushes would change the rows of the table: leave --table out, take push out of --mix (which "
               "has "
               "it by default), or allow it with --write-existing";
    if (!is_own && !o->write_existing && o->plan.preload != PRELOAD_UNSET && o->plan.preload > 0)
        return "--preload would make rows in the table: leave it, or --table, out, or allow it with "
               "--write-existing";
    return NULL;
}

static bool finish_preload(struct tool_bench_options *o, char *error, size_t error_bytes)
{
    struct tool_bench_plan *p = &o->plan;
    const bool has_keys = tool_mix_has_keys(&p->mix);
    if (p->preload == PRELOAD_UNSET)
        p->preload = !has_keys || o->table != NULL     ? 0
                     : p->keys.count < PRELOAD_DEFAULT ? p->keys.count
                                                       : PRELOAD_DEFAULT;
    if (p->preload > p->keys.count) {
        (void)snprintf(error, error_bytes, "--preload must be at most the N of --keys, %" PRIu64,
                       p->keys.count);
        return false;
    }
    if (p->preload > 0 && !has_keys) {
        (void)snprintf(error, error_bytes, "--preload belongs to a --mix with lookup, bags or push");
        return false;
    }
    return true;
}

static bool finish_feature(struct tool_bench_options *o, char *error, size_t error_bytes)
{
    o->feature.dim = o->dim != 0 ? o->dim : DIM_DEFAULT;
    return tool_feature_args_finish(&o->feature, "table", "bench", &o->plan.feature, error, error_bytes);
}

bool tool_bench_options_finish(struct tool_bench_options *o, char *error, size_t error_bytes)
{
    struct tool_bench_plan *p = &o->plan;
    if (!tool_key_law_parse(o->keys, &p->keys, error, error_bytes) ||
        !tool_mix_parse(o->mix, &p->mix, error, error_bytes) ||
        !tool_range_parse("keys-per-call", o->keys_per_call, TOOL_KEYS_A_CALL_MAX, &p->keys_per_call, error,
                          error_bytes) ||
        !take_arrivals(o, error, error_bytes) || !take_wire_dtype(o, error, error_bytes))
        return false;
    const char *mistake = table_mistake(o);
    if (mistake != NULL) {
        (void)snprintf(error, error_bytes, "%s", mistake);
        return false;
    }
    if (p->in_flight == 0)
        p->in_flight = p->rate > 0 ? TOOL_IN_FLIGHT_OPEN : TOOL_IN_FLIGHT_CLOSED;
    return finish_preload(o, error, error_bytes) && finish_feature(o, error, error_bytes);
}
