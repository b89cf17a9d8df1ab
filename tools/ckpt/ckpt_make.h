/* A checkpoint made by this process: all cores' sides of a writer on one thread. It is published whole, by
 * the same steps as a server's, or not at all. Belongs to one thread.
 */
#ifndef TOOL_CKPT_MAKE_H
#define TOOL_CKPT_MAKE_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint.h"
#include "tools/ckpt/ckpt_chain.h"

#define CKPT_MAKE_BUFFERS 4u /* of 1 MiB, for each core's file */

struct ckpt_make_core;

struct ckpt_make {
    struct ps_writer *writer;
    struct ckpt_make_core *cores; /* rows that wait for more of their table, by core */
    uint32_t core_count;
    int lock; /* of the directory */
};

/* buffers_per_core is filled in. MR_IO_ERROR: among others, a server writes to that directory, and `text`
 * names it. */
enum mr_status ckpt_make_start(struct ckpt_make *make, struct ps_writer_options *options, char *text);
/* Waits for room. False once the writing has failed; ckpt_make_finish() says why. */
bool ckpt_make_record(struct ckpt_make *make, uint32_t core, const struct ps_record *record,
                      const uint8_t *bytes);
/* The same with rows, brought together into larger records; the core follows from the key. */
bool ckpt_make_rows(struct ckpt_make *make, const struct ckpt_rows *rows);
/* Publishes, or removes what was written. MR_OK when published; with publish == false MR_OK and nothing is
 * left. *bytes (may be NULL): written. */
enum mr_status ckpt_make_finish(struct ckpt_make *make, bool publish, uint64_t *bytes, char *text);

#endif
