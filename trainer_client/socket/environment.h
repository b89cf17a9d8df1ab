/* Switches of the library in the environment of the process. */
#ifndef MRC_ENVIRONMENT_H
#define MRC_ENVIRONMENT_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* "0": runs of datagrams are never handed to the kernel to cut up. */
#define MRC_ENV_GSO "MILLRACE_GSO"
/* "0": each call goes in a packet of its own. */
#define MRC_ENV_BUNDLE "MILLRACE_BUNDLE"

/* Returns whether the variable is "0". */
static inline bool mrc_env_is_off(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && strcmp(value, "0") == 0;
}

#endif
