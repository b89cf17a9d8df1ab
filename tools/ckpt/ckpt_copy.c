/* millrace ckpt push, pull. */
#include <inttypes.h>
#include <stdio.h>

#include "dataplane/wire/base/cli.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/store/copy.h"
#include "ps/store/store_url.h"
#include "tools/ckpt/ckpt.h"
#include "tools/ckpt/ckpt_store.h"

struct places {
    const char *command;
    char from[PS_PATH_BYTES], to[PS_PATH_BYTES];
    uint64_t id; /* 0: the newest */
    uint32_t rate_mib_s;
};

static void ckpt_copy_show(void *arg, uint64_t bytes)
{
    ckpt_progress_add(arg, bytes);
}

static int find_newest(struct places *p)
{
    uint32_t count = 0;
    const int error = ps_checkpoint_list_all(ckpt_store_of(p->from), p->from, &p->id, 1, &count);
    char text[PS_TEXT_BYTES];
    if (error != 0) {
        ps_text_io(text, "list", p->from, -error);
        return cli_fail(p->command, "%s", text);
    }
    return count > 0 ? 0 : cli_fail(p->command, "%s: there is no checkpoint here", p->from);
}

static int ckpt_copy_copy(const struct places *p)
{
    char text[PS_TEXT_BYTES], size[16];
    struct ckpt_progress progress;
    uint64_t bytes = 0;
    const struct ps_copy job = {.from = ckpt_store_of(p->from),
                                .to = ckpt_store_of(p->to),
                                .from_directory = p->from,
                                .to_directory = p->to,
                                .bytes_per_s_max = (uint64_t)p->rate_mib_s << 20,
                                .progress = ckpt_copy_show,
                                .arg = &progress};
    enum mr_status status = ps_copy_measure(&job, p->id, &bytes, text);
    ckpt_progress_begin(&progress, "copy", bytes);
    if (status == MR_OK)
        status = ps_copy_chain(&job, p->id, text);
    ckpt_progress_end(&progress);
    if (status != MR_OK)
        return cli_fail(p->command, "%s", text);
    ckpt_size_text(progress.done_bytes, size);
    const bool is_clusters = ps_cluster_manifest_is_there(ckpt_store_of(p->to), p->to, p->id);
    (void)printf("%s/%s-%" PRIu64 ": %s copied\n", p->to, is_clusters ? "CLUSTER" : "ckpt", p->id, size);
    return 0;
}

static int ckpt_copy_parse(struct places *p, const struct cli_usage *usage, int argc, char **argv)
{
    const char *paths[2];
    uint64_t to_id;
    (void)cli_parse(usage, argc, argv, paths);
    p->command = usage->program;
    int exit_code = ckpt_place_open(p->command, paths[0], p->from, &p->id);
    if (exit_code == 0)
        exit_code = ckpt_place_open(p->command, paths[1], p->to, &to_id);
    if (exit_code == 0 && to_id != 0)
        exit_code = cli_fail(p->command, "%s: name the directory that checkpoints are to be in", paths[1]);
    return exit_code == 0 && p->id == 0 ? find_newest(p) : exit_code;
}

#define RATE_OPTION(value)                                                                                   \
    {                                                                                                        \
        "rate-mib-s", CLI_U32, (value), "N", "copy at most N MiB per second; default: no limit"              \
    }

int ckpt_push(int argc, char **argv)
{
    struct places p = {0};
    const struct cli_option options[] = {RATE_OPTION(&p.rate_mib_s)};
    const struct cli_usage usage = {
        .program = "millrace ckpt push",
        .synopsis = "DIR|DIR/ckpt-N URL [options]",
        .summary = "Copies a checkpoint, or the newest one of a directory, with all that it builds on\n"
                   "to a store: hdfs://NAMENODE:PORT/PATH?user.name=NAME or\n"
                   "s3://BUCKET/PREFIX?endpoint=URL&region=R. What is there already is not copied again.\n"
                   "Keys of S3 are taken from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from the file\n"
                   "that AWS_SHARED_CREDENTIALS_FILE names.\n\n"
                   "  millrace ckpt push /var/lib/millrace 'hdfs://namenode:9870/models?user.name=mill'",
        CLI_OPTIONS(options),
        .words_min = 2,
        .words_max = 2,
    };
    const int exit_code = ckpt_copy_parse(&p, &usage, argc, argv);
    return exit_code == 0 ? ckpt_copy_copy(&p) : exit_code;
}

int ckpt_pull(int argc, char **argv)
{
    struct places p = {0};
    char text[PS_TEXT_BYTES];
    int lock = PS_NO_LOCK;
    const struct cli_option options[] = {RATE_OPTION(&p.rate_mib_s)};
    const struct cli_usage usage = {
        .program = "millrace ckpt pull",
        .synopsis = "URL|URL/ckpt-N DIR [options]",
        .summary = "Copies a checkpoint, or the newest one of a store, with all that it builds on to a\n"
                   "directory of this machine, and checks every block on the way. What is there already is\n"
                   "not copied again. No server may be writing to that directory.\n\n"
                   "  millrace ckpt pull 'hdfs://namenode:9870/models?user.name=mill' /var/lib/millrace",
        CLI_OPTIONS(options),
        .words_min = 2,
        .words_max = 2,
    };
    int exit_code = ckpt_copy_parse(&p, &usage, argc, argv);
    if (exit_code != 0)
        return exit_code;
    if (ps_store_url_is_remote(p.to))
        return cli_fail(p.command,
                        "%s: pull copies to a directory of this machine; millrace ckpt push copies to "
                        "a store",
                        p.to);
    if (ps_checkpoint_lock(p.to, p.command, &lock, text) != MR_OK)
        return cli_fail(p.command, "%s", text);
    exit_code = ckpt_copy_copy(&p);
    ps_checkpoint_unlock(lock);
    return exit_code;
}
