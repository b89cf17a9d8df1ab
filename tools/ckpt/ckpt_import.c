/* millrace ckpt import. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/base/plural.h"
#include "tools/ckpt/ckpt.h"
#include "tools/ckpt/ckpt_import_rows.h"
#include "tools/ckpt/ckpt_make.h"
#include "tools/ctl/feature_args.h"
#include "dataplane/wire/base/cli.h"

#define COMMAND  "millrace ckpt import"
#define OWN_ROWS 5u
#define TABLE_ID 1u

struct import {
    const char *keys, *values, *table, *out;
    uint32_t check_mib;
    struct tool_feature_args args;
};

static void check_usage(const struct import *x)
{
    const char *missing = !x->keys     ? "keys"
                          : !x->values ? "values"
                          : !x->table  ? "table"
                          : !x->out    ? "out"
                                       : NULL;
    if (missing)
        cli_refuse(COMMAND, "--%s is missing", missing);
}

static int describe(struct import *x, const struct ckpt_import_rows *rows, struct mr_feature *feature,
                    struct ckpt_row *row)
{
    char error[256];
    if (x->args.dim == 0)
        x->args.dim = rows->dim;
    if (!tool_feature_args_finish(&x->args, "table", x->table, feature, error, sizeof(error)))
        cli_refuse(COMMAND, "%s", error);
    if (feature->dims[0] != rows->dim)
        return cli_fail(COMMAND, "%s: its rows have %" PRIu32 " value%s, and --dim says %" PRIu32, x->values,
                        rows->dim, mr_plural(rows->dim), feature->dims[0]);
    const char *unknown = ckpt_row_of(feature, row);
    return unknown ? cli_fail(COMMAND, "%s", unknown) : 0;
}

/* False with `text`, which stays empty when it was the writing that failed. */
static bool ckpt_import_copy(const struct ckpt_import_rows *rows, struct ckpt_make *make, char *text)
{
    uint64_t keys[CKPT_IMPORT_ROWS];
    struct ckpt_progress progress;
    const uint32_t row_bytes = rows->maker.layout.bytes;
    uint8_t *stored = malloc((size_t)CKPT_IMPORT_ROWS * row_bytes);
    bool good = stored != NULL;
    if (!good)
        (void)snprintf(text, TOOL_NPY_TEXT_BYTES, "no memory");
    ckpt_progress_begin(&progress, "import", rows->keys.array.data_bytes + rows->values.array.data_bytes);
    for (uint64_t first = 0; first < rows->count && good; first += CKPT_IMPORT_ROWS) {
        const uint64_t left = rows->count - first;
        const uint32_t count = left < CKPT_IMPORT_ROWS ? (uint32_t)left : CKPT_IMPORT_ROWS;
        const struct ckpt_rows made = {
            .feature = TABLE_ID, .row_bytes = row_bytes, .count = count, .keys = keys, .rows = stored};
        good = ckpt_import_read(rows, first, count, keys, stored, text) && ckpt_make_rows(make, &made);
        ckpt_progress_add(&progress, count * (sizeof(*keys) + tool_npy_row_bytes(&rows->values.array)));
    }
    ckpt_progress_end(&progress);
    free(stored);
    return good;
}

static int write_checkpoint(const struct import *x, const struct ckpt_import_rows *rows,
                            const struct mr_feature *feature)
{
    char text[TOOL_NPY_TEXT_BYTES] = "", why[PS_TEXT_BYTES] = "";
    const uint32_t id = TABLE_ID;
    uint64_t number;
    struct ckpt_make make;
    if (ps_checkpoint_next_id(NULL, x->out, &number, why) != MR_OK)
        return cli_fail(COMMAND, "%s", why);
    struct ps_writer_options options = {.directory = x->out,
                                        .features = feature,
                                        .feature_ids = &id,
                                        .feature_count = 1,
                                        .id = number,
                                        .core_count = 1};
    if (ckpt_make_start(&make, &options, why) != MR_OK)
        return cli_fail(COMMAND, "%s", why);
    const bool good = ckpt_import_copy(rows, &make, text);
    const enum mr_status finished = ckpt_make_finish(&make, text[0] == '\0', NULL, why);
    if (!good || finished != MR_OK)
        return cli_fail(COMMAND, "%s", text[0] != '\0' ? text : why);
    (void)printf("%s/ckpt-%" PRIu64 ": %" PRIu64 " row%s of %s\n", x->out, number, rows->count,
                 mr_plural(rows->count), feature->name);
    return 0;
}

static int import(struct import *x)
{
    char text[TOOL_NPY_TEXT_BYTES];
    struct ckpt_import_rows rows;
    struct mr_feature feature;
    struct ckpt_row row;
    if (!ckpt_import_open(&rows, x->keys, x->values, text))
        return cli_fail(COMMAND, "%s", text);
    int exit_code = describe(x, &rows, &feature, &row);
    if (exit_code == 0 && !ckpt_import_check_type(&rows, (enum mr_dtype)feature.dtype, text))
        exit_code = cli_fail(COMMAND, "%s", text);
    if (exit_code == 0 && !ckpt_import_check_keys(&rows, (uint64_t)x->check_mib << 20, text))
        exit_code = cli_fail(COMMAND, "%s", text);
    if (exit_code == 0) {
        ckpt_row_maker_init(&rows.maker, &feature);
        exit_code = write_checkpoint(x, &rows, &feature);
    }
    ckpt_import_close(&rows);
    return exit_code;
}

int ckpt_import(int argc, char **argv)
{
    struct import x = {.check_mib = CKPT_MEMORY_MIB_DEFAULT};
    struct cli_option options[OWN_ROWS + TOOL_FEATURE_OPTION_COUNT];
    const struct cli_option own[OWN_ROWS] = {
        {"keys", CLI_STRING, &x.keys, "FILE", ".npy file with u64 [rows], in which each key occurs once"},
        {"values", CLI_STRING, &x.values, "FILE",
         ".npy file with f32 or f16 [rows, dim], or u16 for the bits of bf16"},
        {"table", CLI_STRING, &x.table, "NAME", "name of the table"},
        {"out", CLI_STRING, &x.out, "DIR",
         "directory to which the checkpoint is written, under the next number"},
        {"check-mib", CLI_U32, &x.check_mib, "N",
         "memory in MiB for finding duplicate keys; with less, the keys are read in more passes;\n"
         "default 1024"},
    };
    memcpy(options, own, sizeof(own));
    tool_feature_args_init(&x.args, options + OWN_ROWS);
    const struct cli_usage usage = {
        .program = COMMAND,
        .synopsis = "--keys FILE --values FILE --table NAME --out DIR [options]",
        .summary =
            "Makes a checkpoint with one table from .npy files. \"millraced --restore\" and \"millrace\n"
            "ctl restore\" can load it. The table's options are those of \"millrace ctl create table\";\n"
            "the optimizer's state begins as it does in new rows.\n"
            "\n"
            "  millrace ckpt import --keys keys.npy --values values.npy --table user --out DIR \\\n"
            "                       --optimizer adagrad --learning-rate 0.1",
        CLI_OPTIONS(options),
    };
    const char *words[1];
    (void)cli_parse(&usage, argc, argv, words);
    check_usage(&x);
    return import(&x);
}
