#include "tools/ckpt/ckpt_parameter.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/wire/base/cli.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "tools/ckpt/ckpt.h"
#include "tools/ckpt/ckpt_output.h"
#include "tools/arrays/npy.h"
#include "tools/arrays/safetensors.h"

#define NUMBER_BYTES     24u
#define NPY_HEADER_BYTES 512u
#define PARTS_MAX        TOOL_SAFETENSORS_MAX
#define PART_NAME_BYTES  (MR_NAME_BYTES + 16u)

/* The values, or a part of a state. */
struct part {
    char name[PART_NAME_BYTES]; /* "values"; of a state "OPTIMIZER.m" */
    enum mr_dtype dtype;
    uint32_t rank, dims[MR_RANK_MAX];
    const uint8_t *data;
    uint64_t elements; /* of 4 bytes */
};

/* The values or a state, as the MANIFEST lists them. */
struct stored {
    uint8_t *bytes;
    uint64_t length, filled;
};

struct parameter {
    const struct ps_manifest *manifest;
    uint32_t first, count; /* its place in the list, and how many places it has, states included */
    struct stored *stored; /* [count] */
    struct part parts[PARTS_MAX];
    uint32_t part_count;
    char text[PS_TEXT_BYTES];
};

/* ---- reading ---- */

static int ckpt_parameter_find(const struct ckpt_parameter_order *order, const struct ckpt_chain *chain,
                               struct parameter *p)
{
    const struct ps_manifest *m = ps_chain_manifest(&chain->files);
    p->manifest = m;
    if (chain->files.cluster)
        return cli_fail(
            order->command,
            "%s: parameters are in the parts of the cluster's nodes; name one as DIR/NODE/ckpt-%" PRIu64,
            ps_chain_path(&chain->files), m->id);
    while (p->first < m->parameter_count && strcmp(m->parameters[p->first].name, order->parameter) != 0)
        p->first++;
    if (p->first == m->parameter_count)
        return cli_fail(order->command,
                        "%s: it has no parameter %s (of %" PRIu32
                        " parameters and states, the first is %s); see "
                        "millrace ckpt info",
                        ps_chain_path(&chain->files), order->parameter, m->parameter_count,
                        m->parameter_count > 0 ? m->parameters[0].name : "none");
    const uint32_t left = m->parameter_count - p->first;
    while (p->count < left && strcmp(m->parameters[p->first + p->count].name, order->parameter) == 0)
        p->count++;
    if (!order->with_state)
        p->count = 1; /* the values come first */
    return 0;
}

static bool make_room(struct parameter *p)
{
    p->stored = calloc(p->count + 1u, sizeof(*p->stored));
    for (uint32_t i = 0; p->stored && i < p->count; i++) {
        struct stored *s = &p->stored[i];
        s->length = ps_saved_parameter_bytes(&p->manifest->parameters[p->first + i]);
        s->bytes = malloc(s->length + 1);
        if (!s->bytes)
            return false;
    }
    return p->stored != NULL;
}

static enum mr_status ckpt_parameter_take(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct parameter *p = arg;
    if (record->kind != PS_RECORD_PARAMETER || record->feature < p->first ||
        record->feature - p->first >= p->count)
        return MR_OK;
    struct stored *s = &p->stored[record->feature - p->first];
    if (record->bytes > s->length - s->filled || record->offset > s->length - record->bytes) {
        (void)snprintf(p->text, sizeof(p->text),
                       "parameter %s: a piece reaches beyond its end, or comes twice",
                       p->manifest->parameters[record->feature].name);
        return MR_CHECKPOINT_CORRUPT;
    }
    memcpy(s->bytes + record->offset, bytes, record->bytes);
    s->filled += record->bytes;
    return MR_OK;
}

static void add_part(struct parameter *p, const struct ps_saved_parameter *shape, const char *name,
                     const char *part_name, const uint8_t *data, uint64_t elements)
{
    struct part *part = &p->parts[p->part_count++];
    *part = (struct part){.dtype = MR_F32, .rank = shape->rank, .data = data, .elements = elements};
    memcpy(part->dims, shape->dims, sizeof(part->dims));
    if (shape->rank == 0 || elements == 0) { /* which files show as one dimension */
        part->rank = 1;
        part->dims[0] = (uint32_t)elements;
    }
    (void)snprintf(part->name, sizeof(part->name), "%s%s%s", name, part_name[0] != '\0' ? "." : "",
                   part_name);
}

/* A state that has other parts than its optimizer's here is one part. */
static void add_state(struct parameter *p, uint32_t index)
{
    const struct ps_saved_parameter *values = &p->manifest->parameters[p->first],
                                    *state = &p->manifest->parameters[p->first + index];
    const uint64_t elements = ps_saved_parameter_bytes(values) / 4, all = p->stored[index].length / 4;
    const struct ps_saved_parameter single = {.rank = 1, .dims = {1}};
    const struct ckpt_state_part *part;
    const uint8_t *data = p->stored[index].bytes;
    const uint32_t before = p->part_count;
    uint64_t at = 0;
    for (uint32_t i = 0; at < all && (part = ckpt_state_part(state->rule, i)) != NULL; i++) {
        const uint64_t count = part->is_wide ? elements : 1;
        if (count > all - at)
            break;
        add_part(p, part->is_wide ? values : &single, state->optimizer, part->name, data + 4 * at, count);
        p->parts[p->part_count - 1].dtype = part->dtype;
        at += count;
    }
    if (at == all)
        return;
    p->part_count = before;
    add_part(p, state, state->optimizer, "state", data, all);
}

static int ckpt_parameter_split(const struct ckpt_parameter_order *order, struct parameter *p)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (p->stored[i].filled != p->stored[i].length)
            return cli_fail(order->command, "parameter %s is not whole", order->parameter);
    add_part(p, &p->manifest->parameters[p->first], "values", "", p->stored[0].bytes,
             p->stored[0].length / 4);
    for (uint32_t i = 1; i < p->count; i++) {
        if (p->part_count + 3 > PARTS_MAX)
            return cli_fail(order->command,
                            "parameter %s has the states of %" PRIu32 " optimizers, which is too "
                            "many for this command: write the values alone",
                            order->parameter, p->count - 1);
        add_state(p, i);
    }
    return 0;
}

static void close_parameter(struct parameter *p)
{
    for (uint32_t i = 0; p->stored && i < p->count; i++)
        free(p->stored[i].bytes);
    free(p->stored);
    free(p);
}

static int read_parameter(const struct ckpt_parameter_order *order, const struct ckpt_chain *chain,
                          struct parameter *p)
{
    struct ckpt_progress progress;
    const struct ps_chain_link *last = ps_chain_part_last(&chain->files, 0);
    const int exit_code = ckpt_parameter_find(order, chain, p);
    if (exit_code != 0)
        return exit_code;
    if (!make_room(p))
        return cli_fail(order->command, "no memory for parameter %s", order->parameter);
    ckpt_progress_begin(&progress, "read", ps_manifest_block_bytes(&last->manifest));
    progress.is_on = progress.is_on && (order->out || isatty(STDOUT_FILENO) == 0);
    const enum mr_status status = ckpt_link_each(last, ckpt_parameter_take, p, &progress, p->text);
    ckpt_progress_end(&progress);
    return status == MR_OK ? ckpt_parameter_split(order, p) : cli_fail(order->command, "%s", p->text);
}

/* Reads the parameter, has it written, and frees it. */
static int with_parameter(const struct ckpt_parameter_order *order,
                          int (*write)(const struct ckpt_parameter_order *order, const struct parameter *p))
{
    struct ckpt_chain chain = {0};
    struct parameter *p = calloc(1, sizeof(*p));
    if (!p)
        return cli_fail(order->command, "no memory");
    int exit_code = ckpt_open(order->command, order->path, &chain);
    if (exit_code == 0)
        exit_code = read_parameter(order, &chain, p);
    if (exit_code == 0)
        exit_code = write(order, p);
    close_parameter(p);
    ckpt_chain_close(&chain);
    return exit_code;
}

/* ---- CSV ---- */

static void put_line(struct ckpt_column *column, const struct part *part, uint64_t i)
{
    char text[PART_NAME_BYTES + 2 * NUMBER_BYTES];
    int n = snprintf(text, sizeof(text), "%s,%" PRIu64 ",", part->name, i);
    uint32_t bits;
    float value;
    memcpy(&bits, part->data + 4 * i, sizeof(bits));
    memcpy(&value, &bits, sizeof(value));
    n += part->dtype == MR_U32 ? snprintf(text + n, sizeof(text) - (size_t)n, "%" PRIu32 "\n", bits)
                               : snprintf(text + n, sizeof(text) - (size_t)n, "%.9g\n", (double)value);
    ckpt_column_put(column, text, (size_t)n);
}

static int csv(const struct ckpt_parameter_order *order, const struct parameter *p)
{
    static const char heading[] = "part,index,value\n";
    struct ckpt_text out;
    const int exit_code = ckpt_text_open(&out, order->command, order->out);
    if (exit_code != 0)
        return exit_code;
    ckpt_column_put(&out.column, heading, sizeof(heading) - 1);
    for (uint32_t k = 0; k < p->part_count; k++)
        for (uint64_t i = 0; i < p->parts[k].elements && out.column.error == 0; i++)
            put_line(&out.column, &p->parts[k], i);
    return ckpt_text_close(&out, "the values", NULL);
}

int ckpt_parameter_csv(const struct ckpt_parameter_order *order)
{
    return with_parameter(order, csv);
}

/* ---- arrays ---- */

struct span {
    const void *bytes;
    uint64_t length, offset; /* in the file */
};

static int write_spans(const struct ckpt_output *output, const struct span *spans, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ckpt_column column;
        if (!ckpt_column_open(&column, output->fd, false, spans[i].offset))
            return -ENOMEM;
        ckpt_column_put(&column, spans[i].bytes, spans[i].length);
        const int error = ckpt_column_close(&column);
        if (error != 0)
            return error;
    }
    return 0;
}

static int write_file(const char *command, const char *path, const struct span *spans, uint32_t count)
{
    struct ckpt_output output;
    int error = ckpt_output_create(&output, path);
    if (error != 0)
        return cli_fail(command, "create %s: %s", path, strerror(-error));
    error = write_spans(&output, spans, count);
    if (error == 0)
        error = ckpt_output_commit(&output);
    ckpt_output_discard(&output);
    return error == 0 ? 0 : cli_fail(command, "write %s: %s", path, strerror(-error));
}

static uint32_t dimension(const struct part *part, uint32_t i)
{
    return i < part->rank ? part->dims[i] : 0;
}

static int write_npy(const char *command, const char *path, const struct part *part)
{
    uint8_t header[NPY_HEADER_BYTES];
    const struct tool_npy_field field = {.dtype = part->dtype,
                                         .columns = dimension(part, 1),
                                         .more = {dimension(part, 2), dimension(part, 3)}};
    const size_t header_bytes = tool_npy_header(&field, 1, dimension(part, 0), header, sizeof(header));
    const struct span spans[2] = {{header, header_bytes, 0}, {part->data, 4 * part->elements, header_bytes}};
    return write_file(command, path, spans, 2);
}

static int npy(const struct ckpt_parameter_order *order, const struct parameter *p)
{
    return write_npy(order->command, order->out, &p->parts[0]);
}

int ckpt_parameter_npy(const struct ckpt_parameter_order *order)
{
    struct ckpt_parameter_order values = *order;
    values.with_state = false;
    return with_parameter(&values, npy);
}

/* A name may have slashes, a file's may not. */
static bool part_path(const char *directory, const struct part *part, char path[CKPT_OUTPUT_PATH_BYTES])
{
    const int n = snprintf(path, CKPT_OUTPUT_PATH_BYTES, "%s/%s.npy", directory, part->name);
    if (n < 0 || n >= (int)CKPT_OUTPUT_PATH_BYTES)
        return false;
    for (char *c = path + strlen(directory) + 1; *c != '\0'; c++)
        *c = *c == '/' ? '_' : *c;
    return true;
}

static int npy_files(const struct ckpt_parameter_order *order, const struct parameter *p)
{
    char path[CKPT_OUTPUT_PATH_BYTES];
    int exit_code = 0;
    if (mkdir(order->out, 0777) != 0 && errno != EEXIST)
        return cli_fail(order->command, "make directory %s: %s", order->out, strerror(errno));
    for (uint32_t i = 0; i < p->part_count && exit_code == 0; i++)
        exit_code = part_path(order->out, &p->parts[i], path)
                        ? write_npy(order->command, path, &p->parts[i])
                        : cli_fail(order->command, "create %s: %s", order->out, strerror(ENAMETOOLONG));
    return exit_code;
}

int ckpt_parameter_npy_files(const struct ckpt_parameter_order *order)
{
    return with_parameter(order, npy_files);
}

static json_t *metadata_of(const struct ckpt_parameter_order *order, const struct parameter *p)
{
    json_t *o = json_pack("{s:s, s:s}", "format", "millrace", "parameter", order->parameter);
    json_object_set_new(o, "checkpoint", json_sprintf("%" PRIu64, p->manifest->id));
    for (uint32_t i = 1; i < p->count; i++) {
        const struct ps_saved_parameter *state = &p->manifest->parameters[p->first + i];
        char name[MR_NAME_BYTES + 8];
        (void)snprintf(name, sizeof(name), "%s.steps", state->optimizer);
        json_object_set_new(o, name, json_sprintf("%" PRIu64, state->step));
    }
    return o;
}

static int safetensors(const struct ckpt_parameter_order *order, const struct parameter *p)
{
    struct tool_safetensor tensors[PARTS_MAX];
    struct span spans[PARTS_MAX + 1];
    size_t header_bytes;
    for (uint32_t i = 0; i < p->part_count; i++) {
        const struct part *part = &p->parts[i];
        tensors[i] = (struct tool_safetensor){.name = part->name,
                                              .dtype = part->dtype,
                                              .rows = dimension(part, 0),
                                              .columns = dimension(part, 1),
                                              .more = {dimension(part, 2), dimension(part, 3)}};
    }
    json_t *metadata = metadata_of(order, p);
    char *header = tool_safetensors_header(tensors, p->part_count, metadata, &header_bytes);
    json_decref(metadata);
    if (!header)
        return cli_fail(order->command, "no memory for the header");
    spans[0] = (struct span){header, header_bytes, 0};
    for (uint32_t i = 0; i < p->part_count; i++)
        spans[i + 1] = (struct span){p->parts[i].data, 4 * p->parts[i].elements, tensors[i].offset};
    const int exit_code = write_file(order->command, order->out, spans, p->part_count + 1);
    free(header);
    return exit_code;
}

int ckpt_parameter_safetensors(const struct ckpt_parameter_order *order)
{
    return with_parameter(order, safetensors);
}
