/* The input is a script for a client's and a server's endpoint: packets between them are delivered, lost,
 * repeated, swapped, changed and forged, by one who has the key, so that the tag keeps nothing out; calls are
 * made, answered, cancelled; time passes; either side restarts. Whatever the script: a call id is executed at
 * most once, a call ends once, nobody who has shown no cookie gets more bytes than came from him, no memory
 * is left behind. */
#include <string.h>

#include "fuzz_assert.h"
#include "session_pair.h"

#define STEPS_MAX 2000u

struct script {
    const uint8_t *at, *end;
};

static uint32_t byte_of(struct script *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

static uint32_t word_of(struct script *s)
{
    uint32_t low = byte_of(s);
    return low | byte_of(s) << 8;
}

/* Small numbers mostly, and now and then large ones. */
static uint32_t size_of(struct script *s)
{
    uint32_t word = word_of(s);
    return (word & 0x8000) != 0 ? word & 0x7fff : word & 0x3ff;
}

/* Which of the packets on their way; false: there are none. */
static bool session_choose(const struct sp *sp, struct script *s, uint32_t *index)
{
    uint32_t byte = byte_of(s);
    if (sp->flight_count == 0)
        return false;
    *index = byte % sp->flight_count;
    return true;
}

/* ---- packets ---- */

static void deliver_all(struct sp *sp, uint32_t most)
{
    while (sp->flight_count > 0 && most-- > 0) {
        struct sp_packet packet = *sp->flight[0];
        sp_remove(sp, 0);
        sp_deliver(sp, &packet);
    }
}

/* Change some bytes of a copy, and deliver that; the original stays on its way. */
static void deliver_changed(struct sp *sp, struct script *s, bool from_stranger)
{
    uint32_t index;
    if (!session_choose(sp, s, &index))
        return;
    struct sp_packet packet = *sp->flight[index];
    uint32_t changes = byte_of(s);
    for (uint32_t i = 0; i < changes % 4; i++) {
        uint32_t at = byte_of(s);
        /* Mostly in the headers, which is where something happens. */
        at = at < 128 ? at : (at - 128) * 64;
        packet.data[at % packet.bytes] = (uint8_t)byte_of(s);
    }
    if ((changes & 0x40) != 0)
        packet.bytes = MR_HEADER_BYTES + size_of(s) % (packet.bytes - MR_HEADER_BYTES + 1);
    if ((changes & 0x40) != 0) {
        uint16_t payload_bytes = (uint16_t)(packet.bytes - MR_HEADER_BYTES);
        memcpy(packet.data + offsetof(struct mr_packet_header, payload_bytes), &payload_bytes, 2);
    }
    if (from_stranger)
        packet.from = SP_STRANGER;
    if ((changes & 0x80) == 0) {
        if (packet.bytes >= MR_HEADER_BYTES && (changes & 0x20) == 0)
            sp_renumber(sp, &packet);
        sp_authenticate(sp, &packet);
    }
    sp_deliver(sp, &packet);
}

/* A packet of our own, in the session and from the side of one that is on its way. */
static void deliver_forged(struct sp *sp, struct script *s)
{
    uint32_t index;
    if (!session_choose(sp, s, &index))
        return;
    const struct sp_packet *like = sp->flight[index];
    struct sp_packet packet = {.from = like->from, .to = like->to};
    struct mr_packet_header header;
    memcpy(&header, like->data, sizeof(header));
    header.type = (uint8_t)(byte_of(s) % MR_PACKET_TYPE_END);
    header.flags = (uint16_t)(byte_of(s) & 7);
    header.call_id = byte_of(s);
    header.message_bytes = size_of(s);
    header.segment_bytes = (byte_of(s) & 1) != 0 ? MR_SEGMENT_BYTES_MIN : (uint16_t)size_of(s);
    header.segment_number = (uint16_t)byte_of(s);
    uint32_t wanted = byte_of(s), left = (uint32_t)(s->end - s->at);
    if (header.type == MR_PACKET_ACK || header.type == MR_PACKET_RESEND)
        wanted = sizeof(struct mr_ack);
    else if (header.type == MR_PACKET_DATA && (wanted & 0x80) != 0)
        wanted = header.message_bytes < MR_SEGMENT_BYTES_MIN ? header.message_bytes : MR_SEGMENT_BYTES_MIN;
    header.payload_bytes = (uint16_t)wanted;
    packet.bytes = MR_HEADER_BYTES + wanted;
    memcpy(packet.data, &header, sizeof(header));
    uint32_t given = wanted < left ? wanted : left;
    given = given < 48 ? given : 48;
    memcpy(packet.data + MR_HEADER_BYTES, s->at, given);
    s->at += given;
    sp_renumber(sp, &packet);
    sp_authenticate(sp, &packet);
    sp_deliver(sp, &packet);
}

static void swap(struct sp *sp, struct script *s)
{
    uint32_t a, b;
    if (!session_choose(sp, s, &a) || !session_choose(sp, s, &b))
        return;
    struct sp_packet *packet = sp->flight[a];
    sp->flight[a] = sp->flight[b];
    sp->flight[b] = packet;
}

static void packet_step(struct sp *sp, struct script *s, uint32_t what)
{
    uint32_t index;
    switch (what) {
    case 0:
        deliver_all(sp, 1 + byte_of(s) % 16);
        break;
    case 1:
        if (session_choose(sp, s, &index))
            sp_remove(sp, index);
        break;
    case 2:
        if (session_choose(sp, s, &index)) {
            struct sp_packet copy = *sp->flight[index];
            sp_deliver(sp, &copy);
        }
        break;
    case 3:
        swap(sp, s);
        break;
    case 4:
        deliver_changed(sp, s, false);
        break;
    case 5:
        deliver_changed(sp, s, true);
        break;
    default:
        deliver_forged(sp, s);
        break;
    }
}

/* ---- all else ---- */

static void make_call(struct sp *sp, struct script *s)
{
    static const uint8_t ops[] = {MR_OP_PUSH_GRAD, MR_OP_ECHO, MR_OP_LOOKUP, MR_OP_SAVE};
    uint32_t how = byte_of(s);
    uint32_t bytes = size_of(s);
    uint64_t deadline_us = (how & 0x40) != 0 ? sp->now_us + word_of(s) * UINT64_C(64) : UINT64_MAX;
    sp_call(sp, ops[how & 3], how >> 2 & 7, bytes, (how & 0x20) != 0 ? how >> 4 : 0, deadline_us,
            (how & 0x80) == 0);
}

/* A call begun is sent, one sent cancelled, one ended freed. */
static void move_call(struct sp *sp, struct script *s)
{
    struct sp_call *c = &sp->calls[byte_of(s) % SP_CALLS_MAX];
    if (c->call == NULL)
        return;
    if (!c->sent && byte_of(s) % 4 != 0) {
        c->sent = true;
        mr_call_send(sp->ep[SP_CLIENT], c->call, sp->now_us);
    } else if (c->sent && !c->ended) {
        mr_call_cancel(sp->ep[SP_CLIENT], c->call);
    } else {
        sp_call_free(sp, c);
    }
}

static void restart(struct sp *sp, uint32_t which)
{
    switch (which % 4) {
    case 0:
        sp_restart_server(sp);
        break;
    case 1:
        sp_restart_client(sp);
        break;
    case 2:
        sp_reopen(sp);
        break;
    default:
        mr_client_session_release(sp->ep[SP_CLIENT], sp->session, sp->now_us);
        break;
    }
}

static void session_step(struct sp *sp, struct script *s)
{
    uint32_t what = byte_of(s) % 16;
    switch (what) {
    case 7:
    case 8:
        make_call(sp, s);
        break;
    case 9:
        sp->now_us += UINT64_C(1) << byte_of(s) % 27;
        sp_poll(sp);
        break;
    case 10:
        move_call(sp, s);
        break;
    case 11:
        sp->answer = (enum sp_answer)(byte_of(s) % SP_ANSWERS);
        sp->reply_bytes = size_of(s);
        break;
    case 12: {
        uint32_t which = byte_of(s);
        sp_answer_later(sp, &sp->later[which % SP_LATER_MAX], which / SP_LATER_MAX);
        break;
    }
    case 13:
        restart(sp, byte_of(s));
        break;
    case 14:
        sp->no_room = byte_of(s) % 8 == 1;
        break;
    case 15:
        for (uint32_t turn = byte_of(s) % 8 + 1; turn > 0; turn--) {
            sp->now_us += 20;
            sp_poll(sp);
            deliver_all(sp, SP_FLIGHT_MAX);
        }
        break;
    default:
        packet_step(sp, s, what);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct sp sp;
    struct script script = {data, data + bytes};
    uint32_t window = byte_of(&script) % MR_WINDOW_MAX + 1;
    uint32_t memory_kib = 64u << byte_of(&script) % 6;
    uint32_t udp_bytes = MR_UDP_BYTES_MIN + size_of(&script) % (MR_UDP_BYTES_MAX - MR_UDP_BYTES_MIN + 1);
    sp_start(&sp, window, memory_kib, udp_bytes & ~7u);
    for (uint32_t steps = 0; script.at < script.end && steps < STEPS_MAX; steps++)
        session_step(&sp, &script);
    sp_stop(&sp);
    return 0;
}
