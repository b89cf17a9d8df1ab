/* Asks the servers of a ZooKeeper ensemble whether they serve, as cluster.zookeeper names them. */
#ifndef TOOL_DOCTOR_ZOOKEEPER_H
#define TOOL_DOCTOR_ZOOKEEPER_H

#include <stdbool.h>
#include <stdint.h>

#define DOCTOR_ZOOKEEPER_MAX 9u

struct doctor_zookeeper {
    uint32_t count;
    struct doctor_zookeeper_server {
        char address[64];
        char why[192];    /* it does not answer, or a node would not find it; "": it does */
        char version[24]; /* "" unless it serves */
        char mode[16];    /* leader, follower, observer, standalone; "": it serves nobody, having no quorum */
    } servers[DOCTOR_ZOOKEEPER_MAX];
};

/* HOST:PORT[,HOST:PORT]...; waits some seconds for each server. */
void doctor_ask_zookeeper(const char *servers, struct doctor_zookeeper *out);
/* Reads the answer to ZooKeeper's word srvr. Pure. */
void doctor_read_srvr(const char *answer, struct doctor_zookeeper_server *out);

#endif
