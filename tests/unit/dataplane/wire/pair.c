#include "pair.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint8_t *tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    struct pair_end *end = self;
    assert(end->open == NULL && bytes_max <= MR_UDP_BYTES_MAX);
    if (end->no_room)
        return NULL;
    end->open = malloc(sizeof(*end->open));
    assert(end->open != NULL);
    return end->open->data;
}

static void enqueue(struct pair_end *to, struct pair_packet *packet)
{
    uint32_t at = to->tail++;
    assert(to->tail - to->head < PAIR_QUEUE_MAX);
    while (at > to->head && to->queue[(at - 1) % PAIR_QUEUE_MAX]->arrives_us > packet->arrives_us) {
        to->queue[at % PAIR_QUEUE_MAX] = to->queue[(at - 1) % PAIR_QUEUE_MAX];
        at--;
    }
    to->queue[at % PAIR_QUEUE_MAX] = packet;
}

static void tx_end(void *self, uint32_t bytes)
{
    struct pair_end *end = self;
    struct pair *p = end->pair;
    struct pair_packet *packet = end->open;
    assert(packet != NULL);
    end->open = NULL;
    enum pair_side from = end == &p->ends[PAIR_CLIENT] ? PAIR_CLIENT : PAIR_SERVER;
    struct pair_end *to = &p->ends[from == PAIR_CLIENT ? PAIR_SERVER : PAIR_CLIENT];
    packet->bytes = bytes;
    packet->arrives_us = p->now_us + PAIR_DELAY_US;
    enum pair_verdict verdict = PAIR_PASS;
    if (bytes == 0)
        verdict = PAIR_DROP;
    else if (p->filter != NULL)
        verdict = p->filter(p, from, end->sent, packet);
    if (bytes > 0) {
        end->sent++;
        p->wire_packets++;
    }
    if (verdict == PAIR_DROP) {
        free(packet);
        return;
    }
    if (verdict == PAIR_LATE)
        packet->arrives_us += p->late_us;
    enqueue(to, packet);
    if (verdict == PAIR_TWICE) {
        struct pair_packet *again = malloc(sizeof(*again));
        assert(again != NULL);
        *again = *packet;
        again->arrives_us += 3;
        enqueue(to, again);
    }
}

static void fill_random(void *self, void *out, size_t n)
{
    struct pair_end *end = self;
    uint8_t *bytes = out;
    for (size_t i = 0; i < n; i++) {
        end->random_state = end->random_state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(end->random_state >> 56);
    }
}

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    struct pair *p = app;
    struct pair_call *c = user;
    c->ended++;
    c->status = status;
    c->tensor_count = 0;
    if (reply != NULL) {
        c->tensor_count = reply->preamble.tensor_count;
        c->reply_sequence = reply->preamble.sequence;
        assert(c->tensor_count <= 4);
        memcpy(c->tensors, reply->tensors, c->tensor_count * sizeof(c->tensors[0]));
    }
    if (p->on_ended != NULL)
        p->on_ended(p, c);
    if (!c->keep)
        mr_call_free(p->ends[PAIR_CLIENT].ep, call);
}

static void on_session(void *app, struct mr_client_session *session, enum mr_client_session_event event)
{
    struct pair *p = app;
    p->events[event]++;
    if (p->on_event != NULL)
        p->on_event(p, event);
}

static void on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct pair *p = app;
    (p->handler != NULL ? p->handler : pair_serve)(app, ep, request);
}

void pair_serve(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct pair *p = app;
    struct mr_tensor tensors[4];
    p->executed++;
    switch (request->message->preamble.op) {
    case MR_OP_ECHO: {
        uint32_t count = request->message->preamble.tensor_count;
        assert(count <= 4);
        memcpy(tensors, request->message->tensors, count * sizeof(tensors[0]));
        if (!mr_reply_begin(ep, request->ref, MR_OK, tensors, count)) {
            p->executed--;
            mr_reply_busy(ep, request->ref);
            return;
        }
        mr_reply_end(ep, request->ref);
        return;
    }
    case MR_OP_LOOKUP:
        tensors[0] = mr_tensor_1d(MR_U8, p->reply_bytes, NULL);
        if (!mr_reply_begin(ep, request->ref, MR_OK, tensors, 1)) {
            p->executed--;
            mr_reply_busy(ep, request->ref);
            return;
        }
        for (uint32_t i = 0; i < p->reply_bytes; i++)
            ((uint8_t *)tensors[0].data)[i] = (uint8_t)(i * 7 + (i >> 8));
        mr_reply_end(ep, request->ref);
        return;
    case MR_OP_SAVE:
        p->later_request[p->later_count] = mr_reply_later(ep, request);
        assert(p->later_request[p->later_count] != NULL);
        p->later[p->later_count++] = request->ref;
        return;
    case MR_OP_PUSH_GRAD:
        mr_reply_status(ep, request->ref, MR_OK);
        return;
    case MR_OP_RESTORE:
        if (p->executed == 1)
            mr_reply_busy(ep, request->ref);
        else
            mr_reply_status(ep, request->ref, MR_CHECKPOINT_NOT_FOUND);
        return;
    default:
        mr_reply_error(ep, request->ref, MR_UNKNOWN_OP, "no operation %u here",
                       (unsigned)request->message->preamble.op);
    }
}

static struct mr_address address(uint8_t last, uint16_t port)
{
    struct mr_address a = {.port = port};
    const uint8_t ip[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last};
    memcpy(a.ip, ip, sizeof(ip));
    a.path[0] = last;
    return a;
}

void pair_init(struct pair *p)
{
    assert(p->ends[PAIR_CLIENT].ep == NULL && p->ends[PAIR_SERVER].ep == NULL);
    memset(p, 0, sizeof(*p));
    p->now_us = 1000000;
    p->ends[PAIR_CLIENT].address = address(2, 40000);
    p->ends[PAIR_SERVER].address = address(1, 7700);
    for (int i = 0; i < 2; i++) {
        struct pair_end *end = &p->ends[i];
        struct mr_endpoint_config *c = &p->config[i];
        end->pair = p;
        end->random_state = (uint64_t)i + 1;
        mr_endpoint_config_default(c);
        c->io = (struct mr_endpoint_io){end, tx_begin, tx_end, fill_random};
        c->app = p;
        c->sessions_max = 8;
        c->sessions_per_address = 65536; /* all are at one */
        c->calls_max = 256;
        c->memory_bytes = 32u << 20;
        c->psk_count = 1;
        memset(c->psk[0], 0x5a, MR_PSK_BYTES);
    }
    p->config[PAIR_CLIENT].on_reply = on_reply;
    p->config[PAIR_CLIENT].on_session = on_session;
    memset(p->config[PAIR_CLIENT].client_uuid, 0xc1, MR_UUID_BYTES);
    p->config[PAIR_SERVER].on_request = on_request;
    p->config[PAIR_SERVER].incarnation = 7;
}

static void start_end(struct pair_end *end, const struct mr_endpoint_config *config)
{
    assert(end->ep == NULL);
    enum mr_status status = mr_endpoint_create(config, &end->ep);
    assert(status == MR_OK);
    (void)status;
}

void pair_start(struct pair *p)
{
    start_end(&p->ends[PAIR_CLIENT], &p->config[PAIR_CLIENT]);
    start_end(&p->ends[PAIR_SERVER], &p->config[PAIR_SERVER]);
}

void pair_restart_server(struct pair *p)
{
    mr_endpoint_destroy(p->ends[PAIR_SERVER].ep);
    p->ends[PAIR_SERVER].ep = NULL;
    p->config[PAIR_SERVER].incarnation++;
    p->later_count = 0;
    start_end(&p->ends[PAIR_SERVER], &p->config[PAIR_SERVER]);
}

void pair_restart_client(struct pair *p)
{
    mr_endpoint_destroy(p->ends[PAIR_CLIENT].ep);
    p->ends[PAIR_CLIENT].ep = NULL;
    p->session = NULL;
    start_end(&p->ends[PAIR_CLIENT], &p->config[PAIR_CLIENT]);
}

void pair_stop(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        struct pair_end *end = &p->ends[i];
        mr_endpoint_destroy(end->ep);
        end->ep = NULL;
        while (end->head != end->tail)
            free(end->queue[end->head++ % PAIR_QUEUE_MAX]);
    }
}

void pair_inject(struct pair *p, enum pair_side to, const uint8_t *data, uint32_t bytes)
{
    const struct mr_address *from = &p->ends[to == PAIR_CLIENT ? PAIR_SERVER : PAIR_CLIENT].address;
    mr_endpoint_receive(p->ends[to].ep, p->now_us, from, data, bytes);
    mr_endpoint_flush(p->ends[to].ep, p->now_us);
}

static void deliver(struct pair *p, enum pair_side to)
{
    struct pair_end *end = &p->ends[to];
    const struct mr_address *from = &p->ends[to == PAIR_CLIENT ? PAIR_SERVER : PAIR_CLIENT].address;
    while (end->head != end->tail && end->queue[end->head % PAIR_QUEUE_MAX]->arrives_us <= p->now_us) {
        struct pair_packet *packet = end->queue[end->head++ % PAIR_QUEUE_MAX];
        mr_endpoint_receive(end->ep, p->now_us, from, packet->data, packet->bytes);
        free(packet);
    }
}

void pair_run(struct pair *p, uint64_t us)
{
    uint64_t end_us = p->now_us + us;
    for (;;) {
        uint64_t next_us = UINT64_MAX;
        for (int i = 0; i < 2; i++) {
            struct pair_end *end = &p->ends[i];
            if (end->stands_still)
                continue;
            deliver(p, (enum pair_side)i);
            mr_endpoint_flush(end->ep, p->now_us);
            uint64_t at_us = mr_endpoint_poll(end->ep, p->now_us, 32);
            next_us = at_us < next_us ? at_us : next_us;
        }
        for (int i = 0; i < 2; i++) {
            struct pair_end *end = &p->ends[i];
            if (!end->stands_still && end->head != end->tail &&
                end->queue[end->head % PAIR_QUEUE_MAX]->arrives_us < next_us)
                next_us = end->queue[end->head % PAIR_QUEUE_MAX]->arrives_us;
        }
        if (next_us <= p->now_us)
            next_us = p->now_us + 1;
        if (next_us > end_us) {
            p->now_us = end_us;
            return;
        }
        p->now_us = next_us;
    }
}

void pair_open(struct pair *p)
{
    enum mr_status status = mr_client_session_open(p->ends[PAIR_CLIENT].ep, &p->ends[PAIR_SERVER].address,
                                                   p->config[PAIR_SERVER].core, p, &p->session);
    assert(status == MR_OK);
    (void)status;
    pair_run(p, 1000);
}

void pair_call(struct pair *p, struct pair_call *out, uint8_t op, struct mr_tensor *tensors, uint32_t count,
               uint64_t deadline_us)
{
    struct mr_call_options options = {.op = op,
                                      .ahead = out->ahead,
                                      .epoch = out->epoch,
                                      .sequence = out->sequence,
                                      .deadline_us = deadline_us,
                                      .user = out};
    enum mr_status status =
        mr_call_begin(p->ends[PAIR_CLIENT].ep, p->session, &options, tensors, count, &out->call);
    assert(status == MR_OK);
    (void)status;
    mr_call_send(p->ends[PAIR_CLIENT].ep, out->call, p->now_us);
}
