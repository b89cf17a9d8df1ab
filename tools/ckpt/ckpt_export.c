/* millrace ckpt export. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/base/plural.h"
#include "tools/ckpt/ckpt.h"
#include "tools/ckpt/ckpt_output.h"
#include "tools/ckpt/ckpt_parameter.h"
#include "tools/arrays/npy.h"
#include "tools/arrays/safetensors.h"
#include "tools/ctl/feature_text.h"
#include "dataplane/wire/base/cli.h"

#define COMMAND          "millrace ckpt export"
#define NPY_HEADER_BYTES 2048u

struct export
{
    const char *table, *parameter, *out;
    bool values_only, as_f32, i64_keys;
    uint32_t memory_mib;
};

struct plan {
    struct ckpt_fields fields;
    char *header; /* of the file; to be freed */
    size_t header_bytes;
    uint64_t offsets[CKPT_FIELDS_MAX]; /* where the columns begin; npy: the first one */
    bool is_interleaved;
};

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

static json_t *metadata_of(const struct ckpt_table_source *source)
{
    char options[TOOL_FEATURE_OPTIONS_BYTES];
    const struct ps_manifest *m = ps_chain_manifest(&source->chain->files);
    const struct mr_feature *f = &m->features[source->index];
    tool_feature_options(f, options, sizeof(options));
    json_t *o = json_pack("{s:s, s:s%, s:s}", "format", "millrace", "table", f->name,
                          strnlen(f->name, sizeof(f->name)), "options", options);
    json_object_set_new(o, "checkpoint", json_sprintf("%" PRIu64, m->id));
    if (m->step > 0)
        json_object_set_new(o, "step", json_sprintf("%" PRIu64, m->step));
    return o;
}

static bool plan_safetensors(const struct ckpt_table_source *source, uint64_t rows, bool i64_keys,
                             struct plan *p)
{
    struct tool_safetensor tensors[CKPT_FIELDS_MAX];
    for (uint32_t i = 0; i < p->fields.count; i++)
        tensors[i] = (struct tool_safetensor){.name = p->fields.list[i].name,
                                              .dtype = i == 0 && i64_keys ? MR_I64 : p->fields.list[i].dtype,
                                              .rows = rows,
                                              .columns = p->fields.list[i].columns};
    json_t *metadata = metadata_of(source);
    p->header = tool_safetensors_header(tensors, p->fields.count, metadata, &p->header_bytes);
    json_decref(metadata);
    for (uint32_t i = 0; i < p->fields.count; i++)
        p->offsets[i] = tensors[i].offset;
    return p->header != NULL;
}

static bool plan_npy(uint64_t rows, bool i64_keys, struct plan *p)
{
    struct tool_npy_field fields[CKPT_FIELDS_MAX];
    for (uint32_t i = 0; i < p->fields.count; i++)
        fields[i] = (struct tool_npy_field){.name = p->fields.list[i].name,
                                            .dtype = i == 0 && i64_keys ? MR_I64 : p->fields.list[i].dtype,
                                            .columns = p->fields.list[i].columns};
    p->is_interleaved = true;
    p->header = malloc(NPY_HEADER_BYTES);
    if (p->header)
        p->header_bytes =
            tool_npy_header(fields, p->fields.count, rows, (uint8_t *)p->header, NPY_HEADER_BYTES);
    p->offsets[0] = p->header_bytes;
    return p->header_bytes > 0;
}

static int close_columns(struct ckpt_column *columns, uint32_t count)
{
    int error = 0;
    for (uint32_t i = 0; i < count; i++) {
        const int closed = ckpt_column_close(&columns[i]);
        error = error == 0 ? closed : error;
    }
    return error;
}

/* 0, or -errno; *status is of the reading, with `text`. */
static int write_file(const struct ckpt_table_source *source, const struct plan *p, uint64_t rows, int fd,
                      enum mr_status *status, char *text)
{
    struct ckpt_column columns[CKPT_FIELDS_MAX] = {0}, head;
    const uint32_t count = p->is_interleaved ? 1 : p->fields.count;
    bool opened = ckpt_column_open(&head, fd, false, 0);
    if (opened)
        ckpt_column_put(&head, p->header, p->header_bytes);
    for (uint32_t i = 0; i < count; i++)
        opened = ckpt_column_open(&columns[i], fd, false, p->offsets[i]) && opened;
    *status = MR_NO_MEMORY;
    (void)snprintf(text, PS_TEXT_BYTES, "no memory");
    int error = ckpt_column_close(&head);
    if (opened && error == 0)
        *status = ckpt_table_write(source, &p->fields, columns, p->is_interleaved, rows, text);
    const int closed = close_columns(columns, count);
    return error != 0 ? error : closed;
}

static int export_rows(const struct export *e, const struct ckpt_table_source *source, struct plan *p)
{
    char text[PS_TEXT_BYTES];
    uint64_t rows;
    enum mr_status status = ckpt_table_count(source, &rows, text);
    if (status != MR_OK)
        return cli_fail(COMMAND, "%s", text);
    const bool planned = ends_with(e->out, ".npy") ? plan_npy(rows, e->i64_keys, p)
                                                   : plan_safetensors(source, rows, e->i64_keys, p);
    if (!planned)
        return cli_fail(COMMAND, "no memory for the header");
    struct ckpt_output output;
    int error = ckpt_output_create(&output, e->out);
    if (error != 0)
        return cli_fail(COMMAND, "create %s: %s", e->out, strerror(-error));
    error = write_file(source, p, rows, output.fd, &status, text);
    if (error == 0 && status == MR_OK)
        error = ckpt_output_commit(&output);
    ckpt_output_discard(&output);
    if (error != 0)
        return cli_fail(COMMAND, "write %s: %s", e->out, strerror(-error));
    if (status != MR_OK)
        return cli_fail(COMMAND, "%s", text);
    (void)printf("%s: %" PRIu64 " row%s of %s\n", e->out, rows, mr_plural(rows), e->table);
    return 0;
}

static int export_parameter(const struct export *e, const char *path)
{
    const struct ckpt_parameter_order order = {.command = COMMAND,
                                               .path = path,
                                               .parameter = e->parameter,
                                               .out = e->out,
                                               .with_state = !e->values_only};
    if (e->table)
        cli_refuse(COMMAND, "--table or --parameter, not both");
    if (e->i64_keys)
        cli_refuse(COMMAND, "--i64-keys is for tables: a parameter has no keys");
    return ends_with(e->out, ".npy") ? ckpt_parameter_npy(&order) : ckpt_parameter_safetensors(&order);
}

static int export_table(const struct export *e, const char *path)
{
    struct ckpt_chain chain = {0};
    struct plan plan = {0};
    struct ckpt_table_source source = {
        .chain = &chain, .memory_bytes = (uint64_t)e->memory_mib << 20, .what = "export"};
    int exit_code = ckpt_open(COMMAND, path, &chain);
    if (exit_code == 0)
        exit_code = ckpt_find_table(COMMAND, &chain, e->table, &source.index);
    if (exit_code == 0) {
        const uint32_t id = ps_chain_manifest(&chain.files)->feature_ids[source.index];
        ckpt_fields_of(&chain.rows[id], "keys", !e->values_only, e->as_f32, &plan.fields);
        exit_code = export_rows(e, &source, &plan);
    }
    free(plan.header);
    ckpt_chain_close(&chain);
    return exit_code;
}

int ckpt_export(int argc, char **argv)
{
    struct export e = {.memory_mib = CKPT_MEMORY_MIB_DEFAULT};
    const struct cli_option options[] = {
        {"table", CLI_STRING, &e.table, "NAME", "table to write"},
        {"parameter", CLI_STRING, &e.parameter, "NAME",
         "parameter of remote calls to write, instead of a table"},
        {"out", CLI_STRING, &e.out, "FILE", "file to write; its name ends in .safetensors or .npy"},
        {"values-only", CLI_FLAG, &e.values_only, NULL, "leave out what optimizers and eviction keep"},
        {"as-f32", CLI_FLAG, &e.as_f32, NULL, "write values of f16 and bf16 as f32"},
        {"i64-keys", CLI_FLAG, &e.i64_keys, NULL,
         "write keys as i64 with the same bits, for programs that cannot read u64"},
        CKPT_MEMORY_OPTION(&e.memory_mib, "for the keys of deltas"),
    };
    const struct cli_usage usage = {
        .program = COMMAND,
        .synopsis = "DIR/ckpt-N --table NAME | --parameter NAME --out FILE [options]",
        .summary =
            "Writes a table or a parameter to one file. Of a table, a safetensors file has the\n"
            "tensors keys [rows] and values [rows, dim], and one for each part of the optimizer's\n"
            "state, under its name; row i of all tensors belongs to the same key. An npy file has\n"
            "a structured array, so that numpy.load(FILE)[\"values\"] returns the values; bf16 is\n"
            "written as u16, the upper halves of f32.\n"
            "\n"
            "Of a parameter, a safetensors file has the tensor values in the parameter's shape, and one\n"
            "for each part of an optimizer's state, such as trainer_1.velocity. An npy file has the\n"
            "values alone.\n"
            "\n"
            "  millrace ckpt export /var/lib/millrace/ckpt-7 --table user --out user.safetensors",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = 1,
    };
    const char *path;
    (void)cli_parse(&usage, argc, argv, &path);
    if (!e.out || (!ends_with(e.out, ".npy") && !ends_with(e.out, ".safetensors")))
        cli_refuse(COMMAND, "--out must name a file that ends in .safetensors or .npy");
    return e.parameter ? export_parameter(&e, path) : export_table(&e, path);
}
