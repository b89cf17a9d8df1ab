#include "pair_fixture.h"

#include "dataplane/wire/endpoint_internal.h"
#include "tests/test.h"

struct pair p;

struct mr_endpoint *client(void)
{
    return p.ends[PAIR_CLIENT].ep;
}

struct mr_endpoint *server(void)
{
    return p.ends[PAIR_SERVER].ep;
}

const struct mr_wire_counters *served(void)
{
    return mr_endpoint_counters(server());
}

bool up(void)
{
    struct mr_client_session_info info;
    mr_client_session_info(p.session, &info);
    return info.up;
}

uint64_t next_number(enum pair_side from)
{
    if (from == PAIR_CLIENT)
        return ++p.session->peer.sent_number;
    uint32_t index = (uint32_t)(p.session->peer.session_id >> MR_CORE_BITS) & (MR_SESSIONS_LIMIT - 1);
    return ++server()->server_sessions[index].peer.sent_number;
}

int pair_configured(void **state)
{
    pair_init(&p);
    return 0;
}

int pair_started(void **state)
{
    pair_init(&p);
    pair_start(&p);
    return 0;
}

int pair_opened(void **state)
{
    pair_init(&p);
    pair_start(&p);
    pair_open(&p);
    return 0;
}

uint64_t pair_clock_ns;

static uint64_t read_clock(void)
{
    pair_clock_ns += 1000;
    return pair_clock_ns;
}

int pair_timed(void **state)
{
    pair_init(&p);
    p.config[PAIR_SERVER].clock_ns = read_clock;
    pair_start(&p);
    pair_open(&p);
    return 0;
}

void pair_call_once(struct pair_call *call, uint8_t op)
{
    pair_call(&p, call, op, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(call->ended, 1);
}

int pair_ended(void **state)
{
    pair_stop(&p);
    return 0;
}

enum pair_verdict drop_all(struct pair *pair, enum pair_side from, uint32_t n, struct pair_packet *packet)
{
    return PAIR_DROP;
}

enum pair_verdict drop_replies(struct pair *pair, enum pair_side from, uint32_t n, struct pair_packet *packet)
{
    return from == PAIR_SERVER && packet->data[3] == MR_PACKET_DATA ? PAIR_DROP : PAIR_PASS;
}
