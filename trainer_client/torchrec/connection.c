#include "trainer_client/torchrec/connection.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct connection {
    struct connection *next;
    struct tde_configuration configuration; /* of the instance that opened it */
    struct mr_client *client;
    uint32_t holders;
};

/* Under the lock, also while one is opened: those that wait for it want the same. */
static struct connection *connections;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_same_server(const struct tde_configuration *a, const struct tde_configuration *b)
{
    return strcmp(a->server, b->server) == 0 && strcmp(a->key_file, b->key_file) == 0 &&
           a->replay == b->replay && a->replay_mib == b->replay_mib;
}

static struct connection *connection_create(const struct tde_configuration *c, char *error,
                                            size_t error_bytes)
{
    const struct mr_client_options options = {.server = c->server,
                                              .key_file = c->key_file[0] == '\0' ? NULL : c->key_file,
                                              .deadline_ms = c->deadline_ms,
                                              .connect_ms = c->connect_ms,
                                              .replay = c->replay,
                                              .replay_bytes = c->replay_mib << 20,
                                              .progress_thread = true};
    struct connection *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        (void)snprintf(error, error_bytes, "no memory");
        return NULL;
    }
    made->configuration = *c;
    if (mr_client_create(&options, &made->client, error, error_bytes) != MR_OK) {
        free(made);
        return NULL;
    }
    return made;
}

struct mr_client *tde_connection_open(const struct tde_configuration *configuration, char *error,
                                      size_t error_bytes)
{
    struct connection *c;
    (void)pthread_mutex_lock(&lock);
    for (c = connections; c != NULL && !is_same_server(&c->configuration, configuration);)
        c = c->next;
    if (c == NULL && (c = connection_create(configuration, error, error_bytes)) != NULL) {
        c->next = connections;
        connections = c;
    }
    if (c != NULL)
        c->holders++;
    (void)pthread_mutex_unlock(&lock);
    return c == NULL ? NULL : c->client;
}

void tde_connection_close(struct mr_client *client)
{
    (void)pthread_mutex_lock(&lock);
    struct connection **link = &connections, *c;
    while ((*link)->client != client)
        link = &(*link)->next;
    c = *link;
    if (--c->holders == 0) {
        *link = c->next;
        mr_client_destroy(c->client);
        free(c);
    }
    (void)pthread_mutex_unlock(&lock);
}
