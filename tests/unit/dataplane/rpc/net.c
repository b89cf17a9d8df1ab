#include "net.h"
#include "dataplane/wire/format/capability.h"

#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref_internal.h"
#include "dataplane/rpc/world/world.h"
#include "tests/test.h"
#include "tests/wait.h"

#define SKIP_STEP_US    20000u
#define SKIP_ROUNDS_MAX 100u
#define NAP_NS          200000
#define BASE_PORT       1000u
#define SECOND          16u /* more, and it is the port of the second address */

static uint64_t real_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* ---- the network ---- */

static bool is_second(const struct mr_address *a)
{
    return a->port >= BASE_PORT + SECOND;
}

static uint32_t index_of(const struct mr_address *a)
{
    return (a->port - BASE_PORT) % SECOND;
}

static uint8_t *tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    struct net_worker *w = self;
    w->open = malloc(sizeof(*w->open));
    assert_non_null(w->open);
    w->open->to = *to;
    w->open->from = is_second(to) ? w->other : w->address;
    return w->open->data;
}

static bool happens(struct net *net, uint32_t per_1000)
{
    net->random_state = net->random_state * 6364136223846793005u + 1442695040888963407u;
    return (net->random_state >> 33) % 1000 < per_1000;
}

static void append(struct net *net, struct net_packet *packet)
{
    packet->next = NULL;
    if (net->last == NULL)
        net->first = packet;
    else
        net->last->next = packet;
    net->last = packet;
    net->packets++;
    if (net->packets == net->silence_at)
        net->workers[net->silence_of].silent = true;
}

static void tx_end(void *self, uint32_t bytes)
{
    struct net_worker *w = self;
    struct net *net = w->net;
    struct net_packet *packet = w->open;
    w->open = NULL;
    bool muted = (w->muted >> index_of(&packet->to) & 1) != 0;
    if (bytes == 0 || w->silent || muted || happens(net, net->lose_per_1000)) {
        free(packet);
        return;
    }
    packet->bytes = bytes;
    if (happens(net, net->repeat_per_1000)) {
        struct net_packet *again = malloc(sizeof(*again));
        assert_non_null(again);
        *again = *packet;
        append(net, again);
    }
    append(net, packet);
}

static void fill_random(void *self, void *out, size_t n)
{
    struct net_worker *w = self;
    uint8_t *bytes = out;
    for (size_t i = 0; i < n; i++) {
        w->random_state = w->random_state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(w->random_state >> 56);
    }
}

static void on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct net_worker *w = app;
    if (w->rpc == NULL || !mr_agent_on_request(w->rpc, request))
        mr_reply_status(ep, request->ref, MR_UNKNOWN_OP);
}

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    mr_agent_on_reply(((struct net_worker *)app)->rpc, call, user, status, reply);
}

static void on_session(void *app, struct mr_client_session *session, enum mr_client_session_event event)
{
    mr_agent_on_session(((struct net_worker *)app)->rpc, session, event);
}

/* ---- the driver ---- */

static uint64_t now_us(void *self)
{
    const struct net_worker *w = self;
    return real_us() + __atomic_load_n(&w->net->skipped_us, __ATOMIC_SEQ_CST);
}

static bool enter(void *self)
{
    return pthread_mutex_trylock(&((struct net_worker *)self)->net->lock) == 0;
}

static void leave(void *self, bool more)
{
    pthread_mutex_unlock(&((struct net_worker *)self)->net->lock);
}

static void net_wake(void *self)
{
    struct net *net = ((struct net_worker *)self)->net;
    atomic_fetch_add(&net->events, 1);
    (void)syscall(SYS_futex, &net->events, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool wait_for(void *self, _Atomic uint32_t *done, uint64_t deadline_us)
{
    while ((atomic_load(done) & MR_DONE) == 0) {
        struct timespec left = {.tv_nsec = 5000000};
        uint32_t seen;
        if (now_us(self) >= deadline_us)
            return false;
        seen = atomic_fetch_or(done, MR_DONE_SLEEPER) | MR_DONE_SLEEPER;
        if ((seen & MR_DONE) == 0)
            (void)syscall(SYS_futex, done, FUTEX_WAIT_PRIVATE, seen, &left, NULL, 0);
    }
    return true;
}

static bool can_reach(void *self, const struct mr_address *to, char *why, size_t why_bytes)
{
    const struct net_worker *w = self;
    if (is_second(to) || (w->net->apart >> index_of(to) & 1) == 0)
        return true;
    snprintf(why, why_bytes, "port %u: they are apart", to->port);
    return false;
}

static void deliver(struct net *net)
{
    for (uint32_t n = 0; n < 256 && net->first != NULL; n++) {
        struct net_packet *packet = net->first;
        net->first = packet->next;
        if (net->first == NULL)
            net->last = NULL;
        for (uint32_t i = 0; i < net->count; i++) {
            struct net_worker *w = &net->workers[i];
            if ((w->address.port == packet->to.port || w->other.port == packet->to.port) && w->ep != NULL &&
                !w->silent)
                mr_endpoint_receive(w->ep, now_us(w), &packet->from, packet->data, packet->bytes);
        }
        free(packet);
    }
}

static bool turn_all(struct net *net)
{
    bool busy = net->first != NULL;
    deliver(net);
    for (uint32_t i = 0; i < net->count; i++) {
        struct net_worker *w = &net->workers[i];
        if (w->ep == NULL)
            continue;
        if (w->rpc != NULL) {
            (void)mr_agent_poll(w->rpc, now_us(w));
            busy |= mr_agent_has_work(w->rpc);
        }
        (void)mr_endpoint_poll(w->ep, now_us(w), 64);
    }
    return busy || net->first != NULL;
}

static void *net_run(void *arg)
{
    struct net *net = arg;
    bool stopping = false;
    while (!stopping) {
        uint32_t seen = atomic_load(&net->events);
        pthread_mutex_lock(&net->lock);
        bool busy = turn_all(net);
        stopping = net->stopping;
        pthread_mutex_unlock(&net->lock);
        struct timespec nap = {.tv_nsec = NAP_NS};
        if (!busy)
            (void)syscall(SYS_futex, &net->events, FUTEX_WAIT_PRIVATE, seen, &nap, NULL, 0);
    }
    return NULL;
}

/* ---- what tests call ---- */

void net_start(struct net *net, uint32_t world_size)
{
    *net = (struct net){
        .world_size = world_size, .executor_threads = 1, .dead_after_ms = 10000, .timeout_ms = 60000};
    pthread_mutex_init(&net->lock, NULL);
    assert_int_equal(pthread_create(&net->thread, NULL, net_run, net), 0);
}

static void create_endpoint(struct net_worker *w)
{
    struct mr_endpoint_config config;
    mr_endpoint_config_default(&config);
    config.io =
        (struct mr_endpoint_io){.self = w, .tx_begin = tx_begin, .tx_end = tx_end, .random = fill_random};
    config.app = w;
    config.on_request = on_request;
    config.on_reply = on_reply;
    config.on_session = on_session;
    config.incarnation = w->incarnation;
    config.core_count = 1;
    if (w->net->say_no_version)
        config.version = (struct mr_peer_version){0};
    if (w->net->say_no_rpc)
        config.version.capabilities = MR_CAPABILITIES & ~MR_CAN(RPC);
    config.sessions_max = 64;
    config.sessions_per_address = 64;
    config.udp_bytes_max = MR_UDP_BYTES_MAX;
    config.memory_bytes = NET_MEMORY;
    memset(config.client_uuid, (int)w->incarnation, sizeof(config.client_uuid));
    assert_int_equal(mr_endpoint_create(&config, &w->ep), MR_OK);
}

static size_t long_from_bytes(void)
{
    const char *text = getenv("TEST_LONG_FROM_BYTES");
    return text == NULL ? 0 : strtoul(text, NULL, 10);
}

static void create_agent(struct net *net, struct net_worker *w, const char *name, uint32_t rank,
                         uint32_t world_size, bool is_rendezvous)
{
    struct mr_agent_config config = {.driver = {.self = w,
                                                .now_us = now_us,
                                                .enter = enter,
                                                .leave = leave,
                                                .wake = net_wake,
                                                .wait = wait_for,
                                                .can_reach = can_reach},
                                     .endpoint = w->ep,
                                     .name = name,
                                     .rank = rank,
                                     .world_size = world_size,
                                     .incarnation = w->incarnation,
                                     .is_node = net->are_nodes,
                                     .is_open = net->is_open,
                                     .is_rendezvous = is_rendezvous,
                                     .held = net->are_held,
                                     .rendezvous_count =
                                         net->rendezvous_count == 0 ? 1 : net->rendezvous_count,
                                     .rendezvous_text = "the first worker",
                                     .timeout_ms = net->timeout_ms,
                                     .dead_after_ms = net->dead_after_ms,
                                     .executor_threads = net->executor_threads,
                                     .long_from_bytes = long_from_bytes()};
    for (uint32_t i = 0; i < config.rendezvous_count; i++)
        config.rendezvous[i] = net->workers[net->rendezvous[i]].address;
    if (net->have_two) {
        w->other = (struct mr_address){.ip = {[10] = 0xff, 0xff, 10, 0, 0, 1},
                                       .port = (uint16_t)(w->address.port + SECOND)};
        config.own[0] = w->other;
        config.own[1] = w->address;
    }
    memset(config.uuid, (int)w->incarnation, sizeof(config.uuid));
    char error[256] = "";
    if (mr_agent_create(&config, &w->rpc, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
}

struct mr_rpc *net_add_with(struct net *net, const char *name, uint32_t rank, uint32_t world_size,
                            uint32_t is_rendezvous)
{
    pthread_mutex_lock(&net->lock);
    assert_true(net->count < NET_WORKERS_MAX);
    struct net_worker *w = &net->workers[net->count];
    *w = (struct net_worker){.net = net, .incarnation = net->count + 1, .random_state = net->count + 77};
    w->address.port = (uint16_t)(BASE_PORT + net->count);
    w->address.ip[15] = 1;
    create_endpoint(w);
    create_agent(net, w, name, rank, world_size, is_rendezvous != 0);
    net->count++;
    pthread_mutex_unlock(&net->lock);
    return w->rpc;
}

struct mr_rpc *net_add(struct net *net, const char *name, uint32_t rank)
{
    return net_add_with(net, name, rank, net->world_size, rank == 0);
}

void net_wait_joined(struct net *net, uint32_t worker)
{
    char error[256] = "";
    if (mr_workers_wait_joined(net->workers[worker].rpc, UINT64_MAX, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
}

void net_world(struct net *net, uint32_t world_size)
{
    net_start(net, world_size);
    for (uint32_t i = 0; i < world_size; i++) {
        char name[16];
        snprintf(name, sizeof(name), "w%u", i);
        (void)net_add(net, name, i);
    }
    for (uint32_t i = 0; i < world_size; i++)
        net_wait_joined(net, i);
}

void net_die_late(struct net *net)
{
    pthread_mutex_lock(&net->lock);
    for (uint32_t i = 0; i < net->count; i++)
        net->workers[i].rpc->config.dead_after_ms = net->workers[i].rpc->config.timeout_ms = 600000;
    pthread_mutex_unlock(&net->lock);
}

/* By the caller's own thread: the network's need not be scheduled. */
void net_skip(struct net *net, uint64_t us)
{
    pthread_mutex_lock(&net->lock);
    for (uint64_t done = 0; done < us; done += SKIP_STEP_US) {
        __atomic_fetch_add(&net->skipped_us, SKIP_STEP_US, __ATOMIC_SEQ_CST);
        for (uint32_t i = 0; i < SKIP_ROUNDS_MAX && turn_all(net); i++)
            ;
    }
    pthread_mutex_unlock(&net->lock);
}

void net_loss(struct net *net, uint32_t lose_per_1000, uint32_t repeat_per_1000, uint64_t seed)
{
    pthread_mutex_lock(&net->lock);
    net->lose_per_1000 = lose_per_1000;
    net->repeat_per_1000 = repeat_per_1000;
    net->random_state = seed;
    pthread_mutex_unlock(&net->lock);
}

void net_mute(struct net *net, uint32_t worker, uint32_t other, bool muted)
{
    pthread_mutex_lock(&net->lock);
    struct net_worker *a = &net->workers[worker], *b = &net->workers[other];
    a->muted = muted ? a->muted | 1u << other : a->muted & ~(1u << other);
    b->muted = muted ? b->muted | 1u << worker : b->muted & ~(1u << worker);
    pthread_mutex_unlock(&net->lock);
}

void net_silence(struct net *net, uint32_t worker, bool silent)
{
    pthread_mutex_lock(&net->lock);
    net->workers[worker].silent = silent;
    pthread_mutex_unlock(&net->lock);
}

void net_silence_after(struct net *net, uint32_t worker, uint64_t packets)
{
    pthread_mutex_lock(&net->lock);
    net->silence_at = net->packets + packets;
    net->silence_of = worker;
    pthread_mutex_unlock(&net->lock);
}

/* Closed first, while packets still move: functions that run may wait for calls. */
static void close_worker(struct net *net, struct net_worker *w)
{
    if (w->rpc == NULL)
        return;
    pthread_mutex_lock(&net->lock);
    mr_agent_close(w->rpc);
    pthread_mutex_unlock(&net->lock);
    mr_agent_join(w->rpc);
}

static void gone(void *self)
{
    struct net_worker *w = self;
    mr_endpoint_destroy(w->leaving);
    w->leaving = NULL;
}

static void end_worker(struct net_worker *w)
{
    struct mr_rpc *rpc = w->rpc;
    w->rpc = NULL;
    w->leaving = w->ep;
    w->ep = NULL;
    if (rpc != NULL)
        mr_agent_destroy(rpc, gone);
    else
        gone(w);
}

uint32_t contexts_known(struct mr_contexts *contexts)
{
    struct mr_contexts_use use;
    mr_contexts_use(contexts, &use);
    return use.known;
}

static uint32_t pool_taken(struct mr_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    uint32_t taken = pool->taken;
    pthread_mutex_unlock(&pool->lock);
    return taken;
}

static void destroy_worker(struct net_worker *w)
{
    struct mr_rpc *rpc = w->rpc;
    if (rpc != NULL) {
        (void)mr_agent_poll(rpc, now_us(w)); /* what was submitted */
        assert_int_equal(pool_taken(&rpc->futures), 0);
        assert_int_equal(pool_taken(&rpc->executing), 0);
        assert_false(mr_longs_unfinished(rpc));
        if (rpc->rrefs != NULL)
            assert_int_equal(atomic_load(&rpc->rrefs->alive), 0);
        /* Silenced, it may have values that it believes others to hold; a context whose end has not arrived
         * keeps some. */
        if (!w->silent && (rpc->contexts == NULL || contexts_known(rpc->contexts) == 0))
            assert_int_equal(pool_taken(&rpc->results), 0);
    }
    end_worker(w);
}

void net_end(struct net *net, uint32_t worker)
{
    struct net_worker *w = &net->workers[worker];
    close_worker(net, w);
    pthread_mutex_lock(&net->lock); /* the others' packets go on, and none comes here */
    struct mr_rpc *rpc = w->rpc;
    w->rpc = NULL;
    w->leaving = w->ep;
    w->ep = NULL;
    pthread_mutex_unlock(&net->lock);
    mr_agent_destroy(rpc, gone);
}

bool net_is_gone(const struct net *net, uint32_t worker)
{
    return net->workers[worker].ep == NULL && net->workers[worker].leaving == NULL;
}

void net_replace(struct net *net, uint32_t worker)
{
    struct net_worker *w = &net->workers[worker];
    net_silence(net, worker, true);
    close_worker(net, w);
    pthread_mutex_lock(&net->lock);
    destroy_worker(w);
    w->incarnation += 100;
    w->silent = false;
    create_endpoint(w);
    pthread_mutex_unlock(&net->lock);
}

void net_restart(struct net *net, uint32_t worker, const char *name, uint32_t rank)
{
    net_replace(net, worker);
    pthread_mutex_lock(&net->lock);
    create_agent(net, &net->workers[worker], name, rank, net->world_size, rank == 0);
    pthread_mutex_unlock(&net->lock);
}

static uint32_t results_held(struct net *net)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < net->count; i++) {
        const struct net_worker *w = &net->workers[i];
        if (w->rpc != NULL && !w->silent)
            held += pool_taken(&w->rpc->results);
    }
    return held;
}

void net_stop(struct net *net)
{
    /* The ends of contexts are on their way, and free what they kept. */
    WAIT_UNTIL(results_held(net) == 0);
    for (uint32_t i = 0; i < net->count; i++)
        close_worker(net, &net->workers[i]);
    pthread_mutex_lock(&net->lock);
    net->stopping = true;
    pthread_mutex_unlock(&net->lock);
    pthread_join(net->thread, NULL);
    for (uint32_t i = 0; i < net->count; i++)
        destroy_worker(&net->workers[i]);
    while (net->first != NULL) {
        struct net_packet *packet = net->first;
        net->first = packet->next;
        free(packet);
    }
    pthread_mutex_destroy(&net->lock);
}

void net_function(struct mr_rpc *rpc, const char *name, const char *arguments, const char *results,
                  mr_rpc_run run_function, void *user, uint32_t flags)
{
    struct mr_rpc_function function = {.name = name,
                                       .arguments = arguments,
                                       .results = results,
                                       .run = run_function,
                                       .user = user,
                                       .flags = flags};
    if (mr_rpc_register(rpc, &function) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
}

int net_setup(void **state)
{
    *state = malloc(sizeof(struct net));
    return *state == NULL;
}

int net_teardown(void **state)
{
    net_stop(*state);
    free(*state);
    return 0;
}

/* ---- functions ---- */

enum mr_status net_nothing(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    return MR_OK;
}

enum mr_status net_mirror(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    return mr_rpc_return_values(call, arguments, count);
}

enum mr_status net_fails(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    return mr_rpc_fail(call, "row %d is missing", 17);
}

/* ---- the gate ---- */

void gate_init(struct gate *gate)
{
    *gate = (struct gate){.open = false};
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
}

void gate_pass(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->begun++;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    gate->ended++;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

enum mr_status gate_pass_call(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    gate_pass(mr_rpc_user(call));
    return MR_OK;
}

void gate_wait_begun(struct gate *gate, uint32_t count)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->begun < count)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    while (gate->ended < gate->begun)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

void gate_close(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = false;
    gate->begun = gate->ended = 0;
    pthread_mutex_unlock(&gate->lock);
}
