/* What a capture asks of a core, and what is made of its answers. */
#include <string.h>
#include "dataplane/wire/format/op.h"
#include "millrace_observe.h"
#include "tests/test.h"
#include "tests/unit/trainer_client/client_fixture.h"

static struct mr_capture_request calls_capture_ask(enum mr_capture_request_kind kind)
{
    return (struct mr_capture_request){.kind = kind, .id = 9};
}

static void calls_capture_start(struct client_fixture *x, const struct mr_capture_request *request,
                                struct mr_capture_state *s)
{
    assert_int_equal(mr_capture(x->client, NULL, 1, request, s, NULL, NULL), MR_OK);
}

TEST(to_start_all_of_it_is_sent, client_set_up, client_tear_down)
{
    struct client_fixture *x = *state;
    struct mr_capture_request request = calls_capture_ask(MR_REQUEST_CAPTURE_START);
    struct mr_capture_state s;
    calls_capture_start(x, &request, &s);
    assert_string_equal(s.machine, "machine 1");
    assert_string_equal(s.system, "system");
    assert_string_equal(s.program, "");
    assert_string_equal(s.port, "0 0 0 512 8192 10000"); /* the defaults, and no filter */
    assert_int_equal(s.link_type, 101);
    assert_int_equal(s.snap_bytes, 512);

    static const char *const ops[] = {"lookup", "node_info"};
    request.who = "anna";
    request.ops = ops;
    request.op_count = 2;
    request.peer = "10.0.0.7:41000";
    request.snap_bytes = 100;
    request.ring_kib = 64;
    request.idle_ms = 500;
    calls_capture_start(x, &request, &s);
    assert_string_equal(s.program, "anna");
    assert_string_equal(s.port, "102 700000affff0000 41000 100 64 500");
}

TEST(a_peer_without_a_port_means_all_its_ports, client_set_up, client_tear_down)
{
    struct client_fixture *x = *state;
    static const struct {
        const char *peer, *says;
    } peers[] = {{"10.0.0.7", "0 700000affff0000 0 "},
                 {"fd00::7", "0 700000000000000 0 "},
                 {"[fd00::7]", "0 700000000000000 0 "},
                 {"[fd00::7]:99", "0 700000000000000 99 "}};
    for (size_t i = 0; i < sizeof(peers) / sizeof(*peers); i++) {
        struct mr_capture_request request = calls_capture_ask(MR_REQUEST_CAPTURE_START);
        struct mr_capture_state s;
        request.peer = peers[i].peer;
        calls_capture_start(x, &request, &s);
        assert_memory_equal(s.port, peers[i].says, strlen(peers[i].says));
    }
}

struct seen {
    uint32_t count;
    uint64_t times[8];
};

static void see(void *arg, const struct mr_captured *packet)
{
    struct seen *seen = arg;
    const uint32_t i = (uint32_t)(packet->time_ns - 100);
    assert_int_equal(packet->captured_bytes, 10 + i);
    assert_int_equal(packet->packet_bytes, 1000);
    assert_int_equal(packet->lost, i);
    assert_int_equal(packet->is_sent, i & 1);
    for (uint32_t at = 0; at < packet->captured_bytes; at++)
        assert_int_equal(packet->bytes[at], i);
    seen->times[seen->count++] = packet->time_ns;
}

/* Answers end within records, and the next one begins with that record. */
TEST(records_come_out_whole_and_once, client_set_up, client_tear_down)
{
    struct client_fixture *x = *state;
    struct mr_capture_request request = calls_capture_ask(MR_REQUEST_CAPTURE_READ);
    struct mr_capture_state s;
    struct seen seen = {0};
    assert_int_equal(mr_capture(x->client, NULL, 0, &request, &s, see, &seen), MR_OK);
    assert_int_equal(seen.count, 2); /* of 40 bytes each */
    assert_int_equal(s.next, 80);
    assert_int_equal(s.left_bytes, 80);
    assert_int_equal(s.seen, 9);
    assert_int_equal(s.wanted, 7);
    assert_int_equal(s.lost, 5);
    request = calls_capture_ask(MR_REQUEST_CAPTURE_HALT);
    request.position = s.next;
    assert_int_equal(mr_capture(x->client, NULL, 0, &request, &s, see, &seen), MR_OK);
    assert_int_equal(seen.count, 4);
    assert_int_equal(s.left_bytes, 0);
    for (uint32_t i = 0; i < seen.count; i++)
        assert_int_equal(seen.times[i], 100 + i);
    request.position = s.next;
    assert_int_equal(mr_capture(x->client, NULL, 0, &request, &s, see, &seen), MR_OK);
    assert_int_equal(seen.count, 4);
    request = calls_capture_ask(MR_REQUEST_CAPTURE_END);
    assert_int_equal(mr_capture(x->client, NULL, 0, &request, NULL, NULL, NULL), MR_OK);
}

static void refused(struct client_fixture *x, uint32_t core, const struct mr_capture_request *request,
                    const char *says)
{
    assert_int_equal(mr_capture(x->client, NULL, core, request, NULL, NULL, NULL), MR_INVALID_ARGUMENT);
    assert_says(mr_last_error(), says);
}

TEST(mistakes_are_named, client_set_up, client_tear_down)
{
    struct client_fixture *x = *state;
    static const char *const ops[] = {"looup"};
    struct mr_capture_request request = calls_capture_ask(MR_REQUEST_CAPTURE_START);
    refused(x, 2, &request, "core is 2; the node has 2");
    refused(x, 0, NULL, "request is NULL");
    request.id = 0;
    refused(x, 0, &request, "id is 0");
    request = calls_capture_ask((enum mr_capture_request_kind)9);
    refused(x, 0, &request, "kind 9 is none");
    request = calls_capture_ask(MR_REQUEST_CAPTURE_START);
    request.ops = ops;
    request.op_count = 1;
    refused(x, 0, &request, "no operation \"looup\"");
    request.ops = NULL;
    refused(x, 0, &request, "ops is NULL");
    request = calls_capture_ask(MR_REQUEST_CAPTURE_START);
    request.peer = "10.0.0.7:x";
    refused(x, 0, &request, "peer: ");
    char who[128];
    memset(who, 'x', sizeof(who) - 1);
    who[sizeof(who) - 1] = '\0';
    request = calls_capture_ask(MR_REQUEST_CAPTURE_START);
    request.who = who;
    refused(x, 0, &request, "who has 127 bytes");
}
