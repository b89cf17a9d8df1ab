#include "trainer_client/call/client.h"
#include "trainer_client/call/call_hooks.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/session/key_memory.h"
#include <sys/random.h>
#include <unistd.h>
#include "trainer_client/call/forks.h"
#include "trainer_client/call/last_error.h"
#include "trainer_client/call/own_latency.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/tick_clock.h"
#include "trainer_client/socket/environment.h"

static uint32_t or_default(uint32_t value, uint32_t default_value)
{
    return value == 0 ? default_value : value;
}

/* 32 hex digits; false otherwise. */
static bool parse_uuid(const char *text, uint8_t uuid[MR_UUID_BYTES])
{
    if (strlen(text) != 2 * MR_UUID_BYTES || strspn(text, "0123456789abcdefABCDEF") != 2 * MR_UUID_BYTES)
        return false;
    for (uint32_t i = 0; i < MR_UUID_BYTES; i++) {
        char byte[3] = {text[2 * i], text[2 * i + 1], '\0'};
        uuid[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    return true;
}

static enum mr_status read_key(const struct mr_client_options *options, struct mr_client *client, char *error,
                               size_t error_bytes)
{
    const char *path = options->key_file != NULL ? options->key_file : getenv("MILLRACE_KEY_FILE");
    if (path == NULL || path[0] == '\0')
        return MR_OK;
    client->link_config.psk = mr_key_memory_alloc(MR_PSK_BYTES);
    if (client->link_config.psk == NULL) {
        snprintf(error, error_bytes, "no memory for the key");
        return MR_NO_MEMORY;
    }
    client->link_config.has_psk = true;
    return mrc_keys_open(&client->keys, path, client->link_config.psk, error, error_bytes);
}

/* The environment may switch it on, or off whatever the program asks for. */
static enum mr_status read_replay(const struct mr_client_options *options, struct mr_client *client,
                                  char *error, size_t error_bytes)
{
    const char *word = getenv("MILLRACE_REPLAY");
    bool on = word != NULL && strcmp(word, "on") == 0, off = word != NULL && strcmp(word, "off") == 0;
    if (word != NULL && word[0] != '\0' && !on && !off) {
        snprintf(error, error_bytes, "$MILLRACE_REPLAY is \"%s\"; it takes on or off", word);
        return MR_INVALID_ARGUMENT;
    }
    client->replay = on || (options->replay && !off);
    client->replay_bytes = or_default(options->replay_bytes, MRC_REPLAY_BYTES_DEFAULT);
    client->link_config.replay = client->replay;
    return MR_OK;
}

/* Numbers of pushes begin at 1 in each process, so a new process must not be taken for the one before. */
static enum mr_status read_client_id(const char *text, bool replay, uint8_t uuid[MR_UUID_BYTES], char *error,
                                     size_t error_bytes)
{
    uint32_t from = 0;
    if (text != NULL) {
        if (!parse_uuid(text, uuid)) {
            snprintf(error, error_bytes, "mr_client_create: client_id must be %u hex digits",
                     2 * MR_UUID_BYTES);
            return MR_INVALID_ARGUMENT;
        }
        from = replay ? MR_UUID_BYTES / 2 : MR_UUID_BYTES;
    }
    size_t left = MR_UUID_BYTES - from;

    return left == 0 || getrandom(uuid + from, left, 0) == (ssize_t)left ? MR_OK : MR_INTERNAL;
}

static enum mr_status read_options(const struct mr_client_options *options, struct mr_client *client,
                                   char *error, size_t error_bytes)
{
    struct mrc_link_config *config = &client->link_config;
    if (options == NULL || options->server == NULL) {
        snprintf(error, error_bytes, "mr_client_create: options->server is missing");
        return MR_INVALID_ARGUMENT;
    }
    client->deadline_ms = or_default(options->deadline_ms, MRC_DEADLINE_MS_DEFAULT);
    client->busy_poll_us = or_default(options->busy_poll_us, MRC_BUSY_POLL_US_DEFAULT);
    client->watches = options->busy_poll_us == 0;
    client->any_node = options->any_node;
    config->memory_bytes = or_default(options->memory_bytes, MRC_MEMORY_BYTES_DEFAULT);
    config->socket.buffer_bytes = options->receive_buffer_bytes;
    config->socket.udp_bytes_max = options->udp_bytes_max;
    config->offload = !options->no_offload && !mrc_env_is_off(MRC_ENV_GSO);
    config->no_bundle = options->no_bundle || mrc_env_is_off(MRC_ENV_BUNDLE);
    enum mr_status status = read_replay(options, client, error, error_bytes);

    if (status == MR_OK)
        status = read_client_id(options->client_id, client->replay, config->client_uuid, error, error_bytes);
    if (status == MR_OK)
        status = read_key(options, client, error, error_bytes);
    return status;
}

bool mrc_is_inherited(const struct mr_client *client)
{
    return client->forks != mrc_forks();
}

enum mr_status mrc_check_process(const struct mr_client *client, const char *what)
{
    if (!mrc_is_inherited(client))
        return MR_OK;
    return mrc_error(
        MR_FORKED,
        "%s: %s: this client was made by process %d, from which this one was forked: make another "
        "with mr_client_create() in the child process",
        client->server, what, (int)client->process);
}

bool mrc_client_add_link(struct mr_client *client, struct mrc_link *link)
{
    struct mrc_link **links = realloc(client->links, (client->link_count + 1) * sizeof(struct mrc_link *));
    if (links == NULL)
        return false;
    client->links = links;
    if (mrc_progress_watch(&client->progress, link->socket.fd, link) != MR_OK)
        return false;
    client->links[client->link_count++] = link;
    return true;
}

enum mr_status mrc_client_add_node(struct mr_client *client, const struct mrc_addresses *addresses,
                                   struct mrc_node **out, char *error, size_t error_bytes)
{
    struct mrc_node *node = client->node_count < MRC_NODES_MAX ? mrc_node_create(client, addresses) : NULL;
    if (node == NULL) {
        snprintf(error, error_bytes, "no room for another node: the client has %u", client->node_count);
        return MR_NO_MEMORY;
    }
    const enum mr_status status = mrc_node_open(node, error, error_bytes);
    if (status != MR_OK) {
        mrc_node_destroy(node);
        return status;
    }
    node->index = client->node_count;
    client->nodes[client->node_count++] = node;
    *out = node;
    return MR_OK;
}

/* ---- the servers that the program named ---- */

/* Splits the list at its commas. */
static enum mr_status seeds_read(struct mr_client *client, const char *list, char *error, size_t error_bytes)
{
    client->seeds = calloc(MR_CLUSTER_NODES_MAX, sizeof(*client->seeds));
    if (client->seeds == NULL)
        return MR_NO_MEMORY;
    for (const char *at = list;; at++) {
        const size_t bytes = strcspn(at, ",");
        if (client->seed_count == MR_CLUSTER_NODES_MAX || bytes >= MR_HOST_BYTES) {
            snprintf(error, error_bytes,
                     "mr_client_create: options->server names more than %u servers, or one by a "
                     "name of more than %u bytes",
                     MR_CLUSTER_NODES_MAX, MR_HOST_BYTES - 1);
            return MR_INVALID_ARGUMENT;
        }
        memcpy(client->seeds[client->seed_count++].name, at, bytes);
        at += bytes;
        if (*at == '\0')
            break;
    }
    client->cluster.is_expected = client->seed_count > 1;
    snprintf(client->server, sizeof(client->server), "%s", list);
    return MR_OK;
}

/* Adds the node of a server whose addresses are known by now. */
static void seed_add(struct mr_client *client, struct mrc_seed *seed)
{
    struct mrc_addresses found = {.count = 0};
    struct mrc_node *node;
    seed->status = mrc_names_find(client->names, seed->name, &found, seed->why, sizeof(seed->why));
    if (seed->status == MR_BUSY)
        return;
    seed->is_done = true;
    if (seed->status == MR_OK && found.list[0].port == 0) {
        seed->status = MR_INVALID_ARGUMENT;
        snprintf(seed->why, sizeof(seed->why), "mr_client_create: %s: port 0 is no server's", seed->name);
    }
    if (seed->status == MR_OK)
        seed->status = mrc_client_add_node(client, &found, &node, seed->why, sizeof(seed->why));
    if (seed->status == MR_OK && client->seed_count == 1)
        mr_address_text(&node->address, client->server);
}

/* Adds what is known by now. Fails if none of the servers is left to ask. */
static enum mr_status seeds_add(struct mr_client *client, char *error, size_t error_bytes)
{
    bool is_left = false;
    for (uint32_t i = 0; i < client->seed_count; i++) {
        if (!client->seeds[i].is_done)
            seed_add(client, &client->seeds[i]);
        is_left |= !client->seeds[i].is_done || client->seeds[i].status == MR_OK;
    }
    if (is_left)
        return MR_OK;
    for (uint32_t i = 0, used = 0; i < client->seed_count && used < error_bytes; i++)
        used += (uint32_t)snprintf(error + used, error_bytes - used, "%s%s", i == 0 ? "" : "; ",
                                   client->seeds[i].why);
    return client->seeds[0].status;
}

/* Appends what was wrong with some of the servers to the line of why none answered. */
static void seeds_describe(const struct mr_client *client, char *error, size_t error_bytes)
{
    for (uint32_t i = 0; i < client->seed_count; i++) {
        const size_t used = strlen(error);
        if (client->seeds[i].status != MR_OK)
            snprintf(error + used, error_bytes - used, "%s%s", used == 0 ? "" : "; ", client->seeds[i].why);
    }
}

/* Finds the servers, and waits until their cores are known. Under the lock. */
static enum mr_status connect_servers(struct mr_client *client, const char *list, uint64_t deadline_us,
                                      char *error, size_t error_bytes)
{
    const uint64_t begin_us = mr_clock_us();
    enum mr_status status = seeds_read(client, list, error, error_bytes);
    while (status == MR_OK) {
        const uint32_t ended = mrc_names_ended(client->names);
        status = seeds_add(client, error, error_bytes);
        if (status != MR_OK)
            break;
        if (!mrc_nodes_wait(client, ended, deadline_us))
            continue;
        status = mrc_nodes_connected(client, (double)(mr_clock_us() - begin_us) * 1e-6, error, error_bytes);
        if (status == MR_UNREACHABLE)
            seeds_describe(client, error, error_bytes);
        break;
    }
    free(client->seeds);
    client->seeds = NULL;
    client->seed_count = 0;
    return status;
}

static bool should_stop(const void *arg)
{
    const struct mr_client *client = arg;
    return client->stopping;
}

static void *progress_main(void *arg)
{
    struct mr_client *client = arg;
    pthread_mutex_lock(&client->lock);
    (void)mrc_wait(client, should_stop, client, UINT64_MAX);
    pthread_mutex_unlock(&client->lock);
    return NULL;
}

static void free_client(struct mr_client *client)
{
    for (uint32_t i = 0; i < client->link_count; i++)
        mrc_link_destroy(client->links[i]);
    free(client->links);
    for (uint32_t n = 0; n < client->node_count; n++)
        mrc_node_destroy(client->nodes[n]);
    mrc_names_release(client->names);
    mrc_shard_map_release(client->shard_map);
    mrc_call_hooks.client_fini(client);
    mrc_progress_fini(&client->progress);
    mrc_features_free(&client->features);
    mrc_features_free(&client->met);
    mrc_keys_close(&client->keys);
    mr_key_memory_free(client->link_config.psk);
    mrc_own_latency_destroy(client);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

enum mr_status mr_client_create(const struct mr_client_options *options, struct mr_client **client,
                                char *error, size_t error_bytes)
{
    char text[MRC_ERROR_BYTES] = "";
    enum mr_status status = MR_NO_MEMORY;
    struct mr_client *c = calloc(1, sizeof(*c));
    if (c == NULL)
        goto failed;
    c->forks = mrc_forks();
    c->process = getpid();
    atomic_init(&c->message_bytes_max, MRC_MESSAGE_BYTES_LEAST);
    c->progress.epoll_fd = -1;
    c->progress.wake_fd = -1;
    pthread_mutex_init(&c->lock, NULL);
    mr_tick_clock_init();
    mr_list_init(&c->pending_notify);
    if (!mrc_call_hooks.client_init(c))
        goto failed;
    status = read_options(options, c, text, sizeof(text));
    if (status != MR_OK)
        goto failed;
    status = mrc_progress_init(&c->progress);
    if (status != MR_OK)
        goto failed;
    c->names = mrc_names_create(c->progress.wake_fd);
    status = MR_NO_MEMORY;
    if (c->names == NULL)
        goto failed;

    uint64_t connect_ms = or_default(options->connect_ms, MRC_CONNECT_MS_DEFAULT);

    pthread_mutex_lock(&c->lock);
    status = connect_servers(c, options->server, mr_clock_us() + connect_ms * 1000u, text, sizeof(text));
    pthread_mutex_unlock(&c->lock);
    if (status != MR_OK)
        goto failed;
    if (options->progress_thread) {
        if (pthread_create(&c->progress_thread, NULL, progress_main, c) != 0) {
            status = MR_NO_MEMORY;
            goto failed;
        }
        c->has_progress_thread = true;
    }
    *client = c;
    return MR_OK;
failed:
    mrc_error_line("%s", text[0] != '\0' ? text : mr_status_text(status));
    if (error != NULL && error_bytes > 0)
        snprintf(error, error_bytes, "%s", mr_last_error());
    mr_client_destroy(c);
    return status;
}

static void stop_progress_thread(struct mr_client *client)
{
    if (!client->has_progress_thread)
        return;
    pthread_mutex_lock(&client->lock);
    client->stopping = true;
    mrc_wake_all(client);
    pthread_mutex_unlock(&client->lock);
    pthread_join(client->progress_thread, NULL);
}

void mr_client_destroy(struct mr_client *client)
{
    if (client == NULL ||
        mrc_is_inherited(client)) /* the sockets are the parent's, and the locks may never be released */
        return;
    stop_progress_thread(client);
    pthread_mutex_lock(&client->lock);
    for (uint32_t i = 0; i < client->link_count; i++)
        mrc_link_close(client->links[i], mr_clock_us());
    client->closed = true;
    bool last = client->calls_held == 0;

    pthread_mutex_unlock(&client->lock);
    if (last)
        free_client(client);
}

void mrc_client_free_call(struct mr_client *client, struct mrc_link *link, struct mr_call *call)
{
    mr_call_free(link->ep, call);
    link->calls_held--;
    client->calls_held--;
    client->room_made++;
    mrc_futures_notify_pending(client);
    if (client->room_waiters > 0)
        mrc_wake_all(client);
}

void mrc_client_release_reply(struct mr_client *client, struct mrc_link *link, struct mr_call *call)
{
    mrc_client_free_call(client, link, call);
    bool last = client->closed && client->calls_held == 0;

    pthread_mutex_unlock(&client->lock);
    if (last)
        free_client(client);
}

uint32_t mrc_client_calls_pending(const struct mr_client *client)
{
    uint32_t pending = 0;
    for (uint32_t i = 0; i < client->link_count; i++)
        pending += client->links[i]->calls_pending;
    return pending;
}

/* ---- queries ---- */

uint32_t mr_client_core_count(const struct mr_client *client)
{
    struct mr_client *c = (struct mr_client *)client;
    if (c == NULL || mrc_is_inherited(c))
        return 0;
    pthread_mutex_lock(&c->lock);
    uint32_t core_count = c->shard_map->count;

    pthread_mutex_unlock(&c->lock);
    return core_count;
}

static_assert(MR_CLIENT_CORES_MAX == MR_CLUSTER_NODES_MAX * MR_CORE_MAX, "all cores of a cluster");
static_assert(MR_NODE_NAME_BYTES == MR_CLUSTER_NAME_BYTES, "names fit");

bool mr_client_core_place(const struct mr_client *client, uint32_t core, struct mr_core_place *place)
{
    struct mr_client *c = (struct mr_client *)client;
    if (c == NULL || place == NULL || mrc_is_inherited(c))
        return false;
    pthread_mutex_lock(&c->lock);
    const bool is_there = core < c->shard_map->count;

    if (is_there) {
        const struct mrc_shard *owner = &c->shard_map->shards[core];
        place->core = owner->core;
        memcpy(place->node, owner->node->name, sizeof(place->node));
    }
    pthread_mutex_unlock(&c->lock);
    return is_there;
}

uint32_t mr_client_incarnation(const struct mr_client *client)
{
    struct mr_client *c = (struct mr_client *)client;
    if (c == NULL || mrc_is_inherited(c))
        return 0;
    pthread_mutex_lock(&c->lock);
    uint32_t incarnation = c->shard_map->shards[0].node->incarnation;

    pthread_mutex_unlock(&c->lock);
    return incarnation;
}

uint64_t mr_client_start_id(const struct mr_client *client)
{
    struct mr_client *c = (struct mr_client *)client;
    if (c == NULL || mrc_is_inherited(c))
        return 0;
    pthread_mutex_lock(&c->lock);
    uint64_t start_id = mrc_shard_map_start_id(c);

    pthread_mutex_unlock(&c->lock);
    return start_id;
}

void mr_client_replay_info(const struct mr_client *client, struct mr_replay_info *info)
{
    struct mr_client *c = (struct mr_client *)client;
    *info = (struct mr_replay_info){.on = false};
    if (c == NULL || mrc_is_inherited(c))
        return;
    pthread_mutex_lock(&c->lock);
    mrc_call_hooks.info(c, info);
    pthread_mutex_unlock(&c->lock);
}

int mr_client_fd(const struct mr_client *client)
{
    return client == NULL || mrc_is_inherited(client) ? -1 : client->progress.epoll_fd;
}

uint32_t mr_client_progress(struct mr_client *client)
{
    if (client == NULL || mrc_is_inherited(client))
        return 0;
    pthread_mutex_lock(&client->lock);
    uint32_t ended = mrc_progress_once(client);

    pthread_mutex_unlock(&client->lock);
    return ended;
}

int mr_client_timeout_ms(const struct mr_client *client)
{
    struct mr_client *c = (struct mr_client *)client;
    if (c == NULL || mrc_is_inherited(c))
        return -1;
    pthread_mutex_lock(&c->lock);
    uint64_t next_us = mrc_progress_next_us(c), now_us = mr_clock_us();

    c->progress.reported_us = next_us;
    pthread_mutex_unlock(&c->lock);
    if (next_us == UINT64_MAX)
        return -1;
    if (next_us <= now_us)
        return 0;
    uint64_t ms = (next_us - now_us + 999u) / 1000u;

    return ms > INT32_MAX ? INT32_MAX : (int)ms;
}
