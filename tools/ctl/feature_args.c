#include "tools/ctl/feature_args.h"

#include <stdio.h>
#include <string.h>
#include "tools/ctl/feature_text.h"

#define NAME_COUNT_MAX 32u /* values of an enum that are tried */
#define MIB_MAX        (UINT64_MAX >> 20)

static const char *dtype_name(uint32_t dtype)
{
    return mr_dtype_name((enum mr_dtype)dtype);
}

/* The rows for what stands in `args`. */
static void put_rows(struct tool_feature_args *args, struct cli_option rows[TOOL_FEATURE_OPTION_COUNT])
{
    struct mr_feature *f = &args->feature;
    const struct cli_option all[] = {
        {"dim", CLI_U32, &args->dim, "N", "tables: floats per row, 1 to 1024"},
        {"shape", CLI_STRING, &args->shape, "N,N,..", "variables: 0 to 4 dimensions; \"\" is a scalar"},
        {"dtype", CLI_STRING, &args->dtype, "NAME", "f32 (default), f16, bf16"},
        {"init", CLI_STRING, &args->init, "NAME", "constant (default), uniform, normal, truncated_normal"},
        {"init-a", CLI_FLOAT, &f->init_a, "X",
         "constant: the value; uniform: the lower bound; normal: the mean; default 0"},
        {"init-b", CLI_FLOAT, &f->init_b, "X",
         "uniform: the upper bound; normal: the standard deviation; default 0"},
        {"seed", CLI_U64, &f->seed, "N", "seed of initial values and of the key hash; default 0"},
        {"optimizer", CLI_STRING, &args->optimizer, "NAME",
         "sgd (default), momentum, adagrad, rowwise_adagrad, adam, adamw, ftrl, group_ftrl, "
         "assign (sets rows)"},
        {"optimizer-args", CLI_STRING, &args->optimizer_args, "X,X,..",
         "the optimizer's own arguments in their order, see docs/optimizers.md; arguments that\n"
         "are not given have their defaults"},
        {"learning-rate", CLI_FLOAT, &f->learning_rate, "X",
         "learning rate; default 0.01; with 0, values change only by pushes with their own rate"},
        {"schedule", CLI_STRING, &args->schedule, "NAME",
         "schedule of the learning rate: constant (default), linear, cosine, exponential"},
        {"schedule-steps", CLI_U32, &f->schedule_steps, "N",
         "steps over which the rate changes from --learning-rate to --learning-rate-end"},
        {"schedule-warmup-steps", CLI_U32, &f->schedule_warmup_steps, "N",
         "steps before these, over which the rate rises from 0 to --learning-rate; default 0"},
        {"learning-rate-end", CLI_FLOAT, &f->learning_rate_end, "X",
         "learning rate at the end of the schedule; default 0"},
        {"weight-decay", CLI_FLOAT, &f->weight_decay, "X",
         "L2 weight decay of the rows that a push changes; decoupled with adamw; default 0"},
        {"clip-value", CLI_FLOAT, &f->clip_value, "X",
         "limit of the absolute value of each element of a gradient; 0 (default): no limit"},
        {"clip-norm", CLI_FLOAT, &f->clip_norm, "X",
         "limit of the norm of each row's gradient; 0 (default): no limit"},
        {"pooling", CLI_STRING, &args->pooling, "NAME", "tables: sum (default), mean, sqrtn, none"},
        {"admission", CLI_STRING, &args->admission, "NAME", "always (default), probability, observations"},
        {"admission-arg", CLI_FLOAT, &f->admission_arg, "X",
         "the probability, or the number of times that a key must occur"},
        {"filter-mib", CLI_U64, &args->filter_mib, "N",
         "admission by observations: memory on the node, in MiB, for counting the occurrences of\n"
         "keys; default 16"},
        {"eviction", CLI_STRING, &args->eviction, "NAME", "never (default), age, steps, lru, lfu, norm"},
        {"eviction-arg", CLI_FLOAT, &f->eviction_arg, "X",
         "age: seconds without use; steps: steps without use; norm: the L2 norm of its values\n"
         "below which a row is evicted"},
        {"capacity-rows", CLI_U64, &f->capacity_rows, "N",
         "largest number of rows on the node; 0 (default): only memory is limited"},
        {"range-values", CLI_U32, &f->range_values, "N",
         "variables: how many values make a range, which is spread over cores and nodes with the\n"
         "others; default: 65536 in variables larger than that, if the optimizer and --clip-norm\n"
         "do not need all values at once; 4294967295: the variable is one range"},
        {"memory-mib", CLI_U64, &args->memory_mib, "N",
         "tables: limit of memory on the node, in MiB; 0 (default): only the node's limit applies"},
    };
    _Static_assert(sizeof(all) / sizeof(*all) == TOOL_FEATURE_OPTION_COUNT, "rows of the option table");
    memcpy(rows, all, sizeof(all));
}

void tool_feature_args_init(struct tool_feature_args *args, struct cli_option rows[TOOL_FEATURE_OPTION_COUNT])
{
    *args = (struct tool_feature_args){.feature = mr_feature_table("", 1)};
    put_rows(args, rows);
}

void tool_feature_args_init_alter(struct tool_feature_args *args, const struct mr_feature *is,
                                  struct cli_option rows[TOOL_FEATURE_OPTION_COUNT])
{
    *args = (struct tool_feature_args){
        .feature = *is, .memory_mib = is->memory_bytes >> 20, .filter_mib = is->filter_bytes >> 20};
    put_rows(args, rows);
}

/* The value of an enum whose name is `text`; on failure the error lists the names there are. */
static bool enum_value(const char *option, const char *text, const char *(*name_of)(uint32_t),
                       uint32_t *value, char *error, size_t error_bytes)
{
    if (!text)
        return true;
    size_t at = (size_t)snprintf(error, error_bytes, "--%s must be one of", option);
    for (uint32_t v = 0; v < NAME_COUNT_MAX; v++) {
        const char *name = name_of(v);
        if (strcmp(name, "?") == 0)
            continue;
        if (strcmp(name, text) == 0) {
            *value = v;
            error[0] = '\0';
            return true;
        }
        if (at < error_bytes)
            at += (size_t)snprintf(error + at, error_bytes - at, " %s", name);
    }
    if (at < error_bytes)
        (void)snprintf(error + at, error_bytes - at, ", not \"%s\"", text);
    return false;
}

/* Up to `max` comma-separated parts; calls take for each. False when a part is refused, empty, or there are
 * too many. */
static bool feature_args_split(const char *text, uint32_t max,
                               bool (*take)(struct mr_feature *f, uint32_t i, const char *part),
                               struct mr_feature *f, uint32_t *count)
{
    uint32_t n = 0;
    for (const char *at = text; *text != '\0'; at = strchr(at, ',') + 1) {
        char part[32];
        size_t bytes = strcspn(at, ",");
        if (n == max || bytes == 0 || bytes >= sizeof(part))
            return false;
        memcpy(part, at, bytes);
        part[bytes] = '\0';
        if (!take(f, n++, part))
            return false;
        if (at[bytes] == '\0')
            break;
    }
    *count = n;
    return true;
}

static bool take_dim(struct mr_feature *f, uint32_t i, const char *part)
{
    uint64_t n;
    if (!cli_u64(part, UINT32_MAX, &n))
        return false;
    f->dims[i] = (uint32_t)n;
    return true;
}

static bool take_optimizer_arg(struct mr_feature *f, uint32_t i, const char *part)
{
    return cli_float(part, &f->optimizer_args[i]);
}

#define WANTED_DENSE "; and, as the sixth, 1 for a dense optimizer of a table of f32"

static const char *wanted_args(uint32_t optimizer)
{
    switch (optimizer) {
    case MR_OPT_SGD:
        return "--optimizer-args of sgd must be numbers" WANTED_DENSE;
    case MR_OPT_MOMENTUM:
        return "--optimizer-args of momentum must be momentum and dampening, both from 0 to below 1, and 1 "
               "for Nesterov, which needs momentum and no dampening" WANTED_DENSE;
    case MR_OPT_ADAGRAD:
        return "--optimizer-args of adagrad must be 0 or more, and not both 0" WANTED_DENSE;
    case MR_OPT_ROWWISE_ADAGRAD:
        return "--optimizer-args of rowwise_adagrad must be 0 or more, and not both 0";
    case MR_OPT_ADAM:
    case MR_OPT_ADAMW:
        return "--optimizer-args of adam must be beta1 and beta2, both from 0 to below 1, epsilon above 0, "
               "and 1 for a bias correction by the step of pushes" WANTED_DENSE;
    case MR_OPT_FTRL:
        return "--optimizer-args of ftrl must be initial accumulator and beta, not both 0, l1 and l2, none "
               "below 0";
    case MR_OPT_GROUP_FTRL:
        return "--optimizer-args of group_ftrl must be initial accumulator and beta, not both 0, l1, l2 and "
               "l21, none below 0";
    case MR_OPT_ASSIGN:
        return "--optimizer assign has no --optimizer-args";
    default:
        return "--optimizer-args must be numbers";
    }
}

/* What a field that mr_feature_check() refuses should have been. */
static const char *wanted(const char *field, uint32_t optimizer)
{
    static const struct {
        const char *field, *text;
    } texts[] = {
        {"name", "NAME must be 1 to 63 of A-Z a-z 0-9 _ . / : -"},
        {"dim", "--dim must be 1 to 1024"},
        {"dims", "--shape must have 0 to 4 dimensions of at least 1, and fit in a node's memory"},
        {"dtype", "--dtype must be f32, f16 or bf16"},
        {"learning_rate", "--learning-rate must be 0 or more, above 0 for --schedule exponential"},
        {"schedule_steps", "--schedule-steps must be 1 or more, and only with --schedule"},
        {"learning_rate_end",
         "--learning-rate-end must be 0 or more, above 0 for --schedule exponential, and "
         "only with --schedule"},
        {"weight_decay", "--weight-decay must be 0 or more"},
        {"clip_value", "--clip-value must be 0 or more"},
        {"clip_norm", "--clip-norm must be 0 or more"},
        {"pooling", "--pooling belongs to tables"},
        {"admission", "--admission belongs to tables"},
        {"admission_arg",
         "--admission-arg must be above 0 and at most 1 (probability), or a whole number from 1 to 255 "
         "(observations)"},
        {"eviction", "--eviction belongs to tables"},
        {"eviction_arg", "--eviction age, steps and norm need --eviction-arg, a number above 0"},
        {"capacity_rows", "--capacity-rows belongs to tables"},
        {"memory_bytes", "--memory-mib belongs to tables"},
        {"filter_bytes", "--filter-mib belongs to --admission observations, and is at most 8192"},
        {"range_values", "--range-values belongs to variables, makes at most 4096 ranges, and one range with "
                         "--clip-norm and --optimizer rowwise_adagrad and group_ftrl"},
        {"init_b", "--init-b must not be below --init-a (uniform), or 0 and more (normal), and all values "
                   "must be finite"},
    };
    if (optimizer == MR_OPT_ASSIGN && (strcmp(field, "weight_decay") == 0 ||
                                       strncmp(field, "clip_", 5) == 0 || strncmp(field, "schedule", 8) == 0))
        return "--weight-decay, --clip-value, --clip-norm and --schedule do not belong to --optimizer "
               "assign, which sets rows as they are";
    if (strcmp(field, "optimizer_args") == 0)
        return wanted_args(optimizer);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (strcmp(field, texts[i].field) == 0)
            return texts[i].text;
    return NULL;
}

/* An option that would do nothing; NULL when there is none. */
static const char *idle_option(const struct mr_feature *f)
{
    if (f->admission == MR_ADMIT_ALWAYS && f->admission_arg != 0.0f)
        return "--admission-arg belongs to --admission probability and observations";
    bool takes_arg =
        f->eviction == MR_EVICT_AGE || f->eviction == MR_EVICT_NORM || f->eviction == MR_EVICT_STEPS;
    if (!takes_arg && f->eviction_arg != 0.0f)
        return "--eviction-arg belongs to --eviction age, steps and norm";
    return NULL;
}

static bool finish_shape(const struct tool_feature_args *args, bool table, struct mr_feature *f, char *error,
                         size_t error_bytes)
{
    f->kind = table ? MR_TABLE : MR_VARIABLE;
    memset(f->dims, 0, sizeof(f->dims));
    f->rank = 0;
    const char *wrong = NULL;
    if (table && args->shape)
        wrong = "--shape belongs to variables; a table takes --dim";
    else if (table && args->dim == 0)
        wrong = "a table needs --dim, 1 to 1024";
    else if (!table && args->dim != 0)
        wrong = "--dim belongs to tables; a variable takes --shape";
    else if (!table && (!args->shape || !feature_args_split(args->shape, MR_RANK_MAX, take_dim, f, &f->rank)))
        wrong = "a variable needs --shape, 0 to 4 whole numbers like 3,4";
    if (table) {
        f->rank = 1;
        f->dims[0] = args->dim;
    }
    if (wrong)
        (void)snprintf(error, error_bytes, "%s", wrong);
    return !wrong;
}

static bool finish_mib(const char *option, uint64_t mib, uint64_t *bytes, char *error, size_t error_bytes)
{
    if (mib > MIB_MAX)
        (void)snprintf(error, error_bytes, "--%s must be at most %llu", option, (unsigned long long)MIB_MAX);
    else if (mib != *bytes >> 20) /* one that was there may have more than whole MiB */
        *bytes = mib << 20;
    return mib <= MIB_MAX;
}

/* All but the shape. */
static bool finish_options(const struct tool_feature_args *args, struct mr_feature *f, char *error,
                           size_t error_bytes)
{
    const uint32_t optimizer = f->optimizer;
    uint32_t count;
    if (!enum_value("dtype", args->dtype, dtype_name, &f->dtype, error, error_bytes) ||
        !enum_value("init", args->init, mr_initializer_name, &f->initializer, error, error_bytes) ||
        !enum_value("optimizer", args->optimizer, mr_optimizer_name, &f->optimizer, error, error_bytes) ||
        !enum_value("schedule", args->schedule, mr_schedule_name, &f->schedule, error, error_bytes) ||
        !enum_value("pooling", args->pooling, mr_pooling_name, &f->pooling, error, error_bytes) ||
        !enum_value("admission", args->admission, mr_admission_name, &f->admission, error, error_bytes) ||
        !enum_value("eviction", args->eviction, mr_eviction_name, &f->eviction, error, error_bytes))
        return false;
    if (f->optimizer != optimizer)
        mr_feature_set_optimizer(f, (enum mr_optimizer)f->optimizer);
    if (args->optimizer_args &&
        !feature_args_split(args->optimizer_args, sizeof(f->optimizer_args) / sizeof(float),
                            take_optimizer_arg, f, &count)) {
        (void)snprintf(error, error_bytes,
                       "--optimizer-args must be up to 6 numbers like 0.1,1e-10, not \"%s\"",
                       args->optimizer_args);
        return false;
    }
    return finish_mib("memory-mib", args->memory_mib, &f->memory_bytes, error, error_bytes) &&
           finish_mib("filter-mib", args->filter_mib, &f->filter_bytes, error, error_bytes);
}

static bool feature_args_check(const struct mr_feature *f, char *error, size_t error_bytes)
{
    const char *idle = idle_option(f), *field = mr_feature_check(f);
    if (idle) {
        (void)snprintf(error, error_bytes, "%s", idle);
    } else if (field) {
        const char *text = wanted(field, f->optimizer);
        (void)snprintf(error, error_bytes, "%s%s", text ? text : "out of range: ", text ? "" : field);
    }
    return !idle && !field;
}

bool tool_feature_args_finish(const struct tool_feature_args *args, const char *kind, const char *name,
                              struct mr_feature *out, char *error, size_t error_bytes)
{
    struct mr_feature f = args->feature;
    const bool table = strcmp(kind, "table") == 0;
    if (!table && strcmp(kind, "variable") != 0) {
        (void)snprintf(error, error_bytes, "what to make must be table or variable, not \"%s\"", kind);
        return false;
    }
    memset(f.name, 0, sizeof(f.name));
    memcpy(f.name, name, strnlen(name, sizeof(f.name)));
    if (!finish_shape(args, table, &f, error, error_bytes) || !finish_options(args, &f, error, error_bytes))
        return false;
    if (!feature_args_check(&f, error, error_bytes))
        return false;
    *out = f;
    return true;
}

bool tool_feature_args_finish_alter(const struct tool_feature_args *args, struct mr_feature *out, char *error,
                                    size_t error_bytes)
{
    struct mr_feature f = args->feature;
    const bool has_shape = args->dim != 0 || args->shape != NULL;
    if (has_shape && !finish_shape(args, f.kind == MR_TABLE, &f, error, error_bytes))
        return false;
    if (!finish_options(args, &f, error, error_bytes) || !feature_args_check(&f, error, error_bytes))
        return false;
    *out = f;
    return true;
}
