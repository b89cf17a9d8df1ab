/* A node's life: from a configuration to a serving server, and to a clean end. main()'s thread. */
#ifndef PS_SERVER_H
#define PS_SERVER_H

#include <stdio.h>
#include "dataplane/dataplane.h"
#include "ps/config/config.h"

struct ps_server;

/* Keeps the calling thread, and those that it makes, off the processors of the data cores. */
void ps_server_leave_cores(const struct ps_config *config);
/* Opens the port, starts the cores, restores what the configuration says, and serves. On failure `error` gets
 * one line and everything is taken back. `config` is copied, but for its path. */
enum mr_status ps_server_start(const struct ps_config *config, struct ps_server **out,
                               char error[DP_ERROR_BYTES]);
/* One line that says what was chosen, for scripts that wait for it. */
void ps_server_print_ready(const struct ps_server *server, FILE *out);
/* Tells systemd, if it listens, that the node is up, and from now on that it is alive. */
void ps_server_tell_ready(struct ps_server *server);
/* Takes over what has changed in the configuration, and in the key files: the keys that may change while
 * the node serves; the log says which did, and which need a restart. On failure `error` says why, and
 * nothing is changed. */
enum mr_status ps_server_reload(struct ps_server *server, const struct ps_config *config,
                                char error[DP_ERROR_BYTES]);
/* How the port is; changes are logged. To be called a few times a second. False: the port is lost, and the
 * server is to be stopped. */
bool ps_server_watch_port(struct ps_server *server);
/* Lets no data call in any more, saves if the configuration says so, and ends. MR_OK unless that save
 * failed. */
enum mr_status ps_server_stop(struct ps_server *server);

#endif
