/* The text of mr_last_error(): one line per thread. */
#ifndef MRC_LAST_ERROR_H
#define MRC_LAST_ERROR_H

#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"

#define MRC_ERROR_BYTES 768u

/* Stores a line for this thread, cut at MRC_ERROR_BYTES. */
void mrc_error_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Does the same, as an expression of the value `status`. */
#define mrc_error(status, ...) (mrc_error_line(__VA_ARGS__), (status))
/* MR_INVALID_ARGUMENT: "mr_lookup: keys is NULL". */
#define mrc_bad_argument(call, what) mrc_error(MR_INVALID_ARGUMENT, "%s: %s", call, what)

#define MRC_STEPS_BYTES 64u
/* Writes " of step 7", " of steps 7..9", or nothing if the caller named no step (`to` is 0); returns `text`
 * (MRC_STEPS_BYTES). */
const char *mrc_of_steps(uint64_t from, uint64_t to, char *text);

#endif
