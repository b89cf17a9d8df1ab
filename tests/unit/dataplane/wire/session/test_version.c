/* Peers of another protocol version: one answer, no longer than the question, and nothing believed but for
 * what an error says. */
#include <stdio.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "dataplane/wire/format/capability.h"
#include "pair_fixture.h"
#include "tests/sim/session_count.h"
#include "tests/test.h"

enum { OLD_VERSION = 3, OLD_HELLO_BYTES = 48 + 128, NEW_VERSION = MR_PROTOCOL_VERSION + 1 };

/* As somebody of another version would send it: only what all versions have in common is what it seems. */
static uint32_t hello_of(uint8_t version, uint32_t bytes, uint8_t *out)
{
    for (uint32_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(i * 37 + version);
    const uint16_t magic = MR_MAGIC;
    memcpy(out, &magic, sizeof(magic));
    out[2] = version;
    out[3] = MR_PACKET_HELLO;
    return bytes;
}

static struct mr_version_answer last_answer;
static uint32_t answers, other_packets;

static enum pair_verdict take_answers(struct pair *pair, enum pair_side from, uint32_t n,
                                      struct pair_packet *packet)
{
    if (from != PAIR_SERVER)
        return PAIR_PASS;
    if (packet->data[3] != MR_PACKET_VERSION) {
        other_packets++;
        return PAIR_PASS;
    }
    assert_int_equal(packet->bytes, sizeof(last_answer));
    memcpy(&last_answer, packet->data, sizeof(last_answer));
    answers++;
    return PAIR_DROP;
}

static int setup(void **state)
{
    pair_started(NULL);
    answers = other_packets = 0;
    p.filter = take_answers;
    return 0;
}

TEST(a_hello_of_another_version_is_answered, setup, pair_ended)
{
    static const uint8_t versions[] = {0, 1, OLD_VERSION, NEW_VERSION, 255};
    uint8_t hello[OLD_HELLO_BYTES];
    for (uint32_t i = 0; i < sizeof(versions); i++) {
        pair_inject(&p, PAIR_SERVER, hello, hello_of(versions[i], sizeof(hello), hello));
        assert_int_equal(answers, i + 1);
        assert_int_equal(last_answer.magic, MR_MAGIC);
        assert_int_equal(last_answer.version, MR_PROTOCOL_VERSION);
        assert_int_equal(last_answer.asked, versions[i]);
        assert_memory_equal(last_answer.echo, hello + 8, sizeof(last_answer.echo));
        const uint8_t zero[24] = {0};
        assert_string_equal(last_answer.text, mr_version_text());
        assert_memory_equal(last_answer.padding, zero, sizeof(last_answer.padding));
        assert_memory_equal(last_answer.reserved, zero, sizeof(last_answer.reserved));
    }
    assert_int_equal(served()->hellos_other_version, sizeof(versions));
    const struct mr_other_version *other = mr_endpoint_other_version(server());
    assert_int_equal(other->count, sizeof(versions));
    assert_int_equal(other->version, 255);
    assert_int_equal(other->from.port, p.ends[PAIR_CLIENT].address.port);
    assert_int_equal(served()->drop_version, sizeof(versions));
    assert_int_equal(session_count(server()), 0);
}

/* Nothing is amplified, and no two peers keep each other busy. */
TEST(nothing_else_is, setup, pair_ended)
{
    uint8_t packet[OLD_HELLO_BYTES];
    for (uint32_t bytes = 0; bytes < MR_VERSION_HELLO_BYTES; bytes++) {
        (void)hello_of(OLD_VERSION, sizeof(packet), packet);
        pair_inject(&p, PAIR_SERVER, packet, bytes);
    }
    for (uint32_t type = 0; type < 256; type++) {
        (void)hello_of(OLD_VERSION, sizeof(packet), packet);
        packet[3] = (uint8_t)type;
        if (type != MR_PACKET_HELLO)
            pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    }
    (void)hello_of(OLD_VERSION, sizeof(packet), packet);
    packet[0] ^= 1;
    pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
    pair_inject(&p, PAIR_SERVER, packet, hello_of(MR_PROTOCOL_VERSION, sizeof(packet), packet));
    pair_inject(&p, PAIR_CLIENT, packet, hello_of(OLD_VERSION, sizeof(packet), packet)); /* serves nothing */
    pair_run(&p, 1000);
    assert_int_equal(p.ends[PAIR_SERVER].sent, 0);
    assert_int_equal(p.ends[PAIR_CLIENT].sent, 0);
    assert_int_equal(served()->hellos_other_version, 0);
}

TEST(a_flood_of_them_is_answered_now_and_then, setup, pair_ended)
{
    uint8_t hello[OLD_HELLO_BYTES];
    p.now_us = 100 * MR_BUDGET_INTERVAL_US;
    for (uint32_t i = 0; i < 1000; i++)
        pair_inject(&p, PAIR_SERVER, hello, hello_of(OLD_VERSION, sizeof(hello), hello));
    assert_int_equal(answers, MR_VERSIONS_PER_INTERVAL);
    assert_int_equal(served()->hellos_other_version, 1000);
    p.now_us += MR_BUDGET_INTERVAL_US;
    pair_inject(&p, PAIR_SERVER, hello, sizeof(hello));
    assert_int_equal(answers, MR_VERSIONS_PER_INTERVAL + 1);
}

/* ---- the calling side ---- */

static struct mr_version_answer answer_to(uint64_t nonce)
{
    struct mr_version_answer answer = {
        .magic = MR_MAGIC, .version = NEW_VERSION, .type = MR_PACKET_VERSION, .asked = MR_PROTOCOL_VERSION};
    memcpy(answer.echo + 8, &nonce, sizeof(nonce));
    return answer;
}

static void version_tell(const struct mr_version_answer *answer, uint32_t bytes)
{
    pair_inject(&p, PAIR_CLIENT, (const uint8_t *)answer, bytes);
}

static uint8_t noted(void)
{
    struct mr_client_session_info info;
    mr_client_session_info(p.session, &info);
    return info.other_version;
}

TEST(only_an_echo_of_the_hello_is_noted, setup, pair_ended)
{
    p.filter = drop_all;
    pair_open(&p);
    uint64_t nonce = p.session->client_nonce;
    struct mr_version_answer good = answer_to(nonce),
                             bad[] = {good, good, good, good, good, answer_to(nonce ^ 1)};
    bad[0].version = MR_PROTOCOL_VERSION;
    bad[1].version = 0;
    bad[2].asked = MR_PROTOCOL_VERSION - 1;
    bad[3].echo[0] = 1;
    bad[4].echo[MR_VERSION_ECHO - 1] = 1;
    for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        version_tell(&bad[i], sizeof(bad[i]));
    for (uint32_t bytes = 0; bytes < sizeof(good); bytes++)
        version_tell(&good, bytes);
    struct mr_address elsewhere = p.ends[PAIR_SERVER].address;
    elsewhere.port++;
    mr_endpoint_receive(client(), p.now_us, &elsewhere, (const uint8_t *)&good, sizeof(good));
    assert_int_equal(noted(), 0);
    char text[256], says[256];
    memcpy(good.text, "0.9.1", 6);
    version_tell(&good, sizeof(good));
    assert_int_equal(noted(), NEW_VERSION);
    assert_true(mr_client_session_version_text(p.session, "server", text, sizeof(text)));
    (void)snprintf(says, sizeof(says),
                   "the server speaks version %u of the protocol, and this library version %u: upgrade the "
                   "library (they are 0.9.1 and %s)",
                   NEW_VERSION, MR_PROTOCOL_VERSION, mr_version_text());
    assert_string_equal(text, says);
}

/* The handshake goes on, for the right server may be there soon; what that says counts. */
TEST(it_changes_nothing_but_what_is_said, setup, pair_ended)
{
    struct pair_call c = {0};
    p.filter = drop_all;
    pair_open(&p);
    struct mr_version_answer answer = answer_to(p.session->client_nonce);
    version_tell(&answer, sizeof(answer));
    assert_int_equal(noted(), NEW_VERSION);
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    p.filter = NULL;
    pair_run(&p, 500000);
    assert_true(up());
    assert_int_equal(noted(), 0);
    assert_int_equal(c.status, MR_OK);
    /* No handshake is open any more. */
    version_tell(&answer, sizeof(answer));
    assert_int_equal(noted(), 0);
    assert_true(up());
}

/* A server that was upgraded under its clients: calls end as those to one that is away, and the version is
 * known. */
TEST(a_server_that_was_upgraded_is_known, setup, pair_ended)
{
    struct pair_call c = {0};
    p.filter = NULL;
    pair_open(&p);
    p.filter = drop_all;
    pair_call(&p, &c, MR_OP_ECHO, NULL, 0, p.now_us + 5000000);
    pair_run(&p, 3000000);
    assert_false(up());
    struct mr_version_answer answer = answer_to(p.session->client_nonce);
    version_tell(&answer, sizeof(answer));
    pair_run(&p, 3000000);
    assert_int_equal(c.status, MR_UNREACHABLE);
    assert_int_equal(noted(), NEW_VERSION);
    p.filter = NULL;
    pair_run(&p, 1000000);
    assert_true(up());
    assert_int_equal(noted(), 0);
}
