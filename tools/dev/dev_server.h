/* A server for development: millraced as a child process on loopback, over the kernel's sockets. It needs
 * neither root, hugepages nor a network interface, and ends with this process. Functions return 0, or the
 * exit code after one line on standard error. One thread. */
#ifndef TOOL_DEV_SERVER_H
#define TOOL_DEV_SERVER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "dataplane/wire/base/cli.h"

struct dev_options {
    const char *directory; /* for checkpoints and the log, made if missing; NULL: a temporary one */
    uint32_t port;         /* of core 0; 0: 7700 if it is free, else one that the kernel picks */
    uint32_t cores;
    struct cli_list sets; /* further settings for millraced, "section.key=value" */
};

struct dev_server {
    pid_t pid; /* of millraced; 0: it does not run */
    uint32_t port;
    bool is_temporary; /* the directory is removed at the end */
    char directory[PATH_MAX - 32], log[PATH_MAX];
    char address[32];        /* "127.0.0.1:7700" */
    char key_file[PATH_MAX]; /* that clients need; "": none */
    bool has_own_key;        /* the file was made for this start, and is removed at the end */
};

/* Starts millraced and waits until it serves, or has failed: then the last lines of its log are printed, too.
 * Signals that the caller has blocked are unblocked in the child; SIGINT and SIGTERM end the wait. */
int dev_server_start(const char *command, const struct dev_options *options, struct dev_server *server);

/* Has the server end, waits for that, and removes a temporary directory. */
int dev_server_stop(const char *command, struct dev_server *server);

/* The caller has reaped the server: prints how it ended, and where its log is. Returns the exit code. */
int dev_server_ended(const char *command, struct dev_server *server, int wait_status);

#endif
