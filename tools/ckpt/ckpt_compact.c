/* millrace ckpt compact. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/wire/base/plural.h"
#include "tools/ckpt/ckpt.h"
#include "tools/ckpt/ckpt_make.h"
#include "dataplane/wire/base/cli.h"

#define COMMAND "millrace ckpt compact"

struct compacting {
    struct ckpt_make make;
    const struct ps_manifest *manifest;
};

static enum mr_status take_rows(void *arg, const struct ckpt_rows *rows)
{
    return ckpt_make_rows(&((struct compacting *)arg)->make, rows) ? MR_OK : MR_IO_ERROR;
}

/* Records of a core go into its file, where a restore onto as many cores takes them from. */
static enum mr_status take_small(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct compacting *c = arg;
    const uint32_t cores = c->make.core_count;
    uint32_t core = 0;
    if (record->kind == PS_RECORD_STREAM || record->kind == PS_RECORD_CLIENT ||
        record->kind == PS_RECORD_PUSHES || record->kind == PS_RECORD_PUSH_STREAM)
        core = record->feature < cores ? record->feature : 0;
    else if (record->kind == PS_RECORD_OBSERVATIONS && record->offset < MR_PARTITION_COUNT)
        core = (uint32_t)(record->offset * cores / MR_PARTITION_COUNT);
    /* A variable or a filter whose feature the last link no longer has. */
    const bool is_stale = (record->kind == PS_RECORD_OBSERVATIONS || record->kind == PS_RECORD_VARIABLE) &&
                          ps_manifest_feature_kind(c->manifest, record->feature) == 0;
    return is_stale || ckpt_make_record(&c->make, core, record, bytes) ? MR_OK : MR_IO_ERROR;
}

static enum mr_status ckpt_compact_copy(struct compacting *c, const struct ckpt_chain *chain,
                                        uint32_t memory_mib, char *text)
{
    struct ckpt_progress progress;
    struct ckpt_live live;
    ckpt_progress_begin(&progress, "compact", ps_chain_bytes(&chain->files));
    enum mr_status status = ckpt_live_open(&live, chain, 0, (uint64_t)memory_mib << 20, &progress, text);
    if (status == MR_OK)
        status = ckpt_live_all(&live, take_rows, take_small, c, text);
    ckpt_live_close(&live);
    ckpt_progress_end(&progress);
    return status;
}

/* Nodes have records and parameters of their own, which one full could not keep apart. */
static int refuse_cluster(const struct ckpt_chain *chain)
{
    return cli_fail(
        COMMAND, "%s: it is a cluster's; compact the checkpoints of its nodes to other directories (--out)",
        ps_chain_path(&chain->files));
}

static int write_full(const struct ckpt_chain *chain, const char *directory, uint64_t id, uint32_t memory_mib)
{
    char text[PS_TEXT_BYTES] = "", why[PS_TEXT_BYTES] = "", size[16];
    uint64_t bytes;
    const struct ps_manifest *last = ps_chain_manifest(&chain->files);
    struct compacting c = {.manifest = last};
    struct ps_writer_options options = {.directory = directory,
                                        .features = last->features,
                                        .feature_ids = last->feature_ids,
                                        .feature_count = last->feature_count,
                                        .id = id,
                                        .ancestry = &last->ancestry,
                                        .step = last->step,
                                        .clock_s = last->clock_s,
                                        .is_at_step = last->is_at_step,
                                        .is_partial = last->is_partial,
                                        .core_count = last->file_count,
                                        .incarnation = last->incarnation};
    if (ckpt_make_start(&c.make, &options, text) != MR_OK)
        return cli_fail(COMMAND, "%s", text);
    enum mr_status status = ps_writer_set_parameters(c.make.writer, last->parameters, last->parameter_count);
    if (status == MR_OK)
        status = ckpt_compact_copy(&c, chain, memory_mib, text);
    else
        (void)snprintf(text, sizeof(text), "no memory");
    /* What a failed write says is in the writer. */
    const bool is_writer = status == MR_IO_ERROR && text[0] == '\0';
    enum mr_status finished = ckpt_make_finish(&c.make, status == MR_OK || is_writer, &bytes, why);
    if (status != MR_OK || finished != MR_OK)
        return cli_fail(COMMAND, "%s", finished != MR_OK ? why : text);
    ckpt_size_text(bytes, size);
    (void)printf("%s/ckpt-%" PRIu64 ": full, %s, from %" PRIu32 " checkpoint%s up to ckpt-%" PRIu64 "\n",
                 directory, id, size, chain->files.count, mr_plural(chain->files.count), last->id);
    return 0;
}

/* Beside the chain it gets the next id, so that it is what a server restores. */
static int write_beside(const struct ckpt_chain *chain, const char *directory, uint32_t memory_mib)
{
    char text[PS_TEXT_BYTES];
    uint64_t next;
    const uint64_t id = ps_chain_manifest(&chain->files)->id;
    if (ps_chain_links(&chain->files) == 1) {
        (void)printf("%s is a full already\n", ps_chain_path(&chain->files));
        return 0;
    }
    if (ps_checkpoint_next_id(NULL, directory, &next, text) != MR_OK)
        return cli_fail(COMMAND, "%s", text);
    if (next - 1 != id)
        return cli_fail(COMMAND,
                        "%s: ckpt-%" PRIu64
                        " is newer, and a full made of this one would be restored instead of it; "
                        "name another directory with --out",
                        ps_chain_path(&chain->files), next - 1);
    return write_full(chain, directory, next, memory_mib);
}

int ckpt_compact(int argc, char **argv)
{
    const char *out = NULL;
    uint32_t memory_mib = CKPT_MEMORY_MIB_DEFAULT;
    const struct cli_option options[] = {
        {"out", CLI_STRING, &out, "DIR", "write the checkpoint to this directory, under the same number"},
        CKPT_MEMORY_OPTION(&memory_mib, "for the keys of deltas"),
    };
    const struct cli_usage usage = {
        .program = COMMAND,
        .synopsis = "DIR/ckpt-N [options]",
        .summary = "Writes a checkpoint, together with those that it builds on, as one full checkpoint.\n"
                   "Without --out it is written to the same directory under the next number; this works\n"
                   "only for the newest checkpoint, and only while no server writes to the directory. The\n"
                   "old checkpoints stay. The new one appears once all of it is on disk, or not at all.\n"
                   "\n"
                   "  millrace ckpt compact /var/lib/millrace/ckpt-9 --out /backup/millrace",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = 1,
    };
    const char *path;
    char directory[PS_PATH_BYTES];
    uint64_t id;
    struct ckpt_chain chain = {0};
    (void)cli_parse(&usage, argc, argv, &path);
    int exit_code = ckpt_open(COMMAND, path, &chain);
    if (exit_code != 0)
        return exit_code;
    (void)ckpt_path_split(path, directory, &id);
    if (chain.files.cluster) {
        exit_code = refuse_cluster(&chain);
        ckpt_chain_close(&chain);
        return exit_code;
    }
    exit_code = out ? write_full(&chain, out, ps_chain_manifest(&chain.files)->id, memory_mib)
                    : write_beside(&chain, directory, memory_mib);
    ckpt_chain_close(&chain);
    return exit_code;
}
