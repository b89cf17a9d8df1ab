/* millrace ckpt info. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/base/plural.h"
#include "tools/ckpt/ckpt.h"
#include "tools/commands.h"
#include "tools/ctl/feature_text.h"
#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/base/printable.h"

#define COMMAND        "millrace ckpt info"
#define NAMES_BYTES    (UINT64_C(64) << 20) /* for counting clients and streams: a server has far fewer */
#define STREAM_APPLIED 0u                   /* row_bytes of a record of what a stream has applied */
#define UUID_BYTES     16u
enum { STREAMS, CLIENTS, PUSH_STREAMS, COUNTED };

struct info {
    struct ckpt_chain chain;
    uint64_t *rows; /* live, by feature id */
    /* of streams, clients and push streams, hashed; each counts once however many cores know it */
    struct ckpt_map *names;
    uint64_t counts[COUNTED];
    uint64_t observations_bytes;
    uint64_t disk_bytes; /* of all links */
    char time[CKPT_TIME_BYTES];
    char text[PS_TEXT_BYTES];
};

static enum mr_status count_rows(void *arg, const struct ckpt_rows *rows)
{
    ((struct info *)arg)->rows[rows->feature] += rows->count;
    return MR_OK;
}

static enum mr_status count_name(struct info *x, uint32_t what, uint64_t name)
{
    bool is_new;
    if (!ckpt_map_add(x->names, what, name, 0, &is_new)) {
        (void)snprintf(x->text, PS_TEXT_BYTES,
                       "%.150s: it knows more clients and streams than any server has",
                       ps_chain_path(&x->chain.files));
        return MR_NO_MEMORY;
    }
    x->counts[what] += is_new;
    return MR_OK;
}

static uint64_t uuid_name(const uint8_t *uuid)
{
    uint64_t halves[2];
    memcpy(halves, uuid, sizeof(halves));
    return mr_key_hash(halves[0], mr_key_hash(halves[1], 0));
}

static enum mr_status count_small(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct info *x = arg;
    uint64_t stream;
    const struct ps_stored_pushes *pushes = (const struct ps_stored_pushes *)(const void *)bytes;
    const struct ps_stored_push_stream *push_stream =
        (const struct ps_stored_push_stream *)(const void *)bytes;
    switch (record->kind) {
    case PS_RECORD_STREAM:
        memcpy(&stream, bytes, sizeof(stream));
        return record->row_bytes != STREAM_APPLIED ? MR_OK : count_name(x, STREAMS, stream);
    case PS_RECORD_CLIENT:
        return count_name(x, CLIENTS, uuid_name(bytes));
    case PS_RECORD_PUSHES:
        return count_name(x, PUSH_STREAMS, mr_key_hash(uuid_name(bytes), pushes->stream_id));
    case PS_RECORD_PUSH_STREAM:
        return count_name(x, PUSH_STREAMS, mr_key_hash(uuid_name(bytes), push_stream->stream_id));
    case PS_RECORD_OBSERVATIONS:
        x->observations_bytes += record->bytes;
        return MR_OK;
    default:
        return MR_OK;
    }
}

static enum mr_status count_all(struct info *x, uint32_t memory_mib)
{
    struct ckpt_progress progress;
    struct ckpt_live live;
    ckpt_progress_begin(&progress, "info", ps_chain_bytes(&x->chain.files));
    enum mr_status status =
        ckpt_live_open(&live, &x->chain, 0, (uint64_t)memory_mib << 20, &progress, x->text);
    if (status == MR_OK)
        status = ckpt_live_all(&live, count_rows, count_small, x, x->text);
    ckpt_live_close(&live);
    ckpt_progress_end(&progress);
    return status;
}

/* ---- output ---- */

static uint64_t feature_bytes(const struct info *x, uint32_t index)
{
    const struct ps_manifest *m = ps_chain_manifest(&x->chain.files);
    const uint32_t id = m->feature_ids[index];
    return x->rows[id] * (sizeof(uint64_t) + x->chain.rows[id].bytes);
}

static json_t *feature_info_json(const struct info *x, uint32_t index)
{
    char options[TOOL_FEATURE_OPTIONS_BYTES];
    const struct ps_manifest *m = ps_chain_manifest(&x->chain.files);
    const struct mr_feature *f = &m->features[index];
    json_t *o = tool_feature_json(f);
    tool_feature_options(f, options, sizeof(options));
    json_object_set_new(o, "id", json_integer(m->feature_ids[index]));
    json_object_set_new(o, "options", json_string(options));
    if (f->kind == MR_TABLE) {
        json_object_set_new(o, "rows", json_integer((json_int_t)x->rows[m->feature_ids[index]]));
        json_object_set_new(o, "bytes", json_integer((json_int_t)feature_bytes(x, index)));
    }
    return o;
}

static json_t *parameter_json(const struct ps_saved_parameter *p)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < p->rank; i++)
        json_array_append_new(shape, json_integer(p->dims[i]));
    return json_pack("{s:s, s:o, s:o, s:I, s:I}", "name", p->name, "optimizer",
                     p->optimizer[0] != '\0' ? json_string(p->optimizer) : json_null(), "shape", shape,
                     "step", (json_int_t)p->step, "bytes", (json_int_t)ps_saved_parameter_bytes(p));
}

/* What the checkpoint of this part builds on. */
static void print_parents(const struct ps_chain *files, uint32_t part)
{
    const struct ps_chain_part *p = &files->parts[part];
    if (p->count > 1)
        (void)printf(", on");
    for (uint32_t i = 0; i + 1 < p->count; i++)
        (void)printf(" ckpt-%" PRIu64, files->links[p->first + i]->manifest.id);
}

static uint32_t partitions_of(const struct ps_cluster_manifest *cluster, uint32_t part)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        count += cluster->owner[p] == part;
    return count;
}

static void print_part(const struct ps_chain *files, uint32_t part)
{
    const struct ps_manifest *m = &ps_chain_part_last(files, part)->manifest;
    char bytes[16];
    ckpt_size_text(ps_manifest_block_bytes(m), bytes);
    (void)printf("node         %s: %" PRIu32 " core%s, %" PRIu32 " of %u partitions, %s, %s",
                 files->cluster->parts[part].name, m->file_count, mr_plural(m->file_count),
                 partitions_of(files->cluster, part), MR_PARTITION_COUNT, bytes,
                 m->parent != 0 ? "delta" : "full");
    print_parents(files, part);
    if (m->parameter_count > 0)
        (void)printf(", %" PRIu32 " parameters and states", m->parameter_count);
    (void)printf("\n");
}

static json_t *parts_json(const struct ps_chain *files)
{
    json_t *list = json_array();
    for (uint32_t part = 0; part < files->part_count; part++) {
        const struct ps_manifest *m = &ps_chain_part_last(files, part)->manifest;
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "name",
                                        files->cluster->parts[part].name, "cores", (json_int_t)m->file_count,
                                        "partitions", (json_int_t)partitions_of(files->cluster, part),
                                        "links", (json_int_t)files->parts[part].count, "bytes",
                                        (json_int_t)ps_manifest_block_bytes(m), "parameters",
                                        (json_int_t)m->parameter_count));
    }
    return list;
}

static int print_json(const struct info *x)
{
    const struct ps_manifest *m = ps_chain_manifest(&x->chain.files);
    json_t *chain = json_array(), *features = json_array();
    for (uint32_t i = 0; i < x->chain.files.count; i++)
        json_array_append_new(chain, json_integer((json_int_t)x->chain.files.links[i]->manifest.id));
    for (uint32_t i = 0; i < m->feature_count; i++)
        json_array_append_new(features, feature_info_json(x, i));
    json_t *o = json_pack("{s:I, s:s, s:o, s:I, s:s, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I}", "id",
                          (json_int_t)m->id, "kind", ckpt_kind_name(&x->chain), "chain", chain, "format",
                          (json_int_t)m->version, "time", x->time, "incarnation", (json_int_t)m->incarnation,
                          "cores", (json_int_t)m->file_count, "features", features, "streams",
                          (json_int_t)x->counts[STREAMS], "clients", (json_int_t)x->counts[CLIENTS],
                          "push_streams", (json_int_t)x->counts[PUSH_STREAMS], "observations_bytes",
                          (json_int_t)x->observations_bytes, "bytes", (json_int_t)x->disk_bytes);
    json_object_set_new(o, "step", m->step > 0 ? json_integer((json_int_t)m->step) : json_null());
    json_object_set_new(o, "at_step", json_boolean(m->is_at_step));
    json_t *needs = json_array();
    for (uint32_t bit = 0; bit < 64; bit++)
        if ((m->needs >> bit & 1) != 0)
            json_array_append_new(needs, json_string(mr_capability_name(bit)));
    json_object_set_new(o, "needs", needs);
    json_object_set_new(o, "written_by", m->needs != 0 ? json_string(m->written_by) : json_null());
    json_t *parameters = json_array();
    for (uint32_t i = 0; i < m->parameter_count; i++)
        json_array_append_new(parameters, parameter_json(&m->parameters[i]));
    json_object_set_new(o, "parameters", parameters);
    if (x->chain.files.cluster)
        json_object_set_new(o, "nodes", parts_json(&x->chain.files));
    return tool_print_json(COMMAND, o);
}

static void print_head(const struct info *x)
{
    const struct ps_chain *files = &x->chain.files;
    const struct ps_manifest *m = ps_chain_manifest(files);
    char disk[16];
    ckpt_size_text(x->disk_bytes, disk);
    (void)printf("checkpoint   %s\nkind         %s", ps_chain_path(files), ckpt_kind_name(&x->chain));
    if (!files->cluster) {
        print_parents(files, 0);
        (void)printf("\nwritten      %s UTC, by incarnation %" PRIu32 " on %" PRIu32
                     " core%s, format %" PRIu32 "\n",
                     x->time, m->incarnation, m->file_count, mr_plural(m->file_count), m->version);
    } else {
        (void)printf("\nwritten      %s UTC, by %" PRIu32 " node%s, format %" PRIu32 "\n", x->time,
                     files->part_count, mr_plural(files->part_count), m->version);
    }
    for (uint32_t part = 0; files->cluster && part < files->part_count; part++)
        print_part(files, part);
    if (m->needs != 0) {
        char needs[PS_TEXT_BYTES], version[4 * MR_VERSION_TEXT_BYTES];
        mr_capability_text(m->needs, needs, sizeof(needs));
        (void)mr_printable(version, sizeof(version), m->written_by, strlen(m->written_by));
        (void)printf("needs        %s (written by version %s)\n", needs, version);
    }
    if (m->step > 0)
        (void)printf("step         %" PRIu64 "%s\n", m->step,
                     m->is_at_step ? ": all pushes up to it, none after it" : " or later");
    (void)printf("files        %s\nstreams      %" PRIu64 "\nclients      %" PRIu64 "\npush streams %" PRIu64
                 "\n",
                 disk, x->counts[STREAMS], x->counts[CLIENTS], x->counts[PUSH_STREAMS]);
    if (x->observations_bytes > 0) {
        ckpt_size_text(x->observations_bytes, disk);
        (void)printf("observations    %s\n", disk);
    }
}

static void print_parameters(const struct ps_manifest *m)
{
    if (m->parameter_count > 0)
        (void)printf("\n%-40s %-24s %12s %12s\n", "parameter", "state of optimizer", "bytes", "step");
    for (uint32_t i = 0; i < m->parameter_count; i++) {
        const struct ps_saved_parameter *p = &m->parameters[i];
        char bytes[16];
        ckpt_size_text(ps_saved_parameter_bytes(p), bytes);
        (void)printf("%-40s %-24s %12s %12" PRIu64 "\n", p->name,
                     p->optimizer[0] != '\0' ? p->optimizer : "-", bytes, p->step);
    }
}

static void print_text(const struct info *x)
{
    const struct ps_manifest *m = ps_chain_manifest(&x->chain.files);
    print_head(x);
    if (m->feature_count > 0)
        (void)printf("\n%5s  %-24s %-24s %12s %12s  %s\n", "id", "name", "shape", "rows", "bytes", "options");
    for (uint32_t i = 0; i < m->feature_count; i++) {
        char shape[64], options[TOOL_FEATURE_OPTIONS_BYTES], rows[24] = "-", bytes[16] = "-";
        const struct mr_feature *f = &m->features[i];
        tool_feature_shape(f, shape, sizeof(shape));
        tool_feature_options(f, options, sizeof(options));
        if (f->kind == MR_TABLE) {
            (void)snprintf(rows, sizeof(rows), "%" PRIu64, x->rows[m->feature_ids[i]]);
            ckpt_size_text(feature_bytes(x, i), bytes);
        }
        (void)printf("%5" PRIu32 "  %-24.63s %-24s %12s %12s  %s\n", m->feature_ids[i], f->name, shape, rows,
                     bytes, options);
    }
    print_parameters(m);
}

static int look_at(struct info *x, uint32_t memory_mib)
{
    x->rows = calloc(PS_FEATURE_ID_MAX + 1u, sizeof(*x->rows));
    x->names = ckpt_map_create(NAMES_BYTES);
    if (!x->rows || !x->names)
        return cli_fail(COMMAND, "no memory");
    for (uint32_t i = 0; i < x->chain.files.count; i++) {
        uint64_t bytes;
        if (!ckpt_link_facts(x->chain.files.links[i], x->time, &bytes))
            return cli_fail(COMMAND, "%s: a file that its MANIFEST names is missing",
                            x->chain.files.links[i]->path);
        x->disk_bytes += bytes;
    }
    const struct ps_cluster_manifest *cluster = x->chain.files.cluster;
    uint64_t ignored;
    if (cluster && !ckpt_facts(&x->chain, x->time, &ignored))
        return cli_fail(COMMAND, "%s: a part of it is missing", ps_chain_path(&x->chain.files));
    return count_all(x, memory_mib) == MR_OK ? 0 : cli_fail(COMMAND, "%s", x->text);
}

int ckpt_info(int argc, char **argv)
{
    bool json = false;
    uint32_t memory_mib = CKPT_MEMORY_MIB_DEFAULT;
    const struct cli_option options[] = {
        CKPT_MEMORY_OPTION(&memory_mib, "for the keys of deltas"),
        {"json", CLI_FLAG, &json, NULL, "print one JSON value instead of text"},
    };
    const struct cli_usage usage = {
        .program = COMMAND,
        .synopsis = "DIR/ckpt-N [options]",
        .summary = "Shows what a checkpoint holds, together with those that it builds on: tables and\n"
                   "variables, with the options of \"millrace ctl create\" that create them, the number of\n"
                   "rows of each table, parameters and optimizers' states, the streams of batches, and the\n"
                   "clients. It reads all blocks.\n"
                   "\n"
                   "  millrace ckpt info /var/lib/millrace/ckpt-7",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = 1,
    };
    const char *path;
    struct info x = {0};
    (void)cli_parse(&usage, argc, argv, &path);
    int exit_code = ckpt_open(COMMAND, path, &x.chain);
    if (exit_code == 0)
        exit_code = look_at(&x, memory_mib);
    if (exit_code == 0 && json)
        exit_code = print_json(&x);
    else if (exit_code == 0)
        print_text(&x);
    ckpt_map_destroy(x.names);
    free(x.rows);
    ckpt_chain_close(&x.chain);
    return exit_code;
}
