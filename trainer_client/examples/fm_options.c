#include "trainer_client/examples/fm_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/examples/common/fm_model.h"

static const char usage[] =
    "usage: fm plan | train | evaluate | record | wait  --hub HOST:PORT --server HOST:PORT [options]\n"
    "A factorization machine, or logistic regression, trained on a Millrace parameter server.\n"
    "  plan       have the hub read the samples through, and say what there is\n"
    "  train      take batches from the hub until all are learnt; any number of trainers may run side by "
    "side\n"
    "  evaluate   AUC and log loss on the held-out part\n"
    "  record     compare what the server says it has learnt with the plan: pushes lost, pushes applied "
    "twice\n"
    "  wait       until the server has learnt --until-learnt batches\n"
    "\n"
    "  --hub HOST:PORT        the hub (7800 is its usual port)\n"
    "  --server HOST[:PORT]   the parameter server (7700 when left out)\n"
    "  --key-file FILE        pre-shared key (default $MILLRACE_KEY_FILE)\n"
    "\n"
    "The plan: all programs that work on it must name it alike\n"
    "  --data FILE            samples, on the hub's machine\n"
    "  --format NAME          libsvm, criteo or flights\n"
    "  --batch N              samples per batch (default 512)\n"
    "  --epochs N             passes over the training part (default 2)\n"
    "  --seed N               of shuffle and split; 0 = in file order (default 1)\n"
    "  --held-out SHARE       kept for evaluation, 0..0.9 (default 0.2)\n"
    "  --run N                another number trains afresh on a server that has learnt this plan (default "
    "0)\n"
    "  --strict               stop at the first broken line\n"
    "\n"
    "The model\n"
    "  --table NAME           of the embeddings; variables are NAME.bias, NAME.dense, NAME.ledger (default "
    "fm)\n"
    "  --model NAME           fm, or lr: logistic regression, a weight per key (default fm)\n"
    "  --factors N            of fm: per key, beside its first-order weight, 1..64 (default 8)\n"
    "  --optimizer NAME       of the table: sgd, momentum, adagrad, rowwise_adagrad, adam, adamw, ftrl or\n"
    "                         group_ftrl (default adagrad)\n"
    "  --optimizer-args X,..  what it takes, as in mr_feature.h (default: the usual; beta 1 and no penalty "
    "for\n"
    "                         ftrl)\n"
    "  --learning-rate X      (default 0.05)\n"
    "  --weight-decay X       of the rows that a batch touches (default 0.05)\n"
    "  --accumulator X        that Adagrad and FTRL start from (default 0.5)\n"
    "  --deviation X          of the initial values, normal around 0 (default 0.01; 0 for lr)\n"
    "\n"
    "Training\n"
    "  --pipeline N           batches under way at a time, 1..16 (default 2)\n"
    "  --save-every N         start a checkpoint every N batches of this trainer (default 0: never)\n"
    "  --pause-after N        stop, as by Ctrl-Z, once this trainer has trained N batches; SIGCONT goes on\n"
    "                         (default 0: never)\n"
    "  --give-up S            seconds without any progress after which to end with an error (default 60)\n"
    "  --replay on|off        keep pushes until they are on disk, and send a restarted server what it lacks "
    "(default off)\n"
    "  --ledger               let each batch count itself in a variable, for `fm record`\n"
    "  --until-learnt N       for `fm wait`\n"
    "  --quiet                no progress line\n";

void fm_usage(void)
{
    fputs(usage, stdout);
}

__attribute__((noreturn)) static void refuse(const char *option, const char *text, const char *allowed)
{
    fprintf(stderr, "fm: --%s takes %s, not '%s'\n", option, allowed, text);
    exit(2);
}

static uint64_t integer(const char *option, const char *text, uint64_t low, uint64_t high)
{
    char *end, allowed[80];
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value < low || value > high) {
        snprintf(allowed, sizeof(allowed), "a number in %llu..%llu", (unsigned long long)low,
                 (unsigned long long)high);
        refuse(option, text, allowed);
    }
    return value;
}

static double number(const char *option, const char *text, double low, double high)
{
    char *end, allowed[80];
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= low && value <= high)) {
        snprintf(allowed, sizeof(allowed), "a number in %g..%g", low, high);
        refuse(option, text, allowed);
    }
    return value;
}

static uint32_t optimizer(const char *option, const char *text)
{
    for (uint32_t i = MR_OPT_SGD; i <= MR_OPT_GROUP_FTRL; i++) { /* those that learn */
        if (strcmp(mr_optimizer_name(i), text) == 0) {
            return i;
        }
    }
    refuse(option, text, "sgd, momentum, adagrad, rowwise_adagrad, adam, adamw, ftrl or group_ftrl");
}

/* Numbers between commas; returns how many. */
static uint32_t number_list(const char *option, const char *text, float *out, uint32_t most)
{
    const char *at = text;
    for (uint32_t count = 0; count < most; at++) {
        char *end;
        out[count++] = strtof(at, &end);
        bool good = end != at;
        at = end;
        if (!good || (*at != ',' && *at != '\0')) {
            break;
        }
        if (*at == '\0') {
            return count;
        }
    }
    refuse(option, text, "up to 6 numbers with commas between them");
}

static bool is_lr(const char *option, const char *text)
{
    if (strcmp(text, "fm") != 0 && strcmp(text, "lr") != 0) {
        refuse(option, text, "fm or lr");
    }
    return strcmp(text, "lr") == 0;
}

static bool on_or_off(const char *option, const char *text)
{
    if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0) {
        refuse(option, text, "on or off");
    }
    return strcmp(text, "on") == 0;
}

enum option_code {
    HUB = 256,
    SERVER,
    KEY_FILE,
    DATA,
    FORMAT,
    BATCH,
    EPOCHS,
    SEED,
    HELD_OUT,
    RUN,
    STRICT,
    TABLE,
    MODEL,
    FACTORS,
    OPTIMIZER,
    OPTIMIZER_ARGS,
    LEARNING_RATE,
    WEIGHT_DECAY,
    ACCUMULATOR,
    DEVIATION,
    PIPELINE,
    SAVE_EVERY,
    PAUSE_AFTER,
    GIVE_UP,
    REPLAY,
    LEDGER,
    UNTIL_LEARNT,
    QUIET,
    HELP,
    VERSION
};

static const struct option long_options[] = {
    {"hub", required_argument, NULL, HUB},
    {"server", required_argument, NULL, SERVER},
    {"key-file", required_argument, NULL, KEY_FILE},
    {"data", required_argument, NULL, DATA},
    {"format", required_argument, NULL, FORMAT},
    {"batch", required_argument, NULL, BATCH},
    {"epochs", required_argument, NULL, EPOCHS},
    {"seed", required_argument, NULL, SEED},
    {"held-out", required_argument, NULL, HELD_OUT},
    {"run", required_argument, NULL, RUN},
    {"strict", no_argument, NULL, STRICT},
    {"table", required_argument, NULL, TABLE},
    {"model", required_argument, NULL, MODEL},
    {"factors", required_argument, NULL, FACTORS},
    {"optimizer", required_argument, NULL, OPTIMIZER},
    {"optimizer-args", required_argument, NULL, OPTIMIZER_ARGS},
    {"learning-rate", required_argument, NULL, LEARNING_RATE},
    {"weight-decay", required_argument, NULL, WEIGHT_DECAY},
    {"accumulator", required_argument, NULL, ACCUMULATOR},
    {"deviation", required_argument, NULL, DEVIATION},
    {"pipeline", required_argument, NULL, PIPELINE},
    {"save-every", required_argument, NULL, SAVE_EVERY},
    {"pause-after", required_argument, NULL, PAUSE_AFTER},
    {"give-up", required_argument, NULL, GIVE_UP},
    {"replay", required_argument, NULL, REPLAY},
    {"ledger", no_argument, NULL, LEDGER},
    {"until-learnt", required_argument, NULL, UNTIL_LEARNT},
    {"quiet", no_argument, NULL, QUIET},
    {"help", no_argument, NULL, HELP},
    {"version", no_argument, NULL, VERSION},
    {NULL, 0, NULL, 0},
};

static bool parse_plan(int code, const char *name, const char *text, struct mr_sample_plan *plan)
{
    switch (code) {
    case DATA:
        plan->path = text;
        return true;
    case FORMAT:
        plan->format = text;
        return true;
    case BATCH:
        plan->batch_samples = (uint32_t)integer(name, text, 1, 65536);
        return true;
    case EPOCHS:
        plan->epochs = (uint32_t)integer(name, text, 1, 1000000);
        return true;
    case SEED:
        plan->shuffle_seed = integer(name, text, 0, UINT64_MAX);
        return true;
    case HELD_OUT:
        plan->held_out_share = number(name, text, 0, 0.9);
        return true;
    case RUN:
        plan->run = (uint32_t)integer(name, text, 0, UINT32_MAX);
        return true;
    case STRICT:
        plan->strict = true;
        return true;
    case TABLE:
        plan->table = text;
        return true;
    default:
        return false;
    }
}

static bool parse_model(int code, const char *name, const char *text, struct fm_options *o)
{
    switch (code) {
    case MODEL:
        o->logistic_regression = is_lr(name, text);
        return true;
    case OPTIMIZER:
        o->optimizer = optimizer(name, text);
        return true;
    case OPTIMIZER_ARGS:
        o->optimizer_arg_count = number_list(name, text, o->optimizer_args, 6);
        return true;
    case FACTORS:
        o->factors = (uint32_t)integer(name, text, 1, FM_FACTORS_MAX);
        return true;
    case LEARNING_RATE:
        o->learning_rate = (float)number(name, text, 1e-9, 1e3);
        return true;
    case WEIGHT_DECAY:
        o->weight_decay = (float)number(name, text, 0, 1e3);
        return true;
    case ACCUMULATOR:
        o->initial_accumulator = (float)number(name, text, 0, 1e6);
        return true;
    case DEVIATION:
        o->initial_deviation = (float)number(name, text, 0, 1e3);
        return true;
    default:
        return false;
    }
}

static void parse_rest(int code, const char *name, const char *text, struct fm_options *o)
{
    switch (code) {
    case HUB:
        o->hub = text;
        break;
    case SERVER:
        o->server = text;
        break;
    case KEY_FILE:
        o->key_file = text;
        break;
    case PIPELINE:
        o->pipeline = (uint32_t)integer(name, text, 1, 16);
        break;
    case SAVE_EVERY:
        o->save_every = (uint32_t)integer(name, text, 0, UINT32_MAX);
        break;
    case PAUSE_AFTER:
        o->pause_after = (uint32_t)integer(name, text, 0, UINT32_MAX);
        break;
    case GIVE_UP:
        o->give_up_s = (uint32_t)integer(name, text, 1, 86400);
        break;
    case REPLAY:
        o->replay = on_or_off(name, text);
        break;
    case LEDGER:
        o->ledger = true;
        break;
    case UNTIL_LEARNT:
        o->until_learnt = integer(name, text, 0, UINT64_MAX);
        break;
    case QUIET:
        o->quiet = true;
        break;
    case HELP:
        fm_usage();
        exit(0);
    case VERSION:
        puts("fm " MR_VERSION);
        exit(0);
    default:
        fputs("fm: see --help\n", stderr);
        exit(2);
    }
}

static void check_complete(const char *subcommand, const struct fm_options *o)
{
    bool hub_only = strcmp(subcommand, "plan") == 0 || strcmp(subcommand, "wait") == 0;
    const char *missing = o->hub == NULL ? "hub" : o->server == NULL && !hub_only ? "server" : NULL;
    if (missing == NULL && strcmp(subcommand, "wait") != 0) {
        missing = o->plan.path == NULL ? "data" : o->plan.format == NULL ? "format" : NULL;
    }
    if (missing != NULL) {
        fprintf(stderr, "fm %s: --%s is missing; see --help\n", subcommand, missing);
        exit(2);
    }
}

void fm_options_parse(int argc, char **argv, struct fm_options *o)
{
    *o = (struct fm_options){
        .plan = {.batch_samples = 512, .epochs = 2, .shuffle_seed = 1, .held_out_share = 0.2, .table = "fm"},
        .factors = 8,
        .optimizer = MR_OPT_ADAGRAD,
        .learning_rate = FM_LEARNING_RATE,
        .weight_decay = 0.05f,
        .initial_accumulator = 0.5f,
        .initial_deviation = -1,
        .pipeline = 2,
        .give_up_s = 60,
    };
    int index = 0;
    bool seen[sizeof(long_options) / sizeof(long_options[0])] = {false};
    for (int c; (c = getopt_long(argc, argv, "", long_options, &index)) != -1;) {
        const char *name = c == '?' ? "" : long_options[index].name;
        if (c != '?' && seen[index]) {
            fprintf(stderr, "fm: given twice: --%s; see --help\n", name);
            exit(2);
        }
        seen[index] |= c != '?';
        if (!parse_plan(c, name, optarg, &o->plan) && !parse_model(c, name, optarg, o)) {
            parse_rest(c, name, optarg, o);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "fm: unknown argument '%s'; see --help\n", argv[optind]);
        exit(2);
    }
    check_complete(argv[0], o);
    if (o->logistic_regression) {
        o->factors = 0;
    }
    if (o->initial_deviation < 0) {
        o->initial_deviation = o->logistic_regression ? 0.0f : 0.01f;
    }
}
