/* A running echo_server between two namespaces, for cmocka tests. */
#ifndef TESTS_ECHO_FIXTURE_H
#define TESTS_ECHO_FIXTURE_H

#include <stdint.h>
#include "tests/integration/netns.h"

#define ECHO_CORES_MAX 8
#define ECHO_READY_MS  60000
#define ECHO_LINE      4096

struct echo_fixture {
    struct netns net;
    struct netns_process server;
    char counters[ECHO_CORES_MAX][ECHO_LINE]; /* a line per core, after echo_fixture_stop */
};

/* Path of the echo_server program; set by the test's main. */
extern const char *echo_fixture_server;

/* Makes the namespaces and starts the server with `arguments`: options with blanks between them. Its first
 * line is in f->server.line. */
void echo_fixture_start(struct echo_fixture *f, const struct netns_options *options, const char *arguments);
/* The same in namespaces that are made already. */
void echo_fixture_spawn(struct echo_fixture *f, const char *arguments);
/* Ends the server, checks that it ended well, keeps what its `cores` cores counted, takes the namespaces
 * down. */
void echo_fixture_stop(struct echo_fixture *f, uint32_t cores);
/* A counter as "port.rx_arp"; 0 when it is not in the line. */
unsigned long long echo_fixture_counter(const struct echo_fixture *f, uint32_t core, const char *name);

#endif
