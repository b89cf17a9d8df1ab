/* A worker over a socket: making one, and destroying it. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "dataplane/rpc/agent.h"
#include "dataplane/rpc/world/long_message.h"
#include "dataplane/rpc/world/world.h"
#include "dataplane/wire/session/key_file.h"
#include "trainer_client/rpc/rpc_driver.h"
#include "dataplane/udp/address.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/udp/udp_socket.h"

#define INIT_TIMEOUT_MS      60000u
#define TIMEOUT_MS           60000u
#define DEAD_AFTER_MS        10000u
#define EXECUTOR_THREADS     16u
#define EXECUTOR_THREADS_MAX 256u
#define BUSY_POLL_US         50u
#define MEMORY_BYTES         ((size_t)256 << 20)
#define NAME_CHARS           "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:"
#define PORT_US              3000000u /* longer than a rendezvous watches over a world that has ended */
#define PORT_WAIT_US         10000u

static uint32_t or_default(uint32_t value, uint32_t other)
{
    return value == 0 ? other : value;
}

/* Of "localhost" with an address of each family, only one is listened at. */
static void keep_one_loopback(struct mr_agent_config *out)
{
    uint32_t ipv4 = 0;
    for (uint32_t i = 0; i < out->rendezvous_count; i++) {
        if (!mr_address_is_loopback(&out->rendezvous[i]))
            return;
        ipv4 += mr_address_is_ipv4(&out->rendezvous[i]);
    }
    if (ipv4 == 0)
        return;
    for (uint32_t i = 0, at = 0; i < out->rendezvous_count; i++)
        if (mr_address_is_ipv4(&out->rendezvous[i]))
            out->rendezvous[at++] = out->rendezvous[i];
    out->rendezvous_count = ipv4;
}

/* The places where the workers may meet, from "a:7700,b:7700": all addresses of these names. Of several,
 * those whose names do not resolve are left out, unless it is all of them. */
static enum mr_status read_places(const char *text, bool is_rendezvous, struct mr_agent_config *out,
                                  char *error, size_t error_bytes)
{
    enum mr_status status = MR_OK;
    char one[MR_HOST_BYTES];
    uint32_t named = 0;
    out->rendezvous_count = 0;
    for (const char *at = text, *end; at != NULL; at = *end == ',' ? end + 1 : NULL, named++) {
        uint32_t count = 0;
        end = at + strcspn(at, ",");
        if (named == MR_RPC_RENDEZVOUS_MAX) {
            snprintf(error, error_bytes, "options.rendezvous names more than %u places",
                     MR_RPC_RENDEZVOUS_MAX);
            return MR_INVALID_ARGUMENT;
        }
        snprintf(one, sizeof(one), "%.*s", (int)(end - at), at);
        status = mr_address_resolve_candidates(one, &out->rendezvous[out->rendezvous_count],
                                               MR_RPC_RENDEZVOUS_MAX - out->rendezvous_count, &count, error,
                                               error_bytes);
        out->rendezvous_count += count;
    }
    if (is_rendezvous && named > 1) {
        snprintf(
            error, error_bytes,
            "options.rendezvous = \"%.200s\": rank 0 listens there, so name one address; if it is nodes, set "
            "rendezvous_is_node",
            text);
        return MR_INVALID_ARGUMENT;
    }
    keep_one_loopback(out);
    return out->rendezvous_count > 0 ? MR_OK : status;
}

/* Where packets to the places leave from: to the first of each family that can be reached. */
static enum mr_status find_ways(const struct mr_agent_config *config, struct mr_address own[2],
                                uint32_t *udp_bytes_max, char *error, size_t error_bytes)
{
    const struct mr_udp_options probe_options = {.buffer_bytes = 0};
    enum mr_status status = MR_UNREACHABLE;
    bool has[2] = {false};
    *udp_bytes_max = 0;
    for (uint32_t i = 0; i < config->rendezvous_count; i++) {
        const uint32_t family = mr_address_is_ipv4(&config->rendezvous[i]) ? 0 : 1;
        struct mr_udp_socket probe;
        if (has[family] ||
            mr_udp_connect(&config->rendezvous[i], &probe_options, &probe, error, error_bytes) != MR_OK)
            continue;
        has[family] = true;
        mr_udp_local(&probe, &own[family]);
        own[family].port = 0;
        if (*udp_bytes_max == 0 || probe.udp_bytes_max < *udp_bytes_max)
            *udp_bytes_max = probe.udp_bytes_max;
        mr_udp_close(&probe);
        status = MR_OK;
    }
    return status;
}

/* Whether rank 0 must listen on all addresses to be found by others under this name: each machine may know
 * it by another address, and its own one often by one that nobody else reaches (127.0.1.1 in Debian's
 * /etc/hosts). */
static bool is_own_name(const char *rendezvous, const struct mr_agent_config *config)
{
    static const char *const here[] = {"localhost", "ip6-localhost", "ip6-loopback"};
    const size_t bytes = strcspn(rendezvous, ":");
    bool has_loopback = false, has_ipv4 = false, has_ipv6 = false;
    for (uint32_t i = 0; i < sizeof(here) / sizeof(here[0]); i++)
        if (strlen(here[i]) == bytes && strncmp(rendezvous, here[i], bytes) == 0)
            return false;
    for (uint32_t i = 0; i < config->rendezvous_count; i++) {
        has_loopback |= mr_address_is_loopback(&config->rendezvous[i]);
        has_ipv4 |= mr_address_is_ipv4(&config->rendezvous[i]);
        has_ipv6 |= !mr_address_is_ipv4(&config->rendezvous[i]);
    }
    return mr_address_is_name(rendezvous) &&
           ((has_loopback && config->world_size > 1) || (has_ipv4 && has_ipv6));
}

/* One address, or one of each family: "10.0.0.3,[fd00::3]". With two the socket listens on all addresses of
 * the machine, and the others are told of these two. */
static enum mr_status read_listen(const char *text, struct mr_address *local, struct mr_address own[2],
                                  char *error, size_t error_bytes)
{
    char first[MR_HOST_BYTES];
    const char *comma = strchr(text, ',');
    snprintf(first, sizeof(first), "%.*s", (int)strcspn(text, ","), text);
    enum mr_status status = mr_address_resolve(first, true, &own[0], error, error_bytes);
    if (status == MR_OK && comma != NULL)
        status = mr_address_resolve(comma + 1, true, &own[1], error, error_bytes);
    if (status != MR_OK)
        return status;
    if (mr_address_is_any(&own[0]) || (comma != NULL && mr_address_is_any(&own[1]))) {
        snprintf(error, error_bytes, "%s: a worker listens on one address, which the others reach it at",
                 text);
        return MR_INVALID_ARGUMENT;
    }
    *local = own[0];
    if (comma == NULL)
        return MR_OK;
    if (mr_address_is_ipv4(&own[0]) == mr_address_is_ipv4(&own[1]) || own[0].port != own[1].port) {
        snprintf(
            error, error_bytes,
            "options.listen = \"%.200s\": two addresses are one of IPv4 and one of IPv6, with the same port",
            text);
        return MR_INVALID_ARGUMENT;
    }
    *local = (struct mr_address){.port = own[0].port};
    return MR_OK;
}

/* Chooses where this worker listens: rank 0 at the rendezvous, the others on the address from which they
 * reach it, or on all if they may reach it from two. */
static enum mr_status choose_local(const struct mr_rpc_options *options, struct mr_agent_config *config,
                                   struct mrc_rpc_driver_options *out, char *error, size_t error_bytes)
{
    struct mr_address own[2] = {{.port = 0}};
    enum mr_status status = find_ways(config, own, &out->udp_bytes_max, error, error_bytes);
    if (status != MR_OK)
        return status;
    const bool has_ipv4 = mr_address_is_ipv4(&own[0]), has_ipv6 = !mr_address_is_any(&own[1]);
    if (options->listen != NULL)
        return read_listen(options->listen, &out->local, config->own, error, error_bytes);
    if (config->is_rendezvous && is_own_name(options->rendezvous, config)) {
        out->local = (struct mr_address){.port = config->rendezvous[0].port};
    } else if (config->is_rendezvous) {
        out->local = config->rendezvous[0];
    } else if (has_ipv4 && has_ipv6) {
        out->local = (struct mr_address){.port = 0};
        memcpy(config->own, own, sizeof(config->own));
    } else {
        out->local = own[has_ipv4 ? 0 : 1];
    }
    return MR_OK;
}

static enum mr_status rpc_check(const char *name, uint32_t rank, uint32_t world_size,
                                const struct mr_rpc_options *options, char *error, size_t error_bytes)
{
    const char *wrong = NULL;
    if (name == NULL || name[0] == 0 || strlen(name) >= MR_RPC_NAME_BYTES ||
        name[strspn(name, NAME_CHARS)] != 0)
        wrong = "a worker's name has 1 to 63 letters, digits and characters of \"-_.:\"";
    else if (world_size == 0 || world_size > MR_RPC_WORLD_MAX)
        wrong = "world_size must be 1 to 1024";
    else if (rank >= world_size)
        wrong = "the rank must be 0 to world_size - 1";
    else if (options == NULL || options->rendezvous == NULL)
        wrong = "options.rendezvous says where the workers meet, as in \"10.0.0.1:7700\"";
    else if (options->is_open && options->rendezvous_is_node)
        wrong =
            "a world whose workers meet at a node has a fixed world_size: options.is_open is for programs";
    else if (options->functions == NULL && options->function_count != 0)
        wrong = "options.functions is NULL";
    else if (options->executor_threads > EXECUTOR_THREADS_MAX)
        wrong = "options.executor_threads is at most 256";
    else if (options->long_memory_bytes != 0 &&
             options->long_memory_bytes <
                 (options->message_bytes == 0 ? MR_LONG_MESSAGE_MAX : options->message_bytes))
        wrong = "options.long_memory_bytes has to hold one message of message_bytes (0: 1 GiB)";
    if (wrong == NULL)
        return MR_OK;
    snprintf(error, error_bytes, "mr_rpc_init: worker \"%s\" (rank %u of %u): %s", name == NULL ? "" : name,
             rank, world_size, wrong);
    return MR_INVALID_ARGUMENT;
}

static enum mr_status register_all(struct mr_rpc *agent, const struct mr_rpc_options *options, char *error,
                                   size_t error_bytes)
{
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < options->function_count && status == MR_OK; i++)
        status =
            mr_functions_add(mr_agent_functions(agent), &options->functions[i], false, error, error_bytes);
    return status;
}

/* The worker that had the port in a world before this one may be closing it just now. */
static enum mr_status create_driver(const struct mrc_rpc_driver_options *options, bool is_rendezvous,
                                    uint64_t deadline_us, struct mrc_rpc_driver **out, char *error,
                                    size_t error_bytes)
{
    const struct timespec wait = mr_span_us(PORT_WAIT_US);
    const uint64_t until_us = mr_clock_us() + PORT_US;
    enum mr_status status = mrc_rpc_driver_create(options, out, error, error_bytes);
    while (status == MR_BUSY && is_rendezvous && mr_clock_us() < until_us && mr_clock_us() < deadline_us) {
        (void)nanosleep(&wait, NULL);
        status = mrc_rpc_driver_create(options, out, error, error_bytes);
    }
    return status == MR_BUSY ? MR_INVALID_ARGUMENT : status;
}

static enum mr_status create_agent(struct mrc_rpc_driver *driver, struct mr_agent_config *config,
                                   const struct mr_rpc_options *options, struct mr_rpc **out, char *error,
                                   size_t error_bytes)
{
    struct mr_rpc *agent;
    mrc_rpc_driver_configure(driver, config);
    config->rendezvous_text = options->rendezvous;
    enum mr_status status = mr_agent_create(config, &agent, error, error_bytes);

    if (status != MR_OK)
        return status;
    status = register_all(agent, options, error, error_bytes);
    if (status == MR_OK) {
        status = mrc_rpc_driver_start(driver, agent);
        if (status == MR_OK) {
            *out = agent;
            return MR_OK;
        }
        snprintf(error, error_bytes, "worker \"%s\": no thread could be made", config->name);
    }
    mr_agent_close(agent);
    mr_agent_join(agent);
    mr_agent_destroy(agent, NULL);
    return status;
}

/* ---- why nobody answers at the rendezvous ---- */

#define ANSWER_MS 250

enum reach {
    SOMEBODY_LISTENS, /* it is this machine, and no error came */
    NOTHING_LISTENS,
    NO_WAY,
    SILENCE,
};

/* One byte is not a Millrace packet: only the host itself answers, if nothing listens there. */
static enum reach rpc_ask(const struct mr_udp_socket *s, const struct mr_address *to)
{
    struct pollfd wait = {.fd = s->fd, .events = POLLIN};
    struct mr_address own;
    char byte = 0;
    if (send(s->fd, &byte, 1, MSG_NOSIGNAL) < 0 && errno != ECONNREFUSED)
        return NO_WAY;
    (void)poll(&wait, 1, ANSWER_MS);
    int failed = 0;
    socklen_t bytes = sizeof(failed);

    (void)getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &failed, &bytes);
    if (failed == ECONNREFUSED)
        return NOTHING_LISTENS;
    if (failed != 0)
        return NO_WAY;
    mr_udp_local(s, &own);
    return memcmp(own.ip, to->ip, sizeof(own.ip)) == 0 ? SOMEBODY_LISTENS : SILENCE;
}

static enum reach find_out(const struct mr_address *to)
{
    struct mr_udp_options options = {.buffer_bytes = 0};
    struct mr_udp_socket s;
    char error[256];
    if (mr_udp_connect(to, &options, &s, error, sizeof(error)) != MR_OK)
        return NO_WAY;
    enum reach reach = rpc_ask(&s, to);

    mr_udp_close(&s);
    return reach;
}

/* Asks a host once more, and appends what it finds to the line in `error`. Takes up to a quarter of a
 * second. */
static void explain_one(const struct mr_address *rendezvous, bool has_key, char *error, size_t error_bytes)
{
    const char *own_key = has_key ? "see key_file" : "this worker has none (key_file)";
    size_t used = strlen(error);
    char text[MR_ADDRESS_TEXT_BYTES];
    mr_address_text(rendezvous, text);
    used += (size_t)snprintf(error + used, error_bytes - used, ", %s: ", text);
    if (used >= error_bytes)
        return;
    switch (find_out(rendezvous)) {
    case NOTHING_LISTENS:
        snprintf(error + used, error_bytes - used, "the host is there, and nothing listens at that port");
        break;
    case SOMEBODY_LISTENS:
        snprintf(error + used, error_bytes - used,
                 "a program listens there, and probably has another key: %s", own_key);
        break;
    case NO_WAY:
        snprintf(error + used, error_bytes - used, "the host cannot be reached");
        break;
    default:
        snprintf(error + used, error_bytes - used,
                 "either it has another key: %s, or the host is down, or packets are dropped on the way",
                 own_key);
    }
}

static void explain_silence(const struct mr_agent_config *config, bool has_key, char *error,
                            size_t error_bytes)
{
    for (uint32_t i = 0; i < config->rendezvous_count && strlen(error) + 1 < error_bytes; i++)
        explain_one(&config->rendezvous[i], has_key, error, error_bytes);
}

/* ---- made and destroyed ---- */

static void append_address(const char *rendezvous, char *error, size_t error_bytes)
{
    const size_t used = strlen(error);
    snprintf(error + used, error_bytes - used, " (the rendezvous is %.200s)", rendezvous);
}

static enum mr_status rpc_join(struct mr_rpc *agent, const struct mr_agent_config *config, bool has_key,
                               uint64_t deadline_us, char *error, size_t error_bytes)
{
    enum mr_status status = mr_workers_wait_joined(agent, deadline_us, error, error_bytes);
    if (status == MR_UNREACHABLE)
        explain_silence(config, has_key, error, error_bytes);
    if (status == MR_VERSION_MISMATCH)
        append_address(config->rendezvous_text, error, error_bytes);
    return status;
}

enum mr_status mr_rpc_init(const char *name, uint32_t rank, uint32_t world_size,
                           const struct mr_rpc_options *options, struct mr_rpc **rpc, char *error,
                           size_t error_bytes)
{
    struct mrc_rpc_driver_options driver_options = {.world_size = world_size};
    struct mr_agent_config config = {.name = name, .rank = rank, .world_size = world_size};
    struct mrc_rpc_driver *driver = NULL;
    struct mr_rpc *agent;
    enum mr_status status = rpc_check(name, rank, world_size, options, error, error_bytes);
    if (status != MR_OK)
        return status;
    uint64_t deadline_us =
        mr_clock_us() + (uint64_t)or_default(options->init_timeout_ms, INIT_TIMEOUT_MS) * 1000u;

    config.is_rendezvous = rank == 0 && !options->rendezvous_is_node;
    config.is_open = options->is_open;
    config.timeout_ms = or_default(options->timeout_ms, TIMEOUT_MS);
    config.dead_after_ms = or_default(options->dead_after_ms, DEAD_AFTER_MS);
    config.long_bytes_max = options->message_bytes;
    config.long_memory_bytes = options->long_memory_bytes;
    config.executor_threads = or_default(options->executor_threads, EXECUTOR_THREADS);
    driver_options.busy_poll_us = or_default(options->busy_poll_us, BUSY_POLL_US);
    driver_options.memory_bytes = options->memory_bytes == 0 ? MEMORY_BYTES : options->memory_bytes;
    driver_options.has_psk = options->key_file != NULL;
    if (options->key_file != NULL)
        status = mr_key_file_read(options->key_file, driver_options.psk, error, error_bytes);
    if (status == MR_OK)
        status = read_places(options->rendezvous, config.is_rendezvous, &config, error, error_bytes);
    if (status == MR_OK)
        status = choose_local(options, &config, &driver_options, error, error_bytes);
    if (status == MR_OK)
        status =
            create_driver(&driver_options, config.is_rendezvous, deadline_us, &driver, error, error_bytes);
    explicit_bzero(driver_options.psk, sizeof(driver_options.psk));
    if (status == MR_OK)
        status = create_agent(driver, &config, options, &agent, error, error_bytes);
    if (status == MR_OK)
        status = rpc_join(agent, &config, driver_options.has_psk, deadline_us, error, error_bytes);
    if (status != MR_OK) {
        mrc_rpc_driver_destroy(driver);
        return status;
    }
    *rpc = agent;
    return MR_OK;
}

void mr_rpc_close(struct mr_rpc *rpc)
{
    if (rpc != NULL)
        mrc_rpc_driver_close(mr_agent_driver(rpc)->self);
}

void mr_rpc_destroy(struct mr_rpc *rpc)
{
    if (rpc != NULL)
        mrc_rpc_driver_destroy(mr_agent_driver(rpc)->self);
}
