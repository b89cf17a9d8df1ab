/* Verifying checkpoints of one directory, each of their files once however many chains it is part of. */
#ifndef TOOL_CKPT_VERIFY_H
#define TOOL_CKPT_VERIFY_H

#include <stdbool.h>
#include <stdint.h>
#include "tools/ckpt/ckpt_chain.h"

struct ckpt_checked {
    char path[PS_PATH_BYTES]; /* nodes of a cluster have checkpoints of the same number */
    enum mr_status status;
    char text[PS_TEXT_BYTES];
};

struct ckpt_check {
    struct ckpt_checked *done; /* what was found, by checkpoint */
    uint32_t count;
    struct ckpt_progress progress;
};

void ckpt_check_begin(struct ckpt_check *check, uint64_t total_bytes);
void ckpt_check_end(struct ckpt_check *check);
/* MR_OK when every block of every link verifies; else `text` (PS_TEXT_BYTES) names file and block of the
 * first that does not. */
enum mr_status ckpt_check_chain(struct ckpt_check *check, const struct ckpt_chain *chain, char *text);

/* The checkpoint that the path names, or all published ones of the directory, oldest first; to be freed. 0,
 * or the exit code after one line. */
int ckpt_find_ids(const char *command, const char *path, char directory[PS_PATH_BYTES], uint64_t **ids,
                  uint32_t *count);

#endif
