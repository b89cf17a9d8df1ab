/* fm: trains a factorization machine or logistic regression. The command line, and which subcommand it is. */
#include "trainer_client/examples/fm.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/cli.h"
#include "trainer_client/examples/common/fm_model.h"

#define PROGRAM     "fm"
#define SECONDS_MAX 86400

/* What is given as text, until it is read. */
struct texts {
    const char *model, *optimizer, *optimizer_args, *replay, *wire_dtype;
};

static uint32_t optimizer(const char *text)
{
    for (uint32_t i = MR_OPT_SGD; i <= MR_OPT_GROUP_FTRL; i++) /* those that learn */
        if (strcmp(mr_optimizer_name(i), text) == 0)
            return i;
    cli_refuse(PROGRAM,
               "--optimizer must be sgd, momentum, adagrad, rowwise_adagrad, adam, adamw, ftrl or "
               "group_ftrl, not \"%s\"",
               text);
}

static enum mr_dtype wire_dtype(const char *text)
{
    static const enum mr_dtype known[] = {MR_F32, MR_F16, MR_BF16, MR_I8};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(mr_dtype_name(known[i]), text) == 0)
            return known[i];
    cli_refuse(PROGRAM, "--wire-dtype must be f32, f16, bf16 or i8, not \"%s\"", text);
}

/* Reads numbers with commas between them; returns how many. */
static uint32_t optimizer_args(const char *text, float *out, uint32_t most)
{
    const char *at = text;
    for (uint32_t count = 0; count < most; at++) {
        char *end;
        out[count++] = strtof(at, &end);
        bool good = end != at;
        at = end;
        if (!good || (*at != ',' && *at != '\0'))
            break;
        if (*at == '\0')
            return count;
    }
    cli_refuse(PROGRAM, "--optimizer-args must be up to 6 numbers with commas between them, not \"%s\"",
               text);
}

/* Whether `text` is `yes`; it must be that or `no`. */
static bool is_first(const char *option, const char *text, const char *yes, const char *no)
{
    if (strcmp(text, yes) != 0 && strcmp(text, no) != 0)
        cli_refuse(PROGRAM, "--%s must be %s or %s, not \"%s\"", option, yes, no, text);
    return strcmp(text, yes) == 0;
}

static void read_texts(const struct texts *texts, struct fm_options *o)
{
    o->logistic_regression = is_first("model", texts->model, "lr", "fm");
    o->replay = is_first("replay", texts->replay, "on", "off");
    o->wire_dtype = wire_dtype(texts->wire_dtype);
    o->optimizer = optimizer(texts->optimizer);
    if (texts->optimizer_args != NULL)
        o->optimizer_arg_count = optimizer_args(texts->optimizer_args, o->optimizer_args, 6);
}

static void check_complete(const char *subcommand, const struct fm_options *o)
{
    bool hub_only = strcmp(subcommand, "plan") == 0 || strcmp(subcommand, "wait") == 0;
    const char *missing = o->hub == NULL ? "hub" : o->server == NULL && !hub_only ? "server" : NULL;
    if (missing == NULL && strcmp(subcommand, "wait") != 0)
        missing = o->plan.path == NULL ? "data" : o->plan.format == NULL ? "format" : NULL;
    if (missing != NULL)
        cli_refuse(PROGRAM, "%s: --%s is missing", subcommand, missing);
}

/* Reads the command line into `o` and `texts`; returns the subcommand. */
static const char *fm_parse(int argc, char **argv, struct fm_options *o, struct texts *texts)
{
    const struct cli_option options[] = {
        {"hub", CLI_STRING, &o->hub, "HOST:PORT", "the hub (7800 is its usual port)"},
        {"server", CLI_STRING, &o->server, "HOST[:PORT],...",
         "the parameter server, or nodes of a cluster; default port 7700"},
        {"key-file", CLI_STRING, &o->key_file, "FILE", "pre-shared key; default $MILLRACE_KEY_FILE"},

        {"The plan, which all programs that work on it must name alike", CLI_HEADING, NULL, NULL, NULL},
        {"data", CLI_STRING, &o->plan.path, "FILE", "samples, on the hub's machine"},
        {"format", CLI_STRING, &o->plan.format, "NAME",
         "libsvm, criteo, flights, or another that the hub knows"},
        {"batch", CLI_U32_IN(1, 65536), &o->plan.batch_samples, "N", "samples per batch; default 512"},
        {"epochs", CLI_U32_IN(1, 1000000), &o->plan.epochs, "N", "passes over the training part; default 2"},
        {"seed", CLI_U64, &o->plan.shuffle_seed, "N",
         "of shuffle and split; 0: in the order of the file; default 1"},
        {"held-out", CLI_DOUBLE_IN(0, 0.9), &o->plan.held_out_share, "SHARE",
         "kept for evaluation, 0 to 0.9; default 0.2"},
        {"run", CLI_U32, &o->plan.run, "N",
         "another number trains again on a server that has trained on this plan; default 0"},
        {"strict", CLI_FLAG, &o->plan.strict, NULL, "stop at the first broken line"},
        {"table", CLI_STRING, &o->plan.table, "NAME",
         "of the embeddings; variables are NAME.bias, NAME.dense, NAME.ledger; default fm"},

        {"The model", CLI_HEADING, NULL, NULL, NULL},
        {"model", CLI_STRING, &texts->model, "NAME",
         "fm (default), or lr: logistic regression, a weight per key"},
        {"factors", CLI_U32_IN(1, FM_FACTORS_MAX), &o->factors, "N",
         "of fm: per key, beside its first-order weight, 1 to 64; default 8"},
        {"optimizer", CLI_STRING, &texts->optimizer, "NAME",
         "of the table: sgd, momentum, adagrad (default), rowwise_adagrad, adam, adamw, ftrl or\ngroup_ftrl"},
        {"optimizer-args", CLI_STRING, &texts->optimizer_args, "X,..",
         "what it takes, as in mr_feature.h; default: the usual; beta 1 and no penalty for ftrl"},
        {"learning-rate", CLI_FLOAT_IN(1e-9, 1e3), &o->learning_rate, "X", "default 0.05"},
        {"weight-decay", CLI_FLOAT_IN(0, 1e3), &o->weight_decay, "X",
         "of the rows that a batch touches; default 0.05"},
        {"accumulator", CLI_FLOAT_IN(0, 1e6), &o->initial_accumulator, "X",
         "that Adagrad and FTRL start from; default 0.5"},
        {"deviation", CLI_FLOAT_IN(0, 1e3), &o->initial_deviation, "X",
         "of the initial values, normal around 0; default 0.01; 0 for lr"},

        {"Training", CLI_HEADING, NULL, NULL, NULL},
        {"pipeline", CLI_U32_IN(1, 16), &o->pipeline, "N", "batches in flight at a time, 1 to 16; default 2"},
        {"wire-dtype", CLI_STRING, &texts->wire_dtype, "TYPE",
         "of rows and their gradients on the wire: f32 (default), f16, bf16 or i8"},
        {"save-every", CLI_U32, &o->save_every, "N",
         "start a checkpoint every N batches of this trainer; default 0: never"},
        {"pause-after", CLI_U32, &o->pause_after, "N",
         "stop, as by Ctrl-Z, once this trainer has trained N batches, until SIGCONT;\ndefault 0: never"},
        {"trace", CLI_STRING, &o->trace, "FILE",
         "write a timeline of the training at its end: trace events in JSON"},
        {"give-up", CLI_U32_IN(1, SECONDS_MAX), &o->give_up_s, "S",
         "seconds without any progress after which to end with an error; default 60"},
        {"replay", CLI_STRING, &texts->replay, "on|off",
         "keep pushes until they are on disk, and send a restarted server what it lacks;\ndefault off"},
        {"ledger", CLI_FLAG, &o->ledger, NULL, "let each batch count itself in a variable, for `fm record`"},
        {"until-applied", CLI_U64, &o->until_applied, "N", "for `fm wait`"},
        {"quiet", CLI_FLAG, &o->quiet, NULL, "no progress line"},
    };
    const struct cli_usage usage = {
        .program = PROGRAM,
        .synopsis = "plan|train|evaluate|record|wait --hub HOST:PORT --server HOST:PORT,... [options]",
        .summary =
            "A factorization machine, or logistic regression, trained on a Millrace parameter server.\n"
            "  plan       have the hub read the samples through, and print what there is\n"
            "  train      take batches from the hub until all are applied; any number of trainers may run\n"
            "             side by side\n"
            "  evaluate   AUC and log loss on the held-out part\n"
            "  record     compare what the server has applied with the plan: pushes lost, pushes applied\n"
            "             twice\n"
            "  wait       until the server has applied --until-applied batches",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = 1,
        .has_version = true,
    };
    const char *subcommand;
    (void)cli_parse(&usage, argc, argv, &subcommand);
    return subcommand;
}

/* Reads the command line; returns the subcommand as it is given. Ends the program when something is wrong. */
static const char *parse_options(int argc, char **argv, struct fm_options *o)
{
    struct texts texts = {.model = "fm", .optimizer = "adagrad", .replay = "off", .wire_dtype = "f32"};
    *o = (struct fm_options){
        .plan = {.batch_samples = 512, .epochs = 2, .shuffle_seed = 1, .held_out_share = 0.2, .table = "fm"},
        .factors = 8,
        .learning_rate = FM_LEARNING_RATE,
        .weight_decay = 0.05f,
        .initial_accumulator = 0.5f,
        .initial_deviation = -1,
        .pipeline = 2,
        .give_up_s = 60,
    };
    const char *subcommand = fm_parse(argc, argv, o, &texts);
    read_texts(&texts, o);
    check_complete(subcommand, o);
    if (o->logistic_regression)
        o->factors = 0;
    if (o->initial_deviation < 0)
        o->initial_deviation = o->logistic_regression ? 0.0f : 0.01f;
    return subcommand;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct fm_options *options);
    } subcommands[] = {{"plan", fm_plan},
                       {"train", fm_train},
                       {"evaluate", fm_evaluate},
                       {"record", fm_record},
                       {"wait", fm_wait}};
    struct fm_options options;
    const char *subcommand = parse_options(argc, argv, &options);
    for (size_t i = 0; i < sizeof(subcommands) / sizeof(subcommands[0]); i++)
        if (strcmp(subcommand, subcommands[i].name) == 0)
            return subcommands[i].run(&options);
    cli_refuse(PROGRAM, "the subcommand must be plan, train, evaluate, record or wait, not \"%s\"",
               subcommand);
}
