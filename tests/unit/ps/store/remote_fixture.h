/* A remote store for tests: HDFS or S3 in memory on a server of the loopback, opened by its URL. */
#ifndef TESTS_REMOTE_FIXTURE_H
#define TESTS_REMOTE_FIXTURE_H

#include "fake_hdfs.h"
#include "fake_s3.h"
#include "ps/store/remote_store.h"

struct remote_fixture {
    enum ps_store_kind kind;
    struct fake_hdfs hdfs;
    struct fake_s3 s3;
    struct http_server *server;
    char url[300];            /* of a directory, "ads", that is not there */
    struct ps_remote *remote; /* that URL, opened */
    char *here, *back;        /* empty directories of this machine; NULL until they are made */
};

/* What *state points to before the set-up of a test of a kind of store. */
extern enum ps_store_kind remote_hdfs, remote_s3;

/* Credentials are in the environment, whatever was there before. `tries` of each request. */
void remote_fixture_start(struct remote_fixture *x, enum ps_store_kind kind, uint32_t tries);
/* Makes the two directories. */
void remote_fixture_make_directories(struct remote_fixture *x);
/* Removes the directories, too: 0, or -1. */
int remote_fixture_stop(struct remote_fixture *x);
/* Opens the URL again, as another process does. */
void remote_fixture_reopen(struct remote_fixture *x, uint32_t tries);
/* Forgets all that is stored. */
void remote_fixture_clear(struct remote_fixture *x);

/* Writes a file of these bytes; 0 or the first error. */
int remote_fixture_write(const struct ps_store *store, const char *path, const void *data, size_t bytes);
/* Names in a directory, in their order, each with a space after it, in a static buffer. Fails the test unless
 * they can be listed. */
const char *remote_fixture_names(const struct ps_store *store, const char *directory);

#endif
