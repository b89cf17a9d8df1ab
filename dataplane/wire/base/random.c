#include "dataplane/wire/base/random.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static bool read_device(void *out, size_t bytes)
{
    FILE *file = fopen("/dev/urandom", "re");
    if (file == NULL)
        return false;
    setvbuf(file, NULL, _IONBF, 0);
    const bool is_read = fread(out, 1, bytes, file) == bytes;
    (void)fclose(file);
    return is_read;
}

void mr_random_fill(void *out, size_t bytes)
{
    uint8_t *at = out;
    while (bytes > 0) {
        const ssize_t got = getrandom(at, bytes, 0);
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        } else if (got == 0 || errno != EINTR) { /* a filter refuses it: asking again would never end */
            break;
        }
    }
    if (bytes == 0 || read_device(at, bytes))
        return;
    (void)fprintf(stderr, "no random numbers: getrandom() and /dev/urandom fail: %s\n", strerror(errno));
    abort();
}
