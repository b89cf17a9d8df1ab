/* How far a command has come, as one line on a terminal; nothing where standard error is none. */
#ifndef TOOL_CKPT_PROGRESS_H
#define TOOL_CKPT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#define CKPT_PROGRESS_BYTES 96u /* of a line */

struct ckpt_progress {
    const char *what; /* "verify" */
    uint64_t done_bytes, total_bytes;
    uint64_t noted_us, noted_bytes; /* when the rate was last noted, and what was done by then */
    double bytes_per_s;             /* of late; 0: not known yet */
    bool is_on, is_shown;
};

/* is_on follows from standard error. */
void ckpt_progress_begin(struct ckpt_progress *p, const char *what, uint64_t total_bytes);
/* More may be done than was planned: then the total grows. NULL is fine. */
void ckpt_progress_add(struct ckpt_progress *p, uint64_t bytes);
/* Takes the line away. */
void ckpt_progress_end(struct ckpt_progress *p);

/* Brings the rate up to date at `now_us`: the last seconds count most. */
void ckpt_progress_note(struct ckpt_progress *p, uint64_t now_us);
/* "copy: 1.2 GiB of 3.4 GiB, 35 %, 152.3 MiB/s, 15 s left" */
void ckpt_progress_text(const struct ckpt_progress *p, char out[CKPT_PROGRESS_BYTES]);

/* "1.5 GiB"; at most 11 characters. */
void ckpt_size_text(uint64_t bytes, char out[16]);

#endif
