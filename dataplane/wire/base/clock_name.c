#include "dataplane/wire/base/clock_name.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t fnv1a(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t mr_clock_name(void)
{
    char boot[40];
    struct stat space = {0};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = file < 0 ? 0 : read(file, boot, sizeof(boot));
    if (file >= 0)
        (void)close(file);
    (void)stat("/proc/self/ns/time", &space); /* a kernel without time namespaces: 0 */
    hash = fnv1a(hash, boot, bytes > 0 ? (size_t)bytes : 0);
    hash = fnv1a(hash, &space.st_ino, sizeof(space.st_ino));
    return hash == 0 ? 1 : hash;
}
