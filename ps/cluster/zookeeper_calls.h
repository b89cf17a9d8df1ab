/* ZooKeeper's requests with an end. The library's synchronous ones wait for ever if the session ends between
 * their look at the connection and the queue of requests (ZOOKEEPER-2802), and nothing would notice. These
 * send the asynchronous ones, and wait for so long. Return what the library's do (ZOK, ZNONODE, ...), or
 * PS_ZOOKEEPER_HANGS: then the handle is to be closed, and further requests return the same at once. One
 * thread at a time, not the library's own. */
#ifndef PS_ZOOKEEPER_CALLS_H
#define PS_ZOOKEEPER_CALLS_H

#include <stdbool.h>
#include <stdint.h>
#include <zookeeper/zookeeper.h>

#define PS_ZOOKEEPER_HANGS (-1000) /* below all of the library's */

struct ps_zookeeper_link {
    zhandle_t *handle; /* NULL: none */
    uint64_t limit_us; /* for one request */
    bool hangs;
};

#define PS_ZOOKEEPER_CREATES_MAX 4u

struct ps_zookeeper_new {
    const char *path, *value;
    const struct ACL_vector *acl;
    int mode;
};

/* All of these in this order (1 to PS_ZOOKEEPER_CREATES_MAX), or none: one transaction. Returns the error of
 * the first that cannot be created. */
int ps_zookeeper_create(struct ps_zookeeper_link *l, const struct ps_zookeeper_new *znodes, uint32_t count);
/* version: of the znode, or -1. */
int ps_zookeeper_set(struct ps_zookeeper_link *l, const char *path, const char *value, int version);
/* *bytes: the buffer's length, and then the value's, which is cut to the buffer; -1: it has none. watch: NULL
 * for none; it is called with `context`. */
int ps_zookeeper_get(struct ps_zookeeper_link *l, const char *path, watcher_fn watch, void *context,
                     char *buffer, int *bytes, struct Stat *stat);
int ps_zookeeper_exists(struct ps_zookeeper_link *l, const char *path, watcher_fn watch, void *context,
                        struct Stat *stat);
/* The caller frees *names with deallocate_String_vector() if this returns ZOK. */
int ps_zookeeper_children(struct ps_zookeeper_link *l, const char *path, watcher_fn watch, void *context,
                          struct String_vector *names);

#endif
