/* How far a command has come, as one line on a terminal; nothing where standard error is none. */
#ifndef TOOL_CKPT_PROGRESS_H
#define TOOL_CKPT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct ckpt_progress {
    const char *what; /* "verify" */
    uint64_t done_bytes, total_bytes, shown_us;
    bool is_on, is_shown;
};

/* is_on follows from standard error. */
void ckpt_progress_begin(struct ckpt_progress *p, const char *what, uint64_t total_bytes);
/* More may be done than was planned: then the total grows. NULL is fine. */
void ckpt_progress_add(struct ckpt_progress *p, uint64_t bytes);
/* Takes the line away. */
void ckpt_progress_end(struct ckpt_progress *p);

/* "1.5 GiB"; at most 11 characters. */
void ckpt_size_text(uint64_t bytes, char out[16]);

#endif
