#include "trainer_client/call/core_link.h"
#include "trainer_client/call/call_hooks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/call/client.h"
#include "trainer_client/call/future.h"
#include "trainer_client/call/node.h"
#include "dataplane/wire/format/capability.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/number.h"

/* Per poll: what goes out under one hold of the lock. Of a long request, the server begins to receive the
 * first runs while the next are made, and the kernel copies each while it is in the cache. */
#define RUNS_PER_POLL 2u
/* Three probes at maximum back-off, minus a margin: silence this long means that the server is gone. */
#define SILENCE_US    250000u
#define LATE_US       1000u /* when a timer is overdue by this much, nobody was in the library */
#define SEND_RETRY_US 1000u /* when the socket's buffer was full, and no event says that it has room */

/* Offload is switched off when at least this many datagrams had to be sent again before a request was
 * answered after so many in runs; or half of them, after that. */
#define OFFLOAD_RESENT_MIN 4u
#define OFFLOAD_PROOF_MIN  8u
/* Until runs are tried again, twice as long each time: what was sent again may have been slow, not lost. */
#define OFFLOAD_PAUSE_MIN_US 250000u
#define OFFLOAD_PAUSE_MAX_US 64000000u

static void watch_offload_anew(struct mrc_link *link);

static void on_session(void *app, struct mr_client_session *session, enum mr_client_session_event event)
{
    struct mrc_link *link = app;
    struct mr_client_session_info info;
    mr_client_session_info(session, &info);
    link->path_known = info.path_known;
    link->path_narrow = info.path_narrow;
    if (event == MR_SESSION_PATH && info.segment_bytes != link->segment_bytes)
        watch_offload_anew(link); /* the datagrams were too long: the losses are no fault of the runs */
    link->segment_bytes = info.segment_bytes;
    if (event == MR_SESSION_UP || event == MR_SESSION_RESTARTED) {
        link->up = true;
        link->refused = false;
        watch_offload_anew(link);
        mrc_node_session_up(link, &info);
        mrc_call_hooks.core_up(link, &info, event == MR_SESSION_RESTARTED);
    }
}

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    mrc_request_ended(user, call, status, reply);
}

static enum mr_status create_endpoint(struct mrc_link *link, const struct mrc_link_config *config)
{
    struct mr_endpoint_config ec;
    mr_endpoint_config_default(&ec);
    ec.io = mr_udp_io(link->sender);
    ec.app = link;
    ec.on_session = on_session;
    ec.on_reply = on_reply;
    if (config->has_psk)
        memcpy(ec.psk[0], config->psk, MR_PSK_BYTES);
    ec.psk_count = config->has_psk ? 1 : 0;
    memcpy(ec.client_uuid, config->client_uuid, MR_UUID_BYTES);
    ec.sessions_max = 2;
    ec.hold_on_restart = true;
    if (config->no_bundle)
        ec.bundle_bytes_max = 0;
    ec.calls_max = MRC_CALLS_MAX + MRC_CALLS_AHEAD;
    ec.udp_bytes_max = link->socket.udp_bytes_max;
    ec.receive_window_bytes = link->socket.receive_window_bytes;
    /* Pushes that are sent again must find room while the caller's own requests wait for them. */
    ec.memory_bytes = config->replay ? 2 * (size_t)config->memory_bytes : config->memory_bytes;
    const enum mr_status status = mr_endpoint_create(&ec, &link->ep);
    explicit_bzero(ec.psk, sizeof(ec.psk));
    return status;
}

enum mr_status mrc_link_create(struct mrc_node *node, const struct mrc_link_config *config, uint16_t core,
                               const struct mr_address *address, struct mrc_link **out, char *error,
                               size_t error_bytes)
{
    char text[MR_ADDRESS_TEXT_BYTES];
    enum mr_status status = MR_NO_MEMORY;
    struct mrc_link *link = calloc(1, sizeof(*link));
    if (link == NULL)
        goto no_memory;
    link->client = node->client;
    link->node = node;
    link->core = core;
    link->port_us = UINT64_MAX;
    mr_list_init(&link->requests);
    link->address = link->at = *address;
    link->socket.fd = -1;
    link->offload_wanted = config->offload;
    link->memory_bytes = config->memory_bytes;
    if (!mrc_call_hooks.link_init(link))
        goto no_memory;
    mr_address_text(address, text);
    snprintf(link->name, sizeof(link->name), "%s core %u", text, core);
    status = mr_udp_connect(address, &config->socket, &link->socket, error, error_bytes);
    if (status != MR_OK)
        goto failed;
    status = MR_NO_MEMORY;
    link->receiver = mr_udp_receiver_create(&link->socket);
    link->sender = mr_udp_sender_create(&link->socket, config->offload);
    if (link->receiver == NULL || link->sender == NULL)
        goto no_memory;
    status = create_endpoint(link, config);
    if (status != MR_OK)
        goto no_memory;
    status = mrc_link_reopen(link, mr_clock_us());
    if (status != MR_OK)
        goto no_memory;
    *out = link;
    return MR_OK;
no_memory:
    snprintf(error, error_bytes, "no memory for the link to core %u (%u bytes for messages): %s", core,
             config->memory_bytes, mr_status_text(status));
failed:
    mrc_link_destroy(link);
    return status;
}

enum mr_status mrc_link_reopen(struct mrc_link *link, uint64_t now_us)
{
    enum mr_status status =
        mr_client_session_open(link->ep, &link->address, link->core, link, &link->session);
    if (status != MR_OK)
        return status;
    link->up = false;
    link->path_known = link->path_narrow = false;
    link->opened_us = now_us;
    link->next_us = now_us;
    return MR_OK;
}

void mrc_link_close(struct mrc_link *link, uint64_t now_us)
{
    struct mr_client_session *session = link->session;
    if (session == NULL)
        return;
    link->session = NULL;
    mr_client_session_close(link->ep, session, now_us);
    mr_endpoint_flush(link->ep, now_us);
    (void)mr_udp_send_flush(link->sender);
    link->next_us = UINT64_MAX;
    link->unsent = false;
}

void mrc_link_destroy(struct mrc_link *link)
{
    if (link == NULL)
        return;
    mr_endpoint_destroy(link->ep);
    mrc_call_hooks.link_fini(link);
    mr_udp_sender_destroy(link->sender);
    mr_udp_receiver_destroy(link->receiver);
    mr_udp_close(&link->socket);
    free(link);
}

bool mrc_link_has_room(const struct mrc_link *link, uint64_t request_bytes)
{
    if (link->calls_pending + link->calls_held >= MRC_CALLS_MAX ||
        (link->client->replay && request_bytes > link->memory_bytes / 2))
        return false;
    return link->calls_pending == 0 || link->request_bytes + request_bytes <= link->memory_bytes / 4;
}

bool mrc_link_is_short(const struct mrc_link *link)
{
    return link->calls_held >= MRC_CALLS_MAX / 2 ||
           mr_endpoint_memory_used(link->ep) > link->memory_bytes / 2;
}

#define CONTESTED_US  10000000u
#define CONTESTED_MIN 3u

void mrc_link_was_forgotten(struct mrc_link *link, uint64_t now_us)
{
    if (now_us - link->forgotten_us > CONTESTED_US)
        link->forgotten = 0;
    link->forgotten++;
    link->forgotten_us = now_us;
}

bool mrc_link_is_contested(const struct mrc_link *link, uint64_t now_us)
{
    return link->forgotten >= CONTESTED_MIN && now_us - link->forgotten_us <= CONTESTED_US;
}

bool mrc_link_was_silent(const struct mrc_link *link, uint64_t sent_us, uint64_t now_us)
{
    struct mr_client_session_info info;
    if (link->session == NULL)
        return false;
    mr_client_session_info(link->session, &info);
    return info.silent_since_us < sent_us && now_us - sent_us >= SILENCE_US;
}

bool mrc_link_describe_path(const struct mrc_link *link, char *text, size_t text_bytes)
{
    if (!link->path_narrow)
        return false;
    snprintf(text, text_bytes,
             "the path there drops datagrams of %u bytes, so its MTU is below %u, the least that Millrace "
             "needs (this machine knows of %u): raise the MTU of the tunnel or interface on the way",
             MR_UDP_BYTES_MIN, MR_PATH_MTU_MIN, mr_udp_path_mtu(&link->socket));
    return true;
}

bool mrc_link_describe_version(const struct mrc_link *link, char *text, size_t text_bytes)
{
    return link->session != NULL && mr_client_session_version_text(link->session, "server", text, text_bytes);
}

void mrc_link_versions(const struct mrc_link *link, char *text, size_t text_bytes)
{
    struct mr_client_session_info info = {.silent_since_us = 0};
    char version[MR_VERSION_TEXT_BYTES];
    if (link->session != NULL)
        mr_client_session_info(link->session, &info);
    mr_version_name(&info.version, version);
    snprintf(text, text_bytes, "the server's version is %s, and this library's %s", version,
             mr_version_text());
}

/* Replaces the socket with a new one, and moves the session to it. */
static void change_port(struct mrc_link *link, uint64_t now_us)
{
    struct mr_udp_socket fresh;
    char error[128];
    if (mr_udp_connect(&link->at, &link->client->link_config.socket, &fresh, error, sizeof(error)) != MR_OK)
        return;
    if (mrc_progress_watch(&link->client->progress, fresh.fd, link) != MR_OK) {
        mr_udp_close(&fresh);
        return;
    }
    mr_udp_close(&link->socket);
    link->socket = fresh;
    mr_client_session_moved(link->ep, link->session, now_us);
    link->unsent = true;
}

void mrc_link_move(struct mrc_link *link, const struct mr_address *at, uint64_t now_us)
{
    char text[MR_ADDRESS_TEXT_BYTES];
    link->at = *at;
    link->refused = false;
    mr_address_text(at, text);
    snprintf(link->name, sizeof(link->name), "%s core %u", text, link->core);
    if (link->session != NULL)
        change_port(link, now_us);
}

void mrc_link_choose_port(struct mrc_link *link, uint64_t now_us)
{
    struct mr_client_session_info info;
    link->port_us = UINT64_MAX;
    if (link->session == NULL)
        return;
    mr_client_session_info(link->session, &info);
    if (!info.up)
        return;
    bool idle = link->calls_pending == 0 && !link->blocked;

    if (mrc_ports_try_another(&link->ports, link->core, info.arrived_core, info.core_count, idle, now_us))
        change_port(link, now_us);
    if (idle) /* otherwise the end of a call makes it due */
        link->port_us = mrc_ports_next_us(&link->ports, link->core, info.arrived_core, info.core_count);
}

bool mrc_link_receive(struct mrc_link *link)
{
    link->received = true;
    return mr_udp_receive(link->receiver);
}

bool mrc_link_is_due(const struct mrc_link *link, uint64_t now_us)
{
    return link->received || link->unsent || link->next_us <= now_us || link->port_us <= now_us;
}

void mrc_link_process(struct mrc_link *link, uint64_t now_us)
{
    struct mr_address from;
    const uint8_t *datagram;
    size_t bytes;
    link->processed_us = now_us;
    if (mr_udp_receive_refused(link->receiver))
        link->refused = true;
    bool received_too_long = mr_udp_receive_too_long(link->receiver);

    if ((mr_udp_send_too_long(link->sender) || received_too_long) && link->session != NULL) {
        mr_client_session_path_hint(link->ep, link->session, mr_udp_path_bytes(&link->socket), now_us);
        link->next_us = now_us;
    }
    while (mr_udp_receive_next(link->receiver, &from, &datagram, &bytes)) {
        link->refused = false;
        /* A connected socket delivers only its peer's datagrams. */
        mr_endpoint_receive(link->ep, now_us, &link->address, datagram, bytes);
    }
}

void mrc_link_catch_up(struct mrc_link *link, uint64_t now_us)
{
    if (link->next_us >= now_us || now_us - link->next_us < LATE_US)
        return;
    (void)mrc_link_receive(link);
    mrc_link_process(link, now_us);
}

/* Counts what was sent in runs, and what had to be sent again, since the last watch_offload_anew(). */
static void count_offload(const struct mrc_link *link, uint64_t *offloaded, uint64_t *resent)
{
    *offloaded = mr_udp_send_offloaded(link->sender) - link->offloaded_seen;
    *resent = mr_endpoint_counters(link->ep)->segments_resent - link->resent_seen;
}

static void watch_offload(struct mrc_link *link, uint64_t now_us)
{
    uint64_t offloaded, resent;
    if (!link->offload && link->offload_wanted && now_us >= link->offload_again_us)
        watch_offload_anew(link);
    if (!link->offload)
        return;
    count_offload(link, &offloaded, &resent);
    if (offloaded == 0) /* what is sent again before the first run says nothing of runs */
        link->resent_seen += resent;
    else if (resent >= OFFLOAD_RESENT_MIN && (!link->offload_proven || 2 * resent >= offloaded)) {
        link->offload = false;
        link->offload_pause_us = link->offload_pause_us == 0
                                     ? OFFLOAD_PAUSE_MIN_US
                                     : mr_min_u64(2 * link->offload_pause_us, OFFLOAD_PAUSE_MAX_US);
        link->offload_again_us = now_us + link->offload_pause_us;
        mr_udp_send_set_offload(link->sender, false);
    }
}

void mrc_link_delivered(struct mrc_link *link, uint64_t sent_us)
{
    uint64_t offloaded, resent;
    if (!link->offload || sent_us < link->offload_since_us)
        return;
    count_offload(link, &offloaded, &resent);
    if (offloaded >= OFFLOAD_PROOF_MIN && 2 * resent < offloaded) {
        link->offload_pause_us = 0;
        watch_offload_anew(link);
        link->offload_proven = true;
    }
}

/* Runs are tried, and their losses counted from now on. */
static void watch_offload_anew(struct mrc_link *link)
{
    link->offload = link->offload_wanted;
    link->offload_proven = false;
    link->offload_since_us = mr_clock_us();
    link->offloaded_seen = mr_udp_send_offloaded(link->sender);
    link->resent_seen = mr_endpoint_counters(link->ep)->segments_resent;
    mr_udp_send_set_offload(link->sender, link->offload);
}

void mrc_link_poll(struct mrc_link *link, uint64_t now_us)
{
    uint32_t datagrams = RUNS_PER_POLL * mr_udp_run_datagrams(link->segment_bytes + MR_HEADER_BYTES);
    link->next_us = mr_endpoint_poll(link->ep, now_us, datagrams);
    link->unsent = false;
    watch_offload(link, now_us);
    bool blocked = !mr_udp_send_flush(link->sender);

    if (blocked)
        link->next_us = now_us + SEND_RETRY_US;
    if (blocked != link->blocked) {
        link->blocked = blocked;
        mrc_progress_watch_room(&link->client->progress, link, blocked);
    }
}
