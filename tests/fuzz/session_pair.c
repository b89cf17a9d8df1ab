#include "session_pair.h"

#include <string.h>
#include "dataplane/wire/endpoint_internal.h"
#include "fuzz_assert.h"
#include "tests/sim/session_count.h"

#define MEMORY_BYTES_MAX (2u << 20)
#define SESSION_IDLE_US  60000000u

static const uint8_t psk[MR_PSK_BYTES] = {7};

/* ---- packets ---- */

static bool same_address(const struct mr_address *a, const struct mr_address *b)
{
    return a->port == b->port && memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

static uint8_t *tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    struct sp *sp = self;
    FUZZ_ASSERT(!sp->is_open && bytes_max <= MR_UDP_BYTES_MAX);
    if (sp->no_room)
        return NULL;
    sp->is_open = true;
    sp->open_to = *to;
    return sp->open;
}

static void sent(struct sp *sp, enum sp_side from, uint32_t bytes)
{
    FUZZ_ASSERT(sp->is_open);
    sp->is_open = false;
    if (bytes == 0)
        return;
    FUZZ_ASSERT(bytes >= MR_HEADER_BYTES && bytes <= sp->config[from].udp_bytes_max);
    sp->sent_packets[from]++;
    sp->sent_bytes[from] += bytes;
    if (same_address(&sp->open_to, &sp->address[SP_STRANGER])) {
        /* It never gets a cookie, so it is never proven to be there. */
        sp->to_stranger_bytes += bytes;
        FUZZ_ASSERT(sp->to_stranger_bytes <= sp->from_stranger_bytes);
        return;
    }
    enum sp_side to = from == SP_CLIENT ? SP_SERVER : SP_CLIENT;
    FUZZ_ASSERT(same_address(&sp->open_to, &sp->address[to]));
    if (sp->flight_count == SP_FLIGHT_MAX)
        sp_remove(sp, 0);
    struct sp_packet *packet = sp->flight[sp->flight_count++];
    packet->from = from;
    packet->to = to;
    packet->bytes = bytes;
    memcpy(packet->data, sp->open, bytes);
}

static void client_sent(void *self, uint32_t bytes)
{
    sent(self, SP_CLIENT, bytes);
}

static void server_sent(void *self, uint32_t bytes)
{
    sent(self, SP_SERVER, bytes);
}

static void fill_random(void *self, void *out, size_t n)
{
    struct sp *sp = self;
    for (size_t i = 0; i < n; i++) {
        sp->random_state = sp->random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        ((uint8_t *)out)[i] = (uint8_t)(sp->random_state >> 56);
    }
}

void sp_remove(struct sp *sp, uint32_t index)
{
    struct sp_packet *packet = sp->flight[index];
    sp->flight_count--;
    for (uint32_t i = index; i < sp->flight_count; i++)
        sp->flight[i] = sp->flight[i + 1];
    sp->flight[sp->flight_count] = packet;
}

void sp_deliver(struct sp *sp, const struct sp_packet *packet)
{
    if (packet->from == SP_STRANGER)
        sp->from_stranger_bytes += packet->bytes;
    sp->delivered[packet->to]++;
    mr_endpoint_receive(sp->ep[packet->to], sp->now_us, &sp->address[packet->from], packet->data,
                        packet->bytes);
}

void sp_poll(struct sp *sp)
{
    for (uint32_t side = SP_CLIENT; side <= SP_SERVER; side++) {
        mr_endpoint_flush(sp->ep[side], sp->now_us);
        (void)mr_endpoint_poll(sp->ep[side], sp->now_us, 16);
    }
}

void sp_renumber(const struct sp *sp, struct sp_packet *packet)
{
    struct mr_packet_header header;
    struct mr_peer *peer = NULL;
    memcpy(&header, packet->data, sizeof(header));
    uint32_t index = (uint32_t)(header.session_id >> MR_CORE_BITS) & (MR_SESSIONS_LIMIT - 1);
    if (packet->to == SP_CLIENT && index < sp->config[SP_SERVER].sessions_max)
        peer = &sp->ep[SP_SERVER]->server_sessions[index].peer;
    else if (packet->to == SP_SERVER && sp->session != NULL)
        peer = &sp->session->peer;
    if (peer == NULL || peer->session_id != header.session_id)
        return;
    header.number = ++peer->sent_number;
    memcpy(packet->data, &header, sizeof(header));
}

void sp_authenticate(const struct sp *sp, struct sp_packet *packet)
{
    struct mr_auth auth;
    struct mr_packet_header header;
    if (packet->bytes < MR_HEADER_BYTES)
        return;
    memcpy(&header, packet->data, sizeof(header));
    mr_auth_init(&auth, psk);
    struct mr_hello hello;
    if (header.type == MR_PACKET_HELLO && packet->bytes == MR_HEADER_BYTES + sizeof(hello)) {
        memcpy(&hello, packet->data + MR_HEADER_BYTES, sizeof(hello));
        mr_hello_prove(&auth, &hello);
        memcpy(packet->data + MR_HEADER_BYTES, &hello, sizeof(hello));
    }
    struct mr_tag_key key = auth.hello_key;
    if (header.session_id != 0)
        mr_session_key(&auth, header.session_id, header.incarnation, &key);
    mr_tag_write(&key, packet->data, packet->bytes);
    (void)sp;
}

/* ---- server ---- */

static void note_executed(struct sp *sp, struct mr_call_ref ref)
{
    for (uint32_t i = 0; i < sp->executed_count; i++)
        FUZZ_ASSERT(sp->executed[i].session_id != ref.session_id || sp->executed[i].call_id != ref.call_id);
    if (sp->executed_count < SP_RECORD_MAX)
        sp->executed[sp->executed_count++] = ref;
}

/* Read all of it, so that a tool sees what does not belong there. */
static uint32_t checksum(const struct mr_message *message)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < message->preamble.tensor_count; i++)
        for (uint64_t b = 0; b < message->tensors[i].bytes; b++)
            sum = sum * 31 + ((const uint8_t *)message->tensors[i].data)[b];
    return sum;
}

static volatile uint32_t sink;

static void put_off(struct sp *sp, struct mr_endpoint *ep, const struct mr_request *request)
{
    for (uint32_t i = 0; i < SP_LATER_MAX; i++) {
        if (sp->later[i].used)
            continue;
        const struct mr_request *kept = mr_reply_later(ep, request);
        if (kept == NULL)
            break;
        sp->later[i] =
            (struct sp_later){.used = true, .life = sp->life, .ref = request->ref, .request = kept};
        return;
    }
    mr_reply_busy(ep, request->ref);
}

static void answer_tensors(struct sp *sp, struct mr_endpoint *ep, struct mr_call_ref ref)
{
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sp->reply_bytes, NULL);
    if (!mr_reply_begin(ep, ref, MR_OK, &tensor, 1)) {
        mr_reply_busy(ep, ref);
        return;
    }
    note_executed(sp, ref);
    memset(tensor.data, 0x5a, tensor.bytes);
    mr_reply_set_sequence(ep, ref, sp->executed_count);
    mr_reply_end(ep, ref);
}

static void on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct sp *sp = app;
    sp->handled++;
    sink = checksum(request->message);
    switch (sp->answer) {
    case SP_BUSY:
        mr_reply_busy(ep, request->ref);
        return;
    case SP_LATER:
        put_off(sp, ep, request);
        return;
    case SP_TENSORS:
        answer_tensors(sp, ep, request->ref);
        return;
    case SP_TOO_LARGE: {
        struct mr_tensor tensor = mr_tensor_1d(MR_U8, sp->config[SP_SERVER].message_bytes_max, NULL);
        note_executed(sp, request->ref);
        FUZZ_ASSERT(!mr_reply_begin(ep, request->ref, MR_OK, &tensor, 1));
        mr_reply_busy(ep, request->ref);
        return;
    }
    case SP_ERROR:
        note_executed(sp, request->ref);
        mr_reply_error(ep, request->ref, MR_FROZEN, "request %u", sp->handled);
        return;
    default:
        note_executed(sp, request->ref);
        mr_reply_status(ep, request->ref, MR_OK);
        return;
    }
}

static void later_begin(struct sp *sp, struct sp_later *l)
{
    struct mr_endpoint *ep = sp->ep[SP_SERVER];
    l->tensor = mr_tensor_1d(MR_U8, sp->reply_bytes, NULL);
    if (!mr_reply_begin(ep, l->ref, MR_OK, &l->tensor, 1)) {
        mr_reply_busy(ep, l->ref);
        l->used = false;
        return;
    }
    note_executed(sp, l->ref);
    memset(l->tensor.data, 0xa5, l->tensor.bytes);
    l->begun = true;
}

void sp_answer_later(struct sp *sp, struct sp_later *l, uint32_t part)
{
    struct mr_endpoint *ep = sp->ep[SP_SERVER];
    if (!l->used || l->life != sp->life)
        return;
    sink = checksum(l->request->message);
    bool alive = mr_call_ref_alive(ep, l->ref);
    if (!alive || part % 4 == 3) {
        if (l->begun) {
            mr_reply_end(ep, l->ref);
        } else {
            if (alive)
                note_executed(sp, l->ref);
            mr_reply_status(ep, l->ref, MR_OK);
        }
        l->used = false;
    } else if (!l->begun) {
        later_begin(sp, l);
    } else {
        mr_reply_advance(ep, l->ref, (uint8_t *)l->tensor.data + l->tensor.bytes * (part % 4) / 3);
    }
}

/* ---- client ---- */

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    struct sp *sp = app;
    struct sp_call *c = user;
    FUZZ_ASSERT(c >= sp->calls && c < sp->calls + SP_CALLS_MAX);
    FUZZ_ASSERT(c->call == call && c->sent && !c->ended);
    c->ended = true;
    if (reply != NULL)
        sink = checksum(reply);
    if (status == MR_FROZEN || status == MR_CANCELLED) /* some are kept */
        sp_call_free(sp, c);
}

void sp_call(struct sp *sp, uint8_t op, uint8_t priority, uint32_t bytes, uint64_t sequence,
             uint64_t deadline_us, bool send)
{
    struct sp_call *c = sp->calls;
    while (c < sp->calls + SP_CALLS_MAX && c->call != NULL)
        c++;
    if (c == sp->calls + SP_CALLS_MAX)
        return;
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, bytes, NULL);
    struct mr_call_options options = {.op = op,
                                      .priority = priority,
                                      .sequence = sequence,
                                      .ahead = sequence % 2 == 1,
                                      .deadline_us = deadline_us,
                                      .user = c};
    *c = (struct sp_call){0};
    if (mr_call_begin(sp->ep[SP_CLIENT], sp->session, &options, &tensor, 1, &c->call) != MR_OK) {
        c->call = NULL;
        return;
    }
    memset(tensor.data, 0x33, tensor.bytes);
    c->sent = send;
    if (send)
        mr_call_send(sp->ep[SP_CLIENT], c->call, sp->now_us);
}

void sp_call_free(struct sp *sp, struct sp_call *c)
{
    struct mr_call *call = c->call;
    if (call == NULL || (c->sent && !c->ended))
        return;
    c->call = NULL;
    mr_call_free(sp->ep[SP_CLIENT], call);
}

/* ---- from beginning to end ---- */

static void check_counters(const struct sp *sp, enum sp_side side)
{
    const struct mr_wire_counters *c = mr_endpoint_counters(sp->ep[side]);
    FUZZ_ASSERT(c->tx_packets == sp->sent_packets[side] && c->tx_bytes == sp->sent_bytes[side]);
    FUZZ_ASSERT(c->rx_packets <= sp->delivered[side]);
    FUZZ_ASSERT(side != SP_SERVER || c->calls_served == sp->handled);
    FUZZ_ASSERT(c->calls_made == 0 || side == SP_CLIENT);
}

static void session_pair_start(struct sp *sp, enum sp_side side)
{
    sp->sent_packets[side] = sp->sent_bytes[side] = sp->delivered[side] = 0;
    FUZZ_ASSERT(mr_endpoint_create(&sp->config[side], &sp->ep[side]) == MR_OK);
}

static void open_session(struct sp *sp)
{
    FUZZ_ASSERT(mr_client_session_open(sp->ep[SP_CLIENT], &sp->address[SP_SERVER], 0, NULL, &sp->session) ==
                MR_OK);
}

void sp_start(struct sp *sp, uint32_t window, uint32_t memory_kib, uint32_t udp_bytes)
{
    static _Alignas(64) uint8_t memory[2][MEMORY_BYTES_MAX];
    static struct sp_packet packets[SP_FLIGHT_MAX];
    memset(sp, 0, sizeof(*sp));
    for (uint32_t i = 0; i < SP_FLIGHT_MAX; i++)
        sp->flight[i] = &packets[i];
    sp->now_us = UINT64_C(0xfff00000); /* soon after which the clock that travels wraps */
    sp->reply_bytes = 100;
    for (uint32_t side = 0; side < SP_SIDES; side++)
        sp->address[side] = (struct mr_address){.ip = {[15] = (uint8_t)(side + 1)}, .port = 7700};
    for (uint32_t side = SP_CLIENT; side <= SP_SERVER; side++) {
        struct mr_endpoint_config *c = &sp->config[side];
        mr_endpoint_config_default(c);
        c->io =
            (struct mr_endpoint_io){sp, tx_begin, side == SP_CLIENT ? client_sent : server_sent, fill_random};
        c->app = sp;
        c->psk_count = 1;
        memcpy(c->psk[0], psk, sizeof(psk));
        c->sessions_max = side == SP_CLIENT ? 1 : 6;
        c->calls_max = SP_CALLS_MAX;
        c->window = window;
        c->udp_bytes_max = udp_bytes;
        c->receive_window_bytes = 8192;
        c->message_bytes_max = 128u << 10;
        c->memory = memory[side];
        c->memory_bytes = (size_t)memory_kib << 10;
        c->session_idle_us = SESSION_IDLE_US;
    }
    sp->config[SP_SERVER].on_request = on_request;
    sp->config[SP_CLIENT].on_reply = on_reply;
    session_pair_start(sp, SP_CLIENT);
    session_pair_start(sp, SP_SERVER);
    open_session(sp);
}

static void close_session(struct sp *sp)
{
    mr_client_session_close(sp->ep[SP_CLIENT], sp->session, sp->now_us);
    for (uint32_t i = 0; i < SP_CALLS_MAX; i++) {
        FUZZ_ASSERT(sp->calls[i].call == NULL || !sp->calls[i].sent || sp->calls[i].ended);
        sp_call_free(sp, &sp->calls[i]);
    }
    FUZZ_ASSERT(session_count(sp->ep[SP_CLIENT]) == 0);
    FUZZ_ASSERT(mr_endpoint_memory_used(sp->ep[SP_CLIENT]) == 0);
}

void sp_reopen(struct sp *sp)
{
    close_session(sp);
    open_session(sp);
}

void sp_restart_client(struct sp *sp)
{
    check_counters(sp, SP_CLIENT);
    mr_endpoint_destroy(sp->ep[SP_CLIENT]);
    memset(sp->calls, 0, sizeof(sp->calls));
    session_pair_start(sp, SP_CLIENT);
    open_session(sp);
}

void sp_restart_server(struct sp *sp)
{
    check_counters(sp, SP_SERVER);
    mr_endpoint_destroy(sp->ep[SP_SERVER]);
    memset(sp->later, 0, sizeof(sp->later));
    sp->life++;
    sp->config[SP_SERVER].incarnation++;
    sp->executed_count = sp->handled = 0;
    session_pair_start(sp, SP_SERVER);
}

void sp_stop(struct sp *sp)
{
    close_session(sp);
    for (uint32_t i = 0; i < SP_LATER_MAX; i++)
        sp_answer_later(sp, &sp->later[i], 3);
    for (uint32_t i = 0; i < 4; i++) {
        sp->now_us += SESSION_IDLE_US / 2;
        (void)mr_endpoint_poll(sp->ep[SP_SERVER], sp->now_us, 16);
    }
    FUZZ_ASSERT(session_count(sp->ep[SP_SERVER]) == 0);
    FUZZ_ASSERT(mr_endpoint_memory_used(sp->ep[SP_SERVER]) == 0);
    check_counters(sp, SP_CLIENT);
    check_counters(sp, SP_SERVER);
    mr_endpoint_destroy(sp->ep[SP_CLIENT]);
    mr_endpoint_destroy(sp->ep[SP_SERVER]);
}
