/* What follows "millrace://" in a URL: SERVER, or SERVER/?NAME=VALUE&NAME=VALUE. Pure. */
#ifndef TDE_CONFIGURATION_H
#define TDE_CONFIGURATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "mr_tensor.h"

#define TDE_SERVER_BYTES 4096 /* of a cluster, up to 32 nodes with commas in between */
#define TDE_PATH_BYTES   1024
#define TDE_PREFIX_BYTES 33

struct tde_configuration {
    char server[TDE_SERVER_BYTES]; /* as in struct mr_client_options */
    char key_file[TDE_PATH_BYTES]; /* "": $MILLRACE_KEY_FILE, if there is one */
    char prefix[TDE_PREFIX_BYTES]; /* of the names of tables */
    uint32_t deadline_ms;          /* of a fetch or push, from the call on */
    uint32_t connect_ms;           /* IO_Initialize() waits so long for the server */
    enum mr_dtype dtype;           /* of the rows of tables that are made */
    bool replay;                   /* docs/replay.md */
    uint32_t replay_mib;           /* per core */
    bool goes_on;                  /* after an error; else the process ends */
};

/* False, with one line in `error` that says what is wrong and what would be right. Values may have %XX for
 * any byte. */
bool tde_configuration_parse(const char *text, struct tde_configuration *out, char *error,
                             size_t error_bytes);

#endif
