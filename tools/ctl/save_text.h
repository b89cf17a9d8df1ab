/* What the tools say of saves, and of how one is getting on: texts of numbers, pure. Sizes are in MiB
 * throughout. */
#ifndef TOOL_SAVE_TEXT_H
#define TOOL_SAVE_TEXT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include "millrace_admin.h"

#define TOOL_SAVE_LINE_BYTES 512u

static inline double tool_mib(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

/* "ended", "cancelled", "waits for step", ... */
const char *tool_save_state_name(const struct mr_save_info *save);
/* "-" for what is not copied, "pending", "there", "superseded". */
const char *tool_save_remote_name(const struct mr_save_info *save);
/* "full", "delta", or "-" as long as it is not known. */
const char *tool_save_kind_name(const struct mr_save_info *save);
/* Whether it is of the whole of a cluster, in_cluster: of which a node knows no kind and no size, and before
 * 0.3.0 no time; of its own part it does. */
static inline bool tool_save_is_whole(const struct mr_save_info *save, bool in_cluster)
{
    return in_cluster && save->bytes == 0;
}
/* "saved checkpoint 7 of step 50: full, 12.0 MiB in 0.52 s", with what is known of it. */
void tool_save_done(const struct mr_save_info *save, bool in_cluster, char *out, size_t out_bytes);
/* The line of the last save that a server began: how it ended, or that none has. */
void tool_save_last(const struct mr_checkpoint_info *status, char *out, size_t out_bytes);
json_t *tool_save_json(const struct mr_save_info *save);
/* Where a save stands, without its end: "it waits for step 5000, where 1 of 2 trainers are". */
void tool_save_stands(const struct mr_save_info *save, const struct mr_checkpoint_info *info,
                      char out[TOOL_SAVE_LINE_BYTES]);
/* "12.0 of 400.0 MiB, 250.0 MiB/s"; without a rate when no time has passed. */
void tool_save_progress(uint64_t bytes_done, uint64_t bytes_total, uint64_t duration_us, char *out,
                        size_t out_bytes);
/* " of step 40, cut at that step", " of step 40", or "" of step 0. */
void tool_save_step(uint64_t step, bool is_at_step, char *out, size_t out_bytes);

#endif
