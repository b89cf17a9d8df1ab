/* millrace ckpt dump. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/wire/format/convert.h"
#include "tools/ckpt/ckpt.h"
#include "tools/ckpt/ckpt_output.h"
#include "tools/ckpt/ckpt_parameter.h"
#include "tools/arrays/npy.h"
#include "dataplane/wire/base/cli.h"

#define COMMAND          "millrace ckpt dump"
#define NUMBER_BYTES     24u
#define NPY_HEADER_BYTES 512u

struct dump {
    const char *table, *parameter, *format, *out;
    bool with_state, as_f32;
    uint32_t memory_mib;
};

/* ---- CSV ---- */

struct csv {
    const struct ckpt_fields *fields;
    struct ckpt_text out;
};

static void put_text(struct csv *csv, const char *text)
{
    ckpt_column_put(&csv->out.column, text, strlen(text));
}

static void put_heading(struct csv *csv)
{
    char text[64];
    for (uint32_t i = 0; i < csv->fields->count; i++) {
        const struct ckpt_field *f = &csv->fields->list[i];
        for (uint32_t c = 0; c < (f->columns > 0 ? f->columns : 1); c++) {
            (void)snprintf(text, sizeof(text), f->columns > 0 ? "%s%s%u" : "%s%s", i > 0 ? "," : "", f->name,
                           c);
            put_text(csv, text);
        }
    }
    put_text(csv, "\n");
}

/* Nine digits distinguish every f32 from its neighbours. */
static void put_elements(struct csv *csv, const struct ckpt_part *part, const uint8_t *row)
{
    float expanded[MR_DIM_MAX];
    char text[NUMBER_BYTES + 1];
    const uint32_t count = ckpt_part_elements(part);
    if (part->dtype == MR_U32) { /* a single one */
        uint32_t number;
        memcpy(&number, row + part->offset, sizeof(number));
        (void)snprintf(text, sizeof(text), ",%" PRIu32, number);
        put_text(csv, text);
        return;
    }
    mr_convert_to_f32(part->dtype, expanded, row + part->offset, NULL, 1, count);
    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(text, sizeof(text), ",%.9g", (double)expanded[i]);
        put_text(csv, text);
    }
}

static enum mr_status csv_rows(void *arg, const struct ckpt_rows *rows)
{
    struct csv *csv = arg;
    char key[NUMBER_BYTES];
    for (uint32_t i = 0; i < rows->count && csv->out.column.error == 0; i++) {
        (void)snprintf(key, sizeof(key), "%" PRIu64, rows->keys[i]);
        put_text(csv, key);
        for (uint32_t f = 1; f < csv->fields->count; f++)
            put_elements(csv, csv->fields->list[f].part, rows->rows + (size_t)i * rows->row_bytes);
        put_text(csv, "\n");
    }
    return csv->out.column.error == 0 ? MR_OK : MR_IO_ERROR;
}

static int dump_csv(const struct dump *d, const struct ckpt_table_source *source,
                    const struct ckpt_fields *fields)
{
    struct csv csv = {.fields = fields};
    char text[PS_TEXT_BYTES] = "";
    const int exit_code = ckpt_text_open(&csv.out, COMMAND, d->out);
    if (exit_code != 0)
        return exit_code;
    put_heading(&csv);
    const enum mr_status status = ckpt_table_each(source, csv_rows, &csv, text);
    return ckpt_text_close(&csv.out, "the rows", status == MR_OK ? NULL : text);
}

/* ---- .npy: one file for each field ---- */

struct npy_files {
    struct ckpt_output outputs[CKPT_FIELDS_MAX];
    struct ckpt_column columns[CKPT_FIELDS_MAX];
    uint32_t count;
};

static int open_npy(const char *directory, const struct ckpt_field *field, uint64_t rows,
                    struct npy_files *files)
{
    char path[CKPT_OUTPUT_PATH_BYTES];
    uint8_t header[NPY_HEADER_BYTES];
    const struct tool_npy_field shape = {.dtype = field->dtype, .columns = field->columns};
    const size_t header_bytes = tool_npy_header(&shape, 1, rows, header, sizeof(header));
    const int n = snprintf(path, sizeof(path), "%s/%s.npy", directory, field->name);
    struct ckpt_output *output = &files->outputs[files->count];
    int error = n < (int)sizeof(path) && header_bytes > 0 ? ckpt_output_create(output, path) : -ENAMETOOLONG;
    if (error != 0)
        return cli_fail(COMMAND, "create %s: %s", path, strerror(-error));
    struct ckpt_column *column = &files->columns[files->count++];
    if (!ckpt_column_open(column, output->fd, false, 0))
        return cli_fail(COMMAND, "no memory");
    ckpt_column_put(column, header, header_bytes);
    return 0;
}

static int write_npy(const struct dump *d, const struct ckpt_table_source *source,
                     const struct ckpt_fields *fields, struct npy_files *files)
{
    char text[PS_TEXT_BYTES];
    uint64_t rows;
    if (ckpt_table_count(source, &rows, text) != MR_OK)
        return cli_fail(COMMAND, "%s", text);
    if (mkdir(d->out, 0777) != 0 && errno != EEXIST)
        return cli_fail(COMMAND, "make directory %s: %s", d->out, strerror(errno));
    for (uint32_t i = 0; i < fields->count; i++) {
        int exit_code = open_npy(d->out, &fields->list[i], rows, files);
        if (exit_code != 0)
            return exit_code;
    }
    enum mr_status status = ckpt_table_write(source, fields, files->columns, false, rows, text);
    for (uint32_t i = 0; i < files->count; i++) {
        int error = ckpt_column_close(&files->columns[i]);
        if (error == 0 && status == MR_OK)
            error = ckpt_output_commit(&files->outputs[i]);
        if (error != 0)
            return cli_fail(COMMAND, "write %s: %s", files->outputs[i].path, strerror(-error));
    }
    return status == MR_OK ? 0 : cli_fail(COMMAND, "%s", text);
}

static int dump_npy(const struct dump *d, const struct ckpt_table_source *source,
                    const struct ckpt_fields *fields)
{
    struct npy_files files = {0};
    int exit_code = write_npy(d, source, fields, &files);
    for (uint32_t i = 0; i < files.count; i++) {
        (void)ckpt_column_close(&files.columns[i]);
        ckpt_output_discard(&files.outputs[i]);
    }
    return exit_code;
}

static int dump_parameter(const struct dump *d, const char *path, bool is_csv)
{
    const struct ckpt_parameter_order order = {.command = COMMAND,
                                               .path = path,
                                               .parameter = d->parameter,
                                               .out = d->out,
                                               .with_state = d->with_state};
    if (d->table)
        cli_refuse(COMMAND, "--table or --parameter, not both");
    return is_csv ? ckpt_parameter_csv(&order) : ckpt_parameter_npy_files(&order);
}

static int dump(const struct dump *d, const char *path)
{
    struct ckpt_chain chain = {0};
    struct ckpt_fields fields;
    const bool is_csv = strcmp(d->format, "csv") == 0;
    if (!is_csv && strcmp(d->format, "npy") != 0)
        cli_refuse(COMMAND, "--format must be csv or npy, not \"%s\"", d->format);
    if (!is_csv && !d->out)
        cli_refuse(COMMAND,
                   "--format npy writes a file for each part of the rows: name their directory with --out");
    if (d->parameter)
        return dump_parameter(d, path, is_csv);
    struct ckpt_table_source source = {.chain = &chain,
                                       .memory_bytes = (uint64_t)d->memory_mib << 20,
                                       .what = "dump",
                                       .is_silent = is_csv && !d->out && isatty(STDOUT_FILENO) == 1};
    int exit_code = ckpt_open(COMMAND, path, &chain);
    if (exit_code == 0)
        exit_code = ckpt_find_table(COMMAND, &chain, d->table, &source.index);
    if (exit_code == 0) {
        const uint32_t id = ps_chain_manifest(&chain.files)->feature_ids[source.index];
        ckpt_fields_of(&chain.rows[id], is_csv ? "key" : "keys", d->with_state, d->as_f32, &fields);
        exit_code = is_csv ? dump_csv(d, &source, &fields) : dump_npy(d, &source, &fields);
    }
    ckpt_chain_close(&chain);
    return exit_code;
}

int ckpt_dump(int argc, char **argv)
{
    struct dump d = {.format = "csv", .memory_mib = CKPT_MEMORY_MIB_DEFAULT};
    const struct cli_option options[] = {
        {"table", CLI_STRING, &d.table, "NAME", "table to write"},
        {"parameter", CLI_STRING, &d.parameter, "NAME",
         "parameter of remote calls to write, instead of a table"},
        {"format", CLI_STRING, &d.format, "NAME", "csv (default), npy"},
        {"out", CLI_STRING, &d.out, "PATH",
         "for csv a file, by default standard output; for npy a directory"},
        {"state", CLI_FLAG, &d.with_state, NULL,
         "also write what the optimizer and eviction keep with each row, or what optimizers keep\n"
         "beside the parameter"},
        {"as-f32", CLI_FLAG, &d.as_f32, NULL, "with npy, write values of f16 and bf16 as f32"},
        CKPT_MEMORY_OPTION(&d.memory_mib, "for the keys of deltas"),
    };
    const struct cli_usage usage = {
        .program = COMMAND,
        .synopsis = "DIR/ckpt-N --table NAME | --parameter NAME [options]",
        .summary =
            "Writes the rows of a table, in no particular order. The CSV has a header line, keys in\n"
            "decimal, and numbers with enough digits to restore their exact values. npy writes\n"
            "keys.npy and values.npy, and with --state one file for each part of the state; row i of\n"
            "all files belongs to the same key. In npy, bf16 is written as u16, the upper halves of\n"
            "f32, unless --as-f32 is given.\n"
            "\n"
            "Of a parameter, the CSV has a line for each element: its part, its place in the part, and\n"
            "its value. npy writes values.npy in the parameter's shape, and with --state a file for\n"
            "each part of an optimizer's state, such as trainer_1.velocity.npy.\n"
            "\n"
            "  millrace ckpt dump /var/lib/millrace/ckpt-7 --table user --out user.csv",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = 1,
    };
    const char *path;
    (void)cli_parse(&usage, argc, argv, &path);
    return dump(&d, path);
}
