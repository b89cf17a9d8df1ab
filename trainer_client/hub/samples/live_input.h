/* The bytes of an input that is read once, as they come: a pipe, a file from its start, or a file that is
 * followed as it grows. One thread, but for hub_live_input_stop().
 */
#ifndef HUB_LIVE_INPUT_H
#define HUB_LIVE_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "trainer_client/hub/samples/allowed.h"

#define HUB_STANDARD_INPUT "-" /* its path */

enum hub_live_input_state {
    HUB_LIVE_INPUT_BYTES,   /* as many as were asked for */
    HUB_LIVE_INPUT_END,     /* fewer, and no more come */
    HUB_LIVE_INPUT_STOPPED, /* by hub_live_input_stop(), before there were as many */
    HUB_LIVE_INPUT_FAILED,
};

struct hub_live_input {
    const char *path; /* the caller's */
    int fd, stop_fd;
    bool is_file, follow;
    uint64_t start, offset; /* of a file: where it begins, and of the byte after the buffer's last */
    uint64_t file_number;   /* inode */
    char *buffer;
    size_t begin, end, capacity; /* bytes [begin, end) are read and not taken */
};

/* path: HUB_STANDARD_INPUT or a file's; it must outlive the input. allowed: see allowed.h. follow: the end of
 * a regular file is no end until the file is renamed or removed. MR_INVALID_ARGUMENT, MR_UNAUTHORIZED,
 * MR_NO_MEMORY; `error` (HUB_ERROR_BYTES) says why. Close it in either case. */
enum mr_status hub_live_input_open(struct hub_live_input *in, const char *path,
                                   const struct hub_allowed *allowed, bool follow, char *error);
void hub_live_input_close(struct hub_live_input *in);
/* Back to the start of a file, also of one that was stopped. */
void hub_live_input_rewind(struct hub_live_input *in);
/* Waits until `bytes` are in the buffer from `begin` on. `error` is set if it fails. */
enum hub_live_input_state hub_live_input_wait(struct hub_live_input *in, size_t bytes, char *error);
/* Ends a hub_live_input_wait() that waits, and all later ones once the bytes there do not suffice. Any
 * thread. */
void hub_live_input_stop(struct hub_live_input *in);
/* Tells the file and its start apart from others on this machine: its inode and time of birth; 0: it is no
 * regular file. A file that grows keeps it, another one under its name has another. */
uint64_t hub_live_input_identity(const struct hub_live_input *in);

#endif
