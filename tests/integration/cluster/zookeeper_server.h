/* A ZooKeeper server of the test's own, on a port of the loopback interface. For cmocka tests. */
#ifndef TESTS_ZOOKEEPER_SERVER_H
#define TESTS_ZOOKEEPER_SERVER_H

#include <stdint.h>
#include <sys/types.h>

#define ZOOKEEPER_TICK_MS 100u /* sessions may be 2 to 20 of them long */

struct zookeeper_server {
    pid_t pid; /* 0: it does not run */
    uint16_t port;
    uint32_t tick_ms;
    char directory[64]; /* its data, its configuration, and what it prints */
};

/* Skips the test without Debian's package zookeeper. */
void zookeeper_server_require(void);
/* Makes the directory and starts the server; fails the test if it does not come to answer. */
void zookeeper_server_create(struct zookeeper_server *s);
/* The same with another tick. */
void zookeeper_server_create_with(struct zookeeper_server *s, uint32_t tick_ms);
/* A number that the server says about itself: "Received", requests so far; "Zxid", of the last write. */
uint64_t zookeeper_server_says(const struct zookeeper_server *s, const char *what);
/* Starts it again, on the same port, with what it knew. */
void zookeeper_server_start(struct zookeeper_server *s);
void zookeeper_server_kill(struct zookeeper_server *s);
/* Removes what it knows; it must not run. */
void zookeeper_server_forget(struct zookeeper_server *s);
void zookeeper_server_destroy(struct zookeeper_server *s);

#endif
