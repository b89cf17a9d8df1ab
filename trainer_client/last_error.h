/* What mr_last_error() says: one line per thread. */
#ifndef MRC_LAST_ERROR_H
#define MRC_LAST_ERROR_H

#include "dataplane/wire/mr_status.h"

#define MRC_ERROR_BYTES 768u

/* Remember a line for this thread (cut at MRC_ERROR_BYTES) and return `status`. */
enum mr_status mrc_error(enum mr_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* MR_INVALID_ARGUMENT: "mr_lookup: keys is NULL". */
enum mr_status mrc_bad_argument(const char *call, const char *what);

#endif
