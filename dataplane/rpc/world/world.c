#include "dataplane/rpc/world/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/udp/other_version.h"
#include "dataplane/wire/format/capability.h"
#include "dataplane/rpc/rref/rref.h"

#define JOIN_WAIT_US     2000u /* between two JOINs, doubling up to */
#define JOIN_WAIT_MAX_US 100000u
#define JOIN_CALL_US     2000000u
#define JOIN_SUSPECT_US  1500000u /* a living member is heard twice a second */
#define JOIN_DELAY_US    500000u  /* the longest time that an old packet of a member comes late */
#define REFUSAL_US       5000000u /* how long the others are waited for, to learn of a refusal */
#define JOIN_STALE_US    5000000u /* a worker that has not asked for so long has given up its place */

/* ---- the list ---- */

static struct mr_member *own_member(struct mr_rpc *agent)
{
    return agent->config.rank == MR_RPC_NO_RANK ? NULL : &agent->members[agent->config.rank];
}

/* Whether another asked for the member's rank or name, and the member has not asked since. */
static bool is_contested(const struct mr_member *m)
{
    return m->wanted_us != 0 && m->heard_us <= m->wanted_us + JOIN_DELAY_US;
}

static bool all_present(const struct mr_rpc *agent)
{
    MR_MEMBER_EACH(m, agent)
        if (!m->present || is_contested(m))
            return false;
    return true;
}

/* Whether the program may go on, and leave: only a program's rendezvous waits for the others. */
static bool all_have_the_list(const struct mr_rpc *agent)
{
    if (!agent->config.is_rendezvous || agent->config.is_node || agent->config.is_open)
        return true;
    MR_MEMBER_EACH(m, agent)
        if (m->rank != agent->config.rank && !m->has_list && !atomic_load(&m->dead))
            return false;
    return true;
}

static void joined(struct mr_rpc *agent, enum mr_status status)
{
    uint64_t now_us = mr_agent_now(agent);
    agent->join_status = status;
    if (status == MR_OK) {
        MR_MEMBER_EACH(m, agent) {
            m->heard_us = now_us;
            if (!m->present)
                continue;
            agent->has_programs |= m->rank != agent->config.rank && !m->is_node;
        }
        agent->rendezvous.heard_us = now_us;
        atomic_store(&agent->complete, true);
        if (!all_have_the_list(agent)) /* list_tick() goes on */
            return;
    }
    (void)mr_agent_done(&agent->joined);
}

static bool has_joined(struct mr_rpc *agent)
{
    return (atomic_load(&agent->joined) & MR_DONE) != 0;
}

/* At the rendezvous, once the world is complete. */
static void list_tick(struct mr_rpc *agent)
{
    if (atomic_load(&agent->complete) && !has_joined(agent) && all_have_the_list(agent))
        (void)mr_agent_done(&agent->joined);
}

enum mr_status mr_world_init(struct mr_rpc *agent)
{
    const struct mr_agent_config *config = &agent->config;
    agent->members = calloc(config->world_size, sizeof(*agent->members));
    agent->joined_ranks = calloc(config->world_size, 1);
    agent->leaving.states = calloc(config->world_size, 1);
    if (agent->members == NULL || agent->joined_ranks == NULL || agent->leaving.states == NULL)
        return MR_NO_MEMORY;
    for (uint32_t i = 0; i < config->world_size; i++)
        agent->members[i].rank = i;
    agent->rendezvous.rank = agent->arriving = MR_RPC_NO_RANK;
    agent->rendezvous.address = config->rendezvous[0];
    agent->join_wait_us = JOIN_WAIT_US;
    agent->leaving.world_epoch = 1;

    struct mr_member *own = own_member(agent);

    if (own == NULL)
        return MR_OK;
    snprintf(own->name, sizeof(own->name), "%s", config->name);
    memcpy(own->uuid, config->uuid, MR_UUID_BYTES);
    own->incarnation = config->incarnation;
    own->present = true;
    own->is_node = config->is_node;
    own->is_rendezvous = config->is_rendezvous;
    if (config->is_rendezvous && (config->is_open || all_present(agent)))
        joined(agent, MR_OK);
    return MR_OK;
}

void mr_world_fini(struct mr_rpc *agent)
{
    free(agent->members);
    free(agent->joined_ranks);
    free(agent->leaving.states);
}

bool mr_world_is_kept_by(const struct mr_rpc *agent, const struct mr_member *m)
{
    return m->rank != agent->config.rank && (!m->is_node || !agent->has_programs);
}

/* ---- joining, at the rendezvous ---- */

static bool is_stale(struct mr_rpc *agent, const struct mr_member *m, uint64_t now_us)
{
    return m != own_member(agent) && !atomic_load(&agent->complete) && now_us - m->heard_us > JOIN_STALE_US;
}

/* Of a world over which its rendezvous still watches: whoever asks is for the next one. */
static bool is_for_the_next_world(const struct mr_rpc *agent, const struct mr_request *request)
{
    if (!agent->leaving.all_may_go && !atomic_load(&agent->left))
        return false;
    MR_MEMBER_EACH(m, agent)
        if (memcmp(m->uuid, request->client_uuid, MR_UUID_BYTES) == 0)
            return false;
    return true;
}

/* Whether the member is there beside the one that asks for its rank or name. Before all have joined, it has
 * to ask again before that is known: it may have been started again, and its last packets may come late. */
static bool is_there_too(struct mr_rpc *agent, struct mr_member *m, uint64_t now_us)
{
    if (m == own_member(agent) || atomic_load(&agent->complete) || agent->config.is_node)
        return true;
    if (m->wanted_us == 0)
        m->wanted_us = now_us;
    return !is_contested(m);
}

/* MR_BUSY: it is not known yet. Other errors are said in `why`. */
static enum mr_status judge_join(struct mr_rpc *agent, const struct mr_join_wire *join,
                                 const struct mr_request *request, char *why, size_t bytes)
{
    if (memchr(join->name, 0, sizeof(join->name)) == NULL || join->name[0] == 0 ||
        join->rank >= join->world_size) {
        snprintf(why, bytes, "the name or the rank is not one");
        return MR_INVALID_ARGUMENT;
    }
    if (((join->flags & MR_JOIN_OPEN) != 0) != agent->config.is_open) {
        snprintf(
            why, bytes,
            "worker \"%s\" (rank %u) gives %s world_size, and the rendezvous %s: all give the same, or none",
            join->name, join->rank, agent->config.is_open ? "a" : "no",
            agent->config.is_open ? "none" : "one");
        return MR_INVALID_ARGUMENT;
    }
    if (join->world_size != agent->config.world_size) {
        snprintf(why, bytes,
                 "worker \"%s\" (rank %u) says that world_size is %u, and the rendezvous expects %u",
                 join->name, join->rank, join->world_size, agent->config.world_size);
        return MR_INVALID_ARGUMENT;
    }
    MR_MEMBER_EACH(m, agent) {
        bool same = m->present && memcmp(m->uuid, request->client_uuid, MR_UUID_BYTES) == 0;
        if (!m->present || is_stale(agent, m, request->now_us) || (same && m->rank == join->rank))
            continue;
        bool has_the_name =
            strcmp(m->name, join->name) == 0 && !(agent->config.is_open && atomic_load(&m->dead));
        if (!same && (m->rank == join->rank || has_the_name) && !is_there_too(agent, m, request->now_us))
            return MR_BUSY;
        if (m->rank == join->rank || same) {
            snprintf(why, bytes, "rank %u is taken by worker \"%s\"%s", m->rank, m->name,
                     !atomic_load(&m->dead)  ? ""
                     : agent->config.is_open ? ", which is gone: take a rank that nobody has had"
                                             : ", which died: it is free when this world is over");
            return MR_INVALID_ARGUMENT;
        }
        if (has_the_name) {
            snprintf(why, bytes, "the name \"%s\" is taken by rank %u", m->name, m->rank);
            return MR_INVALID_ARGUMENT;
        }
    }
    if (atomic_load(&agent->members[join->rank].dead)) {
        snprintf(why, bytes, "worker \"%s\" (rank %u) was taken for dead", join->name, join->rank);
        return MR_WORKER_DIED;
    }
    return MR_OK;
}

static void read_join(struct mr_rpc *agent, const struct mr_join_wire *join, const struct mr_request *request)
{
    struct mr_member *joining = &agent->members[join->rank];
    if (memcmp(joining->uuid, request->client_uuid, MR_UUID_BYTES) != 0)
        joining->wanted_us = 0; /* that was another's */
    memcpy(joining->name, join->name, sizeof(joining->name));
    memcpy(joining->uuid, request->client_uuid, MR_UUID_BYTES);
    joining->incarnation = join->incarnation;
    joining->is_node = (join->flags & MR_JOIN_NODE) != 0;
    (void)mr_call_ref_address(agent->config.endpoint, request->ref, &joining->address);
    joining->other_address = (struct mr_address){.port = join->other_port};
    memcpy(joining->other_address.ip, join->other_ip, sizeof(join->other_ip));
}

static void note_join(struct mr_rpc *agent, const struct mr_join_wire *join, const struct mr_request *request)
{
    struct mr_member *joining = &agent->members[join->rank];
    joining->heard_us = request->now_us;
    if (agent->config.is_open && !joining->present && agent->arriving == MR_RPC_NO_RANK) {
        read_join(agent, join, request);
        agent->arriving = join->rank;
        mr_arrival_tick(agent);
    }
    if (atomic_load(&agent->complete))
        return;
    read_join(agent, join, request);
    joining->present = true;
    MR_MEMBER_EACH(m, agent)
        if (is_stale(agent, m, request->now_us))
            m->present = false;
    if (all_present(agent))
        joined(agent, MR_OK);
}

void mr_world_write_member(const struct mr_member *m, struct mr_member_wire *out)
{
    *out = (struct mr_member_wire){.rank = m->rank,
                                   .incarnation = m->incarnation,
                                   .flags = (m->is_node ? MR_JOIN_NODE : 0u) |
                                            (m->is_rendezvous ? MR_JOIN_RENDEZVOUS : 0u),
                                   .port = m->address.port,
                                   .other_port = m->other_address.port};
    memcpy(out->name, m->name, sizeof(out->name));
    memcpy(out->uuid, m->uuid, sizeof(out->uuid));
    memcpy(out->ip, m->address.ip, sizeof(out->ip));
    memcpy(out->other_ip, m->other_address.ip, sizeof(out->other_ip));
}

/* How many lines the list has for a worker; 0: it has to ask again. */
static uint32_t lines_for(struct mr_rpc *agent, uint32_t rank)
{
    uint32_t present = 0;
    if (!atomic_load(&agent->complete) || !agent->members[rank].present)
        return 0;
    MR_MEMBER_EACH(m, agent)
        present += m->present;
    return present;
}

static void answer_join(struct mr_rpc *agent, const struct mr_request *request, uint32_t rank)
{
    uint32_t size = agent->config.world_size, line_count = lines_for(agent, rank), line = 0;
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, size, NULL),
                                   mr_tensor_2d(MR_U8, line_count, sizeof(struct mr_member_wire), NULL)};
    if (!mr_reply_begin(agent->config.endpoint, request->ref, MR_OK, tensors, 2)) {
        mr_reply_busy(agent->config.endpoint, request->ref);
        return;
    }
    uint8_t *present = tensors[0].data;
    struct mr_member_wire *lines = tensors[1].data;

    for (uint32_t i = 0; i < size; i++) {
        const struct mr_member *m = &agent->members[i];
        present[i] = m->present;
        if (!m->present || line == line_count)
            continue;
        mr_world_write_member(m, &lines[line]);
        if (agent->config.is_open && atomic_load(&m->dead))
            lines[line].flags |= MR_MEMBER_DEAD;
        line++;
    }
    mr_reply_end(agent->config.endpoint, request->ref);
}

/* Returns whether all who keep a node's world have left or are silent: it is over, or will be soon, and the
 * next one may begin. */
static bool is_deserted(struct mr_rpc *agent, uint64_t now_us)
{
    if (!agent->config.is_node || !atomic_load(&agent->complete))
        return false;
    MR_MEMBER_EACH(m, agent)
        if (mr_world_is_kept_by(agent, m) && m->leave_phase != MR_LEAVE_GONE && !atomic_load(&m->dead) &&
            (m->heard_us > now_us || now_us - m->heard_us <= JOIN_SUSPECT_US))
            return false;
    return true;
}

/* Whether to answer BUSY, so that it tries again. Another node of this world may have noticed its end, and
 * come for the next one, before this one has. */
static bool may_come_later(struct mr_rpc *agent, const struct mr_join_wire *join,
                           const struct mr_request *request)
{
    return join->rank < agent->config.world_size && join->rank != agent->config.rank &&
           ((join->flags & MR_JOIN_NODE) != 0 ||
            memcmp(agent->members[join->rank].uuid, request->client_uuid, MR_UUID_BYTES) != 0) &&
           is_deserted(agent, request->now_us);
}

/* A node that was started again asks from where its former process was: that one is dead, which nobody needs
 * to find out by its silence. */
static void notice_restart(struct mr_rpc *agent, const struct mr_join_wire *join,
                           const struct mr_request *request)
{
    struct mr_address from;
    if (!atomic_load(&agent->complete) || (join->flags & MR_JOIN_NODE) == 0 ||
        join->rank >= agent->config.world_size || join->rank == agent->config.rank ||
        !mr_call_ref_address(agent->config.endpoint, request->ref, &from))
        return;
    struct mr_member *m = &agent->members[join->rank];
    if (m->is_node && m->address.port == from.port && memcmp(m->address.ip, from.ip, sizeof(from.ip)) == 0 &&
        memcmp(m->uuid, request->client_uuid, MR_UUID_BYTES) != 0)
        mr_member_died(agent, m);
}

/* ---- a world that cannot come together ---- */

/* A program's world has each rank and name once: with a worker that is refused it stays incomplete. All
 * others learn it when they ask again, and then this worker ends, too. A node goes on: it may have other
 * worlds. */
static void refuse_world(struct mr_rpc *agent, const struct mr_join_wire *join, const char *why)
{
    if (atomic_load(&agent->complete) || agent->config.is_open || agent->config.is_node)
        return;
    snprintf(agent->refusal, sizeof(agent->refusal),
             "this world cannot come together, since worker \"%.*s\" (rank %u) was refused: %s",
             MR_RPC_NAME_BYTES - 1, join->name, join->rank, why);
    agent->refusal_us = mr_agent_now(agent);
    if (join->rank < agent->config.world_size && !agent->members[join->rank].present)
        agent->members[join->rank].knows_refusal = true; /* it is the refused one's, and it is answered now */
}

static void tell_refusal(struct mr_rpc *agent, const struct mr_join_wire *join,
                         const struct mr_request *request)
{
    mr_reply_error(agent->config.endpoint, request->ref, MR_INVALID_ARGUMENT, "%s", agent->refusal);
    if (join->rank < agent->config.world_size)
        agent->members[join->rank].knows_refusal = true;
}

static uint64_t refusal_tick(struct mr_rpc *agent, uint64_t now_us)
{
    bool all_know = true;
    if (agent->refusal[0] == 0 || has_joined(agent))
        return UINT64_MAX;
    MR_MEMBER_EACH(m, agent)
        all_know = all_know && (m->knows_refusal || m == own_member(agent));
    if (!all_know && now_us < agent->refusal_us + REFUSAL_US)
        return agent->refusal_us + REFUSAL_US;
    snprintf(agent->join_error, sizeof(agent->join_error), "%s", agent->refusal);
    joined(agent, MR_INVALID_ARGUMENT);
    return UINT64_MAX;
}

void mr_world_serve_join(struct mr_rpc *agent, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    const struct mr_message *message = request->message;
    struct mr_join_wire join;
    char why[256];
    if (mr_arrival_serve(agent, request))
        return;
    if (!agent->config.is_rendezvous) {
        mr_reply_error(ep, request->ref, MR_UNKNOWN_OP,
                       "worker \"%s\" (rank %u) is not where the workers meet: that is %s", agent->name,
                       agent->config.rank, agent->rendezvous_text);
        return;
    }
    if ((request->capabilities & MR_CAN(RPC)) == 0) {
        /* Versions before 0.3.0 ask again for a minute unless the status is one that they take as final. */
        agent->refused_version = true;
        mr_reply_error(
            ep, request->ref, request->capabilities == 0 ? MR_INVALID_ARGUMENT : MR_VERSION_MISMATCH,
            "this worker's version is %s, and the rendezvous has version %s: install the same version "
            "for all workers and nodes of a world",
            request->capabilities == 0 ? "before 0.3.0" : "another", mr_version_text());
        return;
    }
    if (message->preamble.tensor_count != 1 || message->tensors[0].bytes != sizeof(join)) {
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return;
    }
    memcpy(&join, message->tensors[0].data, sizeof(join));
    notice_restart(agent, &join, request);
    if (is_for_the_next_world(agent, request) || may_come_later(agent, &join, request)) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    if (agent->refusal[0] != 0) {
        tell_refusal(agent, &join, request);
        return;
    }
    enum mr_status status = judge_join(agent, &join, request, why, sizeof(why));

    if (status == MR_BUSY) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    if (status != MR_OK) {
        mr_reply_error(ep, request->ref, status, "%s", why);
        if (status == MR_INVALID_ARGUMENT)
            refuse_world(agent, &join, why);
        return;
    }
    note_join(agent, &join, request);
    answer_join(agent, request, join.rank);
}

/* ---- joining, as a worker ---- */

bool mr_world_read_member(struct mr_rpc *agent, const struct mr_member_wire *line)
{
    if (line->rank >= agent->config.world_size || memchr(line->name, 0, sizeof(line->name)) == NULL)
        return false;
    struct mr_member *m = &agent->members[line->rank];

    if (line->rank == agent->config.rank)
        return memcmp(line->uuid, agent->config.uuid, MR_UUID_BYTES) == 0;
    memcpy(m->name, line->name, sizeof(m->name));
    memcpy(m->uuid, line->uuid, sizeof(m->uuid));
    m->incarnation = line->incarnation;
    m->is_node = (line->flags & MR_JOIN_NODE) != 0;
    m->is_rendezvous = (line->flags & MR_JOIN_RENDEZVOUS) != 0;
    if (m->is_rendezvous) {
        m->address = agent->rendezvous.address;
    } else {
        m->address = (struct mr_address){.port = line->port};
        memcpy(m->address.ip, line->ip, sizeof(line->ip));
        m->other_address = (struct mr_address){.port = line->other_port};
        memcpy(m->other_address.ip, line->other_ip, sizeof(line->other_ip));
    }
    atomic_store(&m->present, true);
    if (agent->config.is_open)
        mr_rrefs_joined(agent->rrefs, m->rank);
    if ((line->flags & MR_MEMBER_DEAD) != 0)
        mr_member_died(agent, m);
    return true;
}

static bool read_join_answer(struct mr_rpc *agent, const struct mr_message *reply)
{
    const struct mr_tensor *present = &reply->tensors[0], *lines = &reply->tensors[1];
    uint32_t size = agent->config.world_size;
    uint64_t line_count = lines->bytes / sizeof(struct mr_member_wire);
    if (reply->preamble.tensor_count != 2 || present->bytes != size)
        return false;
    memcpy(agent->joined_ranks, present->data, size);
    if (lines->bytes == 0)
        return true;
    if (lines->bytes != line_count * sizeof(struct mr_member_wire) ||
        (!agent->config.is_open && line_count != size))
        return false;
    for (uint64_t i = 0; i < line_count; i++) {
        struct mr_member_wire line;
        memcpy(&line, (const uint8_t *)lines->data + i * sizeof(line), sizeof(line));
        if (!mr_world_read_member(agent, &line))
            return false;
    }
    if (!agent->config.is_open && !all_present(agent))
        return false;
    joined(agent, MR_OK);
    return true;
}

static void join_failed(struct mr_rpc *agent, enum mr_status status, const struct mr_message *reply)
{
    (void)mr_agent_error_text(reply, agent->join_error, sizeof(agent->join_error));
    joined(agent, status);
}

void mr_world_check_version(struct mr_rpc *agent, const struct mr_peer_version *version)
{
    char text[MR_VERSION_TEXT_BYTES];
    if ((version->capabilities & MR_CAN(RPC)) != 0 || has_joined(agent))
        return;
    mr_version_name(version, text);
    (void)snprintf(
        agent->join_error, sizeof(agent->join_error),
        "the rendezvous has version %s, and this worker version %s: install the same version for all "
        "workers and nodes of a world",
        text, mr_version_text());
    joined(agent, MR_VERSION_MISMATCH);
    mr_member_close(agent, &agent->rendezvous);
}

/* What is to be done after an answer, or without one. */
static void judge_answer(struct mr_rpc *agent, enum mr_status status, const struct mr_message *reply)
{
    uint32_t places = agent->config.rendezvous_count;
    agent->join_elsewhere = status == MR_UNKNOWN_OP ? agent->join_elsewhere + 1 : 0;
    if (status == MR_BAD_MESSAGE) /* no version that knows this one's bodies says that */
        join_failed(agent, MR_VERSION_MISMATCH, reply);
    else if (status == MR_VERSION_MISMATCH || status == MR_INVALID_ARGUMENT || status == MR_WORKER_DIED ||
             agent->join_elsewhere >= places)
        join_failed(agent, status, reply);
    else if (status == MR_OK && !read_join_answer(agent, reply))
        join_failed(agent, MR_BAD_MESSAGE, NULL);
    else if (status != MR_OK)
        agent->join_at = (agent->join_at + 1) % places;
}

static bool join_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                       const struct mr_message *reply)
{
    agent->join_in_flight = false;
    if (agent->closing || has_joined(agent))
        return false;
    judge_answer(agent, status, reply);
    /* The first ones come quickly, so that workers that start together continue together. */
    agent->join_next_us = mr_agent_now(agent) + agent->join_wait_us;
    agent->join_wait_us =
        agent->join_wait_us * 2 > JOIN_WAIT_MAX_US ? JOIN_WAIT_MAX_US : agent->join_wait_us * 2;
    return false;
}

static bool is_same_family(const struct mr_address *a, const struct mr_address *b)
{
    static const uint8_t ipv4_prefix[12] = {[10] = 0xff, [11] = 0xff};
    return (memcmp(a->ip, ipv4_prefix, sizeof(ipv4_prefix)) == 0) ==
           (memcmp(b->ip, ipv4_prefix, sizeof(ipv4_prefix)) == 0);
}

static void write_join(const struct mr_rpc *agent, struct mr_join_wire *join)
{
    *join = (struct mr_join_wire){.rank = agent->config.rank,
                                  .world_size = agent->config.world_size,
                                  .incarnation = agent->config.incarnation,
                                  .flags = (agent->config.is_node ? MR_JOIN_NODE : 0u) |
                                           (agent->config.is_open ? MR_JOIN_OPEN : 0u)};
    memcpy(join->name, agent->name, sizeof(join->name));
    for (uint32_t i = 0; i < 2; i++) {
        const struct mr_address *own = &agent->config.own[i];
        if (own->port == 0 || is_same_family(own, &agent->rendezvous.address))
            continue;
        memcpy(join->other_ip, own->ip, sizeof(join->other_ip));
        join->other_port = own->port;
    }
}

/* Another place than the one that was asked last. */
static void turn_to(struct mr_rpc *agent, const struct mr_address *place)
{
    if (memcmp(place, &agent->rendezvous.address, sizeof(*place)) == 0)
        return;
    mr_member_close(agent, &agent->rendezvous);
    agent->rendezvous.address = *place;
    agent->rendezvous.start_id = 0;
}

static uint64_t join_tick(struct mr_rpc *agent, uint64_t now_us)
{
    struct mr_join_wire join;
    if (has_joined(agent) || agent->config.is_rendezvous || agent->join_in_flight ||
        atomic_load(&agent->held))
        return UINT64_MAX;
    if (now_us < agent->join_next_us)
        return agent->join_next_us;
    turn_to(agent, &agent->config.rendezvous[agent->join_at]);
    write_join(agent, &join);
    agent->join = (struct mr_agent_call){
        .op = MR_OP_RPC_JOIN, .control = true, .deadline_us = now_us + JOIN_CALL_US, .ended = join_ended};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(join), &join);

    if (mr_member_begin(agent, &agent->rendezvous, &agent->join, &tensor, 1) != MR_OK) {
        agent->join_at = (agent->join_at + 1) % agent->config.rendezvous_count;
        agent->join_next_us = now_us + JOIN_WAIT_MAX_US;
        return agent->join_next_us;
    }
    agent->join_in_flight = true;
    mr_agent_send(agent, &agent->join);
    return UINT64_MAX;
}

static void say_who_is_kept_out(const struct mr_rpc *agent, char *out, size_t bytes)
{
    const struct mr_wire_counters *counters = mr_endpoint_counters(agent->config.endpoint);
    if (counters->drop_proof != 0)
        (void)snprintf(out, bytes,
                       "; somebody asks under another key: see key_file of this worker and of those");
    else if (agent->refused_version)
        (void)snprintf(out, bytes,
                       "; somebody of another version than this worker's, %s, asks to join: install the same "
                       "version for all workers and nodes of a world",
                       mr_version_text());
    else if (counters->hellos_other_version != 0) {
        char text[MR_OTHER_VERSION_TEXT_BYTES];
        mr_other_version_text(mr_endpoint_other_version(agent->config.endpoint), "library", text);
        (void)snprintf(out, bytes, "; %s", text);
    }
}

bool mr_world_missing(struct mr_rpc *agent, char *out, size_t bytes)
{
    uint32_t there = 0, used = 0;
    MR_MEMBER_EACH(m, agent) {
        if (agent->config.is_rendezvous)
            agent->joined_ranks[m->rank] = m->present;
        there += agent->joined_ranks[m->rank] != 0;
    }
    if (agent->config.is_open) {
        snprintf(out, bytes, "the rendezvous has not taken it in: not all of %u members have answered there",
                 there);
        return there != 0;
    }
    used = (uint32_t)snprintf(out, bytes, "%u of %u workers have joined; missing: rank", there,
                              agent->config.world_size);
    for (uint32_t i = 0; i < agent->config.world_size && used + 16 < bytes; i++)
        if (agent->joined_ranks[i] == 0)
            used += (uint32_t)snprintf(out + used, bytes - used, " %u", i);
    if (agent->config.is_rendezvous && used < bytes)
        say_who_is_kept_out(agent, out + used, bytes - used);
    return there != 0;
}

uint64_t mr_world_tick(struct mr_rpc *agent, uint64_t now_us)
{
    mr_arrival_tick(agent);
    uint64_t join_us = join_tick(agent, now_us), alive_us = mr_alive_tick(agent, now_us);
    uint64_t leave_us = mr_leave_tick(agent, now_us);
    uint64_t refusal_us = refusal_tick(agent, now_us);
    list_tick(agent);
    uint64_t next_us = join_us < alive_us ? join_us : alive_us;
    next_us = leave_us < next_us ? leave_us : next_us;
    return refusal_us < next_us ? refusal_us : next_us;
}
