/* A node's life: from a configuration to a serving server, and to a clean end. main()'s thread. */
#ifndef PS_SERVER_H
#define PS_SERVER_H

#include <stdio.h>
#include "dataplane/dataplane.h"
#include "ps/config/config.h"

struct ps_server;

/* Opens the port, starts the cores, restores what the configuration says, and serves. On failure `error` gets
 * one line and everything is taken back. `config` must outlive the server. */
enum mr_status ps_server_start(const struct ps_config *config, struct ps_server **out,
                               char error[DP_ERROR_BYTES]);
/* One line that says what was chosen, for scripts that wait for it. */
void ps_server_print_ready(const struct ps_server *server, FILE *out);
/* Reads the key files again and has all cores use what they hold: *count keys. On failure `error` says why,
 * and the keys stay as they were. */
enum mr_status ps_server_reload_keys(struct ps_server *server, uint32_t *count, char error[DP_ERROR_BYTES]);
/* How the port is; changes are logged. To be called a few times a second. False: the port is lost, and the
 * server is to be stopped. */
bool ps_server_watch_port(struct ps_server *server);
/* Lets no data call in any more, saves if the configuration says so, and ends. MR_OK unless that save
 * failed. */
enum mr_status ps_server_stop(struct ps_server *server);

#endif
