#include "trainer_client/call/node.h"

#include <stdio.h>
#include <string.h>
#include "trainer_client/call/client.h"
#include "trainer_client/call/future.h"
#include "trainer_client/replay/remap.h"
#include "dataplane/wire/base/clock.h"

#define ASK_PAUSE_US     20000u /* after a question without an answer; doubled each time, up to: */
#define ASK_PAUSE_MAX_US 1000000u
#define INFO_WORDS       4u /* core count, map version, base port, message bytes max */

void mrc_node_session_up(struct mr_client *client, struct mrc_link *link,
                         const struct mr_client_session_info *info)
{
    struct mrc_node *node = &client->node;
    bool first = node->core_count == 0, started = info->start_id != node->start_id;
    node->incarnation = info->incarnation;
    if (started) {
        node->start_id = info->start_id;
        if (!first) {
            /* Numbers and descriptors may have changed. */
            mrc_features_clear(&client->features);
            node->stale = true;
        }
    }
    mrc_survey_session_up(client, info, started && !first);
    if (link->core != 0)
        return;
    if (info->core_count == 1 && (first || node->core_count == 1)) {
        /* One core owns everything, so there is nothing to ask. A hub is such a node, too. */
        node->core_count = 1; /* the map is all zeros from the start */
        node->stale = false;
    } else if (first || info->map_version != node->map_version) {
        node->stale = true;
    }
}

/* Reads the reply into the node; false when it is malformed. */
static bool read_info(struct mrc_node *node, const struct mr_future *f)
{
    const struct mr_tensor *words = mrc_part_tensor(f, 0, 0, MR_U32, 1);
    const struct mr_tensor *map = mrc_part_tensor(f, 0, 1, MR_U16, 1);
    if (words == NULL || map == NULL || words->dims[0] < INFO_WORDS || map->dims[0] != MR_PARTITION_COUNT)
        return false;
    const uint32_t *info = words->data;
    const uint16_t *owner = map->data;

    if (info[0] == 0 || info[0] > MR_CORE_MAX)
        return false;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (owner[p] >= info[0])
            return false;
    uint8_t cores[MR_PARTITION_COUNT];

    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        cores[p] = (uint8_t)owner[p];
    if (node->core_count != info[0] || memcmp(cores, node->partition_core, sizeof(cores)) != 0)
        node->changes++;
    node->core_count = info[0];
    node->map_version = info[1];
    memcpy(node->partition_core, cores, sizeof(cores));
    return true;
}

static void ask_later(struct mrc_node *node)
{
    uint64_t pause_us = (uint64_t)ASK_PAUSE_US << (node->asked_in_vain < 8 ? node->asked_in_vain : 8);
    node->stale = true;
    node->asked_in_vain++;
    node->ask_us = mr_clock_us() + (pause_us < ASK_PAUSE_MAX_US ? pause_us : ASK_PAUSE_MAX_US);
}

static void info_came(struct mr_future *f)
{
    struct mr_client *client = f->client;
    struct mrc_node *node = &client->node;
    node->asking = false;
    if (f->parts[0].status == MR_OK) {
        node->garbled = !read_info(node, f);
        node->asked_in_vain = 0;
    } else if (f->parts[0].status != MR_CANCELLED) {
        ask_later(node);
    }
    mrc_future_free_locked(f);
}

static void ask(struct mr_client *client)
{
    struct mrc_node *node = &client->node;
    struct mr_future *f;
    if (mrc_future_new(client, NULL, MR_OP_NODE_INFO, 0, 1, 0, 0, &f) != MR_OK) {
        ask_later(node);
        return;
    }
    f->on_end = info_came;
    f->options.ahead = true; /* held sessions are released once the map is known */
    if (mrc_future_send_locked(f) != MR_OK) {
        mrc_future_free_locked(f);
        ask_later(node);
        return;
    }
    node->asking = true;
    node->stale = false;
}

/* Opens links to new cores, and closes those to cores that the node no longer has. */
static void match_links(struct mr_client *client)
{
    uint32_t core_count = client->node.core_count;
    uint64_t now_us = mr_clock_us();
    char error[128];
    while (client->link_count < core_count && mrc_client_add_link(client, error, sizeof(error)) == MR_OK) {
    }
    for (uint32_t i = 1; i < client->link_count; i++) {
        struct mrc_link *link = client->links[i];
        if (i >= core_count)
            mrc_link_close(link, now_us);
        else if (link->session == NULL)
            (void)mrc_link_reopen(link, now_us);
    }
}

void mrc_node_look_after(struct mr_client *client)
{
    struct mrc_node *node = &client->node;
    if (node->stale && !node->asking && node->ask_us <= mr_clock_us())
        ask(client);
    if (node->core_count == 0)
        return;
    mrc_remap_begin(client);
    match_links(client);
    mrc_survey_look_after(client);
    mrc_remap_go_on(client);
}

uint64_t mrc_node_next_us(const struct mr_client *client)
{
    const struct mrc_node *node = &client->node;
    if (node->asking)
        return UINT64_MAX;
    uint64_t survey_us = mrc_survey_next_us(client),
             next_us = node->stale ? node->ask_us : mrc_remap_next_us(client);

    return survey_us < next_us ? survey_us : next_us;
}

static bool connected(const void *arg)
{
    const struct mr_client *client = arg;
    uint32_t core_count = client->node.core_count;
    if (client->node.garbled)
        return true;
    if (core_count == 0 || client->link_count < core_count)
        return false;
    for (uint32_t i = 0; i < core_count; i++) {
        if (client->links[i]->path_narrow)
            return true;
        if (!client->links[i]->up || !client->links[i]->path_known)
            return false;
    }
    return true;
}

static bool find_narrow(const struct mr_client *client, char *error, size_t error_bytes)
{
    char text[MRC_PATH_TEXT_BYTES];
    for (uint32_t i = 0; i < client->link_count; i++) {
        const struct mrc_link *link = client->links[i];
        if (mrc_link_describe_path(link, text, sizeof(text))) {
            snprintf(error, error_bytes, "%s: %s", link->name, text);
            return true;
        }
    }
    return false;
}

enum mr_status mrc_node_connect(struct mr_client *client, uint64_t deadline_us, char *error,
                                size_t error_bytes)
{
    uint64_t begin_us = mr_clock_us();
    const struct mrc_link *silent = client->links[0];
    if (mrc_wait(client, connected, client, deadline_us)) {
        if (find_narrow(client, error, error_bytes))
            return MR_UNREACHABLE;
        if (!client->node.garbled)
            return MR_OK;
        snprintf(error, error_bytes, "%s: answered, but not with a partition map: another version?",
                 client->server);
        return MR_BAD_MESSAGE;
    }
    for (uint32_t i = 0; i < client->link_count; i++) {
        if (!client->links[i]->up || !client->links[i]->path_known) {
            silent = client->links[i];
            break;
        }
    }
    double waited_s = (double)(mr_clock_us() - begin_us) * 1e-6;
    char text[MRC_PATH_TEXT_BYTES];

    if (mrc_link_describe_version(silent, text, sizeof(text))) {
        snprintf(error, error_bytes, "%s: %s", silent->name, text);
        return MR_VERSION_MISMATCH;
    }

    if (silent->refused)
        snprintf(error, error_bytes,
                 "%s: nothing listens there (tried for %.1f s): start the server, or correct the address",
                 silent->name, waited_s);
    else
        snprintf(
            error, error_bytes,
            "%s: no answer for %.1f s: is the server running there, does a firewall drop UDP, is the key "
            "the server's (%s), and is the server as new as this library (protocol %u)?",
            silent->name, waited_s, client->link_config.has_psk ? "one is set" : "none is set",
            MR_PROTOCOL_VERSION);
    return MR_UNREACHABLE;
}
