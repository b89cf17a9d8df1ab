/* WebHDFS over files in memory, on an http_server, with redirects to a DataNode that is the same server. For
 * tests. */
#ifndef TESTS_FAKE_HDFS_H
#define TESTS_FAKE_HDFS_H

#include "http_server.h"

#define FAKE_HDFS_PAGE 2u /* names of a listing */

enum { FAKE_HDFS_ENTRIES_MAX = 256 };

struct fake_hdfs {
    struct {
        char path[300]; /* "": free */
        bool is_directory;
        uint8_t *data;
        size_t bytes;
        uint32_t
            written; /* the modification time, in ms: 100000 and one more for each file after the first */
    } entries[FAKE_HDFS_ENTRIES_MAX];
    uint16_t port;         /* of the server */
    const char *exception; /* not NULL: every request is answered with it */
    int exception_status;
    uint32_t dead;        /* so many redirects name a DataNode that is not there */
    const char *datanode; /* what it is called in redirects; NULL: 127.0.0.1 */
    uint32_t lost;    /* this many bytes of a file that is written are forgotten, which HDFS would not do */
    uint32_t written; /* files so far */
    char last_query[512];
};

http_server_handler fake_hdfs_handle; /* its argument is a struct fake_hdfs */
void fake_hdfs_clear(struct fake_hdfs *hdfs);
/* Returns the number of the entry, FAKE_HDFS_ENTRIES_MAX: there is none. */
uint32_t fake_hdfs_find(const struct fake_hdfs *hdfs, const char *path);

#endif
