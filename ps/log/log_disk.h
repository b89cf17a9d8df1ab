/* What a log can expect of the place where it is kept: what kind of file system that is, how much room there
 * is, and how long a flush takes. Blocking calls, of any thread. */
#ifndef PS_LOG_DISK_H
#define PS_LOG_DISK_H

#include <stdbool.h>
#include <stdint.h>

enum ps_log_disk_kind {
    PS_LOG_DISK_LOCAL,   /* or one that is not known */
    PS_LOG_DISK_MEMORY,  /* tmpfs and the like: gone with the machine's power */
    PS_LOG_DISK_NETWORK, /* of another machine */
    PS_LOG_DISK_LAYER,   /* of a container: gone with it */
};

struct ps_log_disk {
    enum ps_log_disk_kind kind;
    char name[16]; /* of the file system: "tmpfs", "ext4"; "": not known */
    uint64_t bytes, free_bytes;
    uint32_t flush_us; /* the median of several; 0: not measured */
};

/* Looks at the file system of a directory. 0 or -errno. */
int ps_log_disk_look(const char *directory, struct ps_log_disk *out);
/* Also measures flushes, in a file of its own there that it removes. 0 or -errno. */
int ps_log_disk_measure(const char *directory, struct ps_log_disk *out);
/* Whether there is little room left: less than a twentieth, and less than PS_LOG_DISK_LITTLE_BYTES. */
#define PS_LOG_DISK_LITTLE_BYTES (UINT64_C(16) << 30)
bool ps_log_disk_is_nearly_full(const struct ps_log_disk *disk);
/* NULL: nothing is wrong with its kind, else what follows of it (static text). */
const char *ps_log_disk_risk(const struct ps_log_disk *disk);

#endif
