/* The dissector, as tshark runs it, on a file with packets of all kinds that is made here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/message.h"
#include "dataplane/wire/format/op.h"
#include "dataplane/wire/format/packet.h"
#include "tests/command.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/tools/capture/tshark.h"
#include "tools/capture/pcapng.h"

enum { CLIENT_PORT = 41000, SERVER_PORT = 5000 /* none of those in the dissector's preferences */ };
enum { SESSION = 0x5503, HEADERS = 28, PACKET_MAX = 4096, OUTPUT_BYTES = 1 << 20 };

static const char *dissector;
static char output[OUTPUT_BYTES];

/* ---- packets ---- */

struct packet {
    uint8_t bytes[PACKET_MAX];
    uint32_t count; /* without IP and UDP */
    bool is_sent;   /* by the server */
};

static struct mr_packet_header *header_of(struct packet *p)
{
    return (struct mr_packet_header *)(void *)p->bytes;
}

static struct packet dissector_make(uint8_t type, uint16_t flags, uint64_t call_id)
{
    struct packet p = {.count = MR_HEADER_BYTES, .is_sent = (flags & MR_FLAG_REPLY) != 0};
    *header_of(&p) = (struct mr_packet_header){.magic = MR_MAGIC,
                                               .version = MR_PROTOCOL_VERSION,
                                               .type = type,
                                               .flags = flags,
                                               .session_id = SESSION,
                                               .call_id = call_id,
                                               .number = 1};
    return p;
}

static void append(struct packet *p, const void *bytes, uint32_t count)
{
    memcpy(p->bytes + p->count, bytes, count);
    p->count += count;
    header_of(p)->payload_bytes = (uint16_t)(p->count - MR_HEADER_BYTES);
}

static void append_message(struct packet *p, const struct mr_preamble *preamble, struct mr_tensor *tensors,
                           uint32_t count)
{
    static _Alignas(64) uint8_t message[PACKET_MAX];
    const uint32_t bytes = mr_message_bytes(tensors, count);
    assert_int_in_range(bytes, 1, PACKET_MAX);
    mr_message_layout(message, preamble, tensors, count);
    append(p, message, bytes);
}

/* ---- the file ---- */

static struct pcapng file;

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/* Cut after `snap` bytes of the datagram. */
static void add_cut(const struct packet *p, uint32_t snap)
{
    uint8_t bytes[HEADERS + PACKET_MAX] = {
        0x45, [8] = 64, [9] = 17, [12] = 10, [15] = 1, [16] = 10, [19] = 2};
    put16(bytes + 2, HEADERS + p->count);
    put16(bytes + 20, p->is_sent ? SERVER_PORT : CLIENT_PORT);
    put16(bytes + 22, p->is_sent ? CLIENT_PORT : SERVER_PORT);
    put16(bytes + 24, 8 + p->count);
    memcpy(bytes + HEADERS, p->bytes, p->count);
    pcapng_add_packet(&file,
                      &(struct pcapng_packet){.bytes = bytes,
                                              .captured_bytes = HEADERS + (snap < p->count ? snap : p->count),
                                              .packet_bytes = HEADERS + p->count,
                                              .is_sent = p->is_sent});
}

static void dissector_add(const struct packet *p)
{
    add_cut(p, UINT32_MAX);
}

static int set_up(void **state)
{
    pcapng_add_section(&file, &(struct pcapng_section){.program = "test"});
    pcapng_add_interface(&file, &(struct pcapng_interface){.link_type = 101, .snap_bytes = 65535});
    return temporary_directory_setup(state);
}

static int tear_down(void **state)
{
    pcapng_free(&file);
    return temporary_directory_teardown(state);
}

/* Decodes what was added; `how` are tshark's options. */
static void decode(const char *directory, const char *how)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/x.pcapng", directory);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(file.bytes, 1, file.count, out), file.count);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(command_output(output, sizeof(output), "%s -X lua_script:%s -r %s %s 2>%s/err",
                                    tshark_command(), dissector, path, how, directory),
                     0);
}

static void expect_lines(const char *const *lines, size_t count)
{
    char *at = output;
    for (size_t i = 0; i < count; i++) {
        char *end = strchr(at, '\n');
        assert_non_null(end);
        *end = '\0';
        for (char *tab = end; tab > at && tab[-1] == '\t'; tab--) /* fields that are not there */
            tab[-1] = '\0';
        assert_string_equal(at, lines[i]);
        at = end + 1;
    }
    assert_string_equal(at, "");
}

static void expect_nothing_wrong(const char *directory)
{
    decode(directory, "-Y '_ws.malformed || _ws.lua.error || millrace.malformed || !millrace'");
    assert_string_equal(output, "");
}

/* What is said of each packet, and nothing else if nothing is wrong with it. */
#define INFO "-T fields -e _ws.col.Info -e _ws.malformed -e _ws.lua.error -e millrace.malformed"

/* ---- tests ---- */

TEST(packets_of_each_type, set_up, tear_down)
{
    static const char *const lines[] = {
        "HELLO without a cookie",
        "HELLO with a cookie",
        "RETRY",
        "ACCEPT session 0x0000000000005503",
        "DATA lookup 7 u64[3]",
        "ACK 1176 bytes of the reply to lookup 7",
        "ACK 0 bytes of call 9",
        "ACK of slots",
        "RESEND 2352 bytes of the reply to lookup 7",
        "BUSY call 7",
        "RESET",
        "BYE",
        "PING PROBE call 7",
        "PATH 1232 bytes",
        "PATH reported by a router",
        "VERSION: the server speaks version 4, asked was 5",
    };
    const struct mr_ack ack = {.received_bytes = 1176}, more = {.received_bytes = 2352}, none = {0};
    const uint64_t keys[3] = {1, 2, 3};
    const struct mr_path_word word = {.udp_bytes = 1400};
    static const uint8_t zeros[MR_UDP_BYTES_MIN - MR_HEADER_BYTES];
    struct mr_tensor tensor = mr_tensor_1d(MR_U64, 3, keys);
    struct packet p;
    for (uint32_t has_cookie = 0; has_cookie < 2; has_cookie++) {
        const struct mr_hello hello = {.cookie = {(uint8_t)has_cookie}};
        append((p = dissector_make(MR_PACKET_HELLO, 0, 5), &p), &hello, sizeof(hello));
        dissector_add(&p);
    }
    append((p = dissector_make(MR_PACKET_RETRY, 0, 5), &p), &(struct mr_retry){{1}}, sizeof(struct mr_retry));
    dissector_add(&p);
    append((p = dissector_make(MR_PACKET_ACCEPT, 0, 5), &p),
           &(struct mr_accept_long){.accept.session_id = SESSION}, sizeof(struct mr_accept_long));
    dissector_add(&p);
    p = dissector_make(MR_PACKET_DATA, 0, 7);
    append_message(&p, &(struct mr_preamble){.op = MR_OP_LOOKUP, .table = 1}, &tensor, 1);
    dissector_add(&p);
    append((p = dissector_make(MR_PACKET_ACK, MR_FLAG_REPLY, 7), &p), &ack, sizeof(ack));
    dissector_add(&p);
    append((p = dissector_make(MR_PACKET_ACK, 0, 9), &p), &none, sizeof(none));
    dissector_add(&p);
    append((p = dissector_make(MR_PACKET_ACK, MR_FLAG_REPLY, 0), &p), &none, sizeof(none));
    dissector_add(&p);
    append((p = dissector_make(MR_PACKET_RESEND, MR_FLAG_REPLY, 7), &p), &more, sizeof(more));
    dissector_add(&p);
    p = dissector_make(MR_PACKET_BUSY, 0, 7);
    dissector_add(&p);
    p = dissector_make(MR_PACKET_RESET, 0, 0);
    dissector_add(&p);
    p = dissector_make(MR_PACKET_BYE, 0, 0);
    dissector_add(&p);
    p = dissector_make(MR_PACKET_PING, MR_FLAG_PROBE, 7);
    dissector_add(&p);
    append((p = dissector_make(MR_PACKET_PATH, 0, 1), &p), zeros, sizeof(zeros));
    dissector_add(&p);
    append((p = dissector_make(MR_PACKET_PATH, MR_FLAG_REPLY, 0), &p), &word, sizeof(word));
    dissector_add(&p);
    p = (struct packet){.count = sizeof(struct mr_version_answer)};
    memcpy(
        p.bytes,
        &(struct mr_version_answer){.magic = MR_MAGIC, .version = 4, .type = MR_PACKET_VERSION, .asked = 5},
        p.count);
    dissector_add(&p);
    decode(*state, INFO);
    expect_lines(lines, sizeof(lines) / sizeof(*lines));
    decode(*state, "-Y 'millrace.resend || millrace.busy || millrace.reset' -T fields -e millrace.type");
    expect_lines((const char *const[]){"6", "7", "8"}, 3);
}

static const struct {
    uint32_t value;
    const char *name;
} ops[] =
    {
#define MR_OP(NAME, name, value, repeatable, role, served, request, reply) {(value), #name},
#include "dataplane/wire/format/ops.def"
},
  statuses[] =
      {
#define STATUS_NAME(name, value, text) {(value), #name},
          MR_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
},
  dtypes[] = {
#define DTYPE_NAME(name, value, bytes, text) {(value), (text)},
      MR_DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
};
#define COUNT(list) (sizeof(list) / sizeof(*(list)))

/* As the headers have them now. */
TEST(every_name_is_known, set_up, tear_down)
{
    enum { LINES = COUNT(ops) + COUNT(statuses) + COUNT(dtypes) };
    static char lines[LINES][80];
    static const char *expected[LINES];
    uint32_t n = 0;
    struct packet p;
    for (size_t i = 0; i < COUNT(ops); i++) {
        p = dissector_make(MR_PACKET_DATA, 0, n + 1);
        append_message(&p, &(struct mr_preamble){.op = (uint8_t)ops[i].value}, NULL, 0);
        dissector_add(&p);
        (void)snprintf(lines[n], sizeof(lines[n]), "DATA %s %u", ops[i].name, n + 1);
        n++;
    }
    for (size_t i = 0; i < COUNT(statuses); i++) {
        const bool is_ok = statuses[i].value == 0;
        p = dissector_make(MR_PACKET_DATA, MR_FLAG_REPLY, n + 1);
        append_message(&p, &(struct mr_preamble){.op = MR_OP_ECHO, .status = (uint16_t)statuses[i].value},
                       NULL, 0);
        dissector_add(&p);
        (void)snprintf(lines[n], sizeof(lines[n]), "DATA echo reply%s%s %u", is_ok ? "" : " ",
                       is_ok ? "" : statuses[i].name, n + 1);
        n++;
    }
    for (size_t i = 0; i < COUNT(dtypes); i++) {
        static const uint64_t data[6];
        struct mr_tensor tensor = mr_tensor_2d((enum mr_dtype)dtypes[i].value, 2, 3, data);
        p = dissector_make(MR_PACKET_DATA, 0, n + 1);
        append_message(&p, &(struct mr_preamble){.op = MR_OP_ECHO}, &tensor, 1);
        dissector_add(&p);
        (void)snprintf(lines[n], sizeof(lines[n]), "DATA echo %u %s[2, 3]", n + 1, dtypes[i].name);
        n++;
    }
    for (uint32_t i = 0; i < n; i++)
        expected[i] = lines[i];
    decode(*state, INFO);
    expect_lines(expected, n);
}

TEST(bundles_segments_and_what_comes_again, set_up, tear_down)
{
    static const char *const lines[] = {
        "DATA 2 messages: echo 20; lookup 21 u64[2]",
        "DATA 1 messages: lookup 21 u64[2]",
        "DATA push_grad 30 u32[4] u64[2] u32[0] f32[2, 1], segment 0 of 3",
        "DATA push_grad 30, segment 1 of 3",
        "DATA push_grad 30, segment 1 of 3",
        "DATA push_grad reply UNKNOWN_TABLE 30 u8[4]",
    };
    const uint64_t keys[2] = {5, 6};
    const struct mr_push_head head = {.feature = 3};
    static const float rows[2];
    struct mr_tensor lookup = mr_tensor_1d(MR_U64, 2, keys), text = mr_tensor_1d(MR_U8, 4, "oops");
    struct mr_tensor push[4] = {mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &head), lookup,
                                mr_tensor_1d(MR_U32, 0, NULL), mr_tensor_2d(MR_F32, 2, 1, rows)};
    struct packet p = dissector_make(MR_PACKET_DATA, MR_FLAG_BUNDLE, 0);
    append(&p, &(struct mr_frame){.call_id = 20, .message_bytes = 32}, sizeof(struct mr_frame));
    append_message(&p, &(struct mr_preamble){.op = MR_OP_ECHO}, NULL, 0);
    append(&p, &(struct mr_frame){.call_id = 21, .message_bytes = 80}, sizeof(struct mr_frame));
    append_message(&p, &(struct mr_preamble){.op = MR_OP_LOOKUP, .table = 1}, &lookup, 1);
    dissector_add(&p);
    p = dissector_make(MR_PACKET_DATA, MR_FLAG_BUNDLE, 0);
    append(&p, &(struct mr_frame){.call_id = 21, .message_bytes = 80}, sizeof(struct mr_frame));
    append_message(&p, &(struct mr_preamble){.op = MR_OP_LOOKUP, .table = 1}, &lookup, 1);
    dissector_add(&p); /* again */
    p = dissector_make(MR_PACKET_DATA, 0, 30);
    append_message(&p, &(struct mr_preamble){.op = MR_OP_PUSH_GRAD}, push, 4);
    for (uint16_t i = 0; i < 4; i++) {
        header_of(&p)->segment_bytes = header_of(&p)->payload_bytes;
        header_of(&p)->message_bytes = header_of(&p)->payload_bytes * 3u;
        header_of(&p)->segment_number = i == 2 ? 1 : i;
        if (i < 3)
            dissector_add(&p); /* the last one again */
    }
    p = dissector_make(MR_PACKET_DATA, MR_FLAG_REPLY, 30);
    append_message(&p, &(struct mr_preamble){.op = MR_OP_PUSH_GRAD, .status = MR_UNKNOWN_TABLE}, &text, 1);
    dissector_add(&p);
    decode(*state, INFO);
    expect_lines(lines, sizeof(lines) / sizeof(*lines));
    decode(*state, "-Y millrace.again -T fields -e frame.number");
    expect_lines((const char *const[]){"2", "5"}, 2);
    decode(*state, "-Y millrace.keys -T fields -e millrace.keys");
    expect_lines((const char *const[]){"2", "2", "2"}, 3);
    decode(*state, "-Y millrace.request_in -T fields -e millrace.request_in -e millrace.error_text");
    expect_lines((const char *const[]){"3\toops"}, 1);
    decode(*state, "-2 -Y millrace.reply_in -T fields -e millrace.reply_in"); /* known after a first pass */
    expect_lines((const char *const[]){"6", "6", "6"}, 3);
}

/* Wherever a packet was cut, the dissector says what it has, and no more. */
TEST(cut_packets, set_up, tear_down)
{
    const uint64_t keys[3] = {1, 2, 3};
    struct mr_tensor tensor = mr_tensor_1d(MR_U64, 3, keys);
    struct packet p = dissector_make(MR_PACKET_DATA, 0, 7);
    append_message(&p, &(struct mr_preamble){.op = MR_OP_LOOKUP}, &tensor, 1);
    for (uint32_t snap = MR_HEADER_BYTES; snap <= p.count; snap++)
        add_cut(&p, snap);
    expect_nothing_wrong(*state);
    decode(*state, "-Y 'millrace.keys == 3' -T fields -e frame.number");
    const char *first = strchr(output, '\n');
    assert_non_null(first);
    assert_int_equal(strtoul(output, NULL, 10), 65); /* once both descriptors' 64 bytes are there */
}

TEST(wrong_lengths_are_said, set_up, tear_down)
{
    struct packet p = dissector_make(MR_PACKET_DATA, MR_FLAG_BUNDLE, 0);
    append(&p, &(struct mr_frame){.call_id = 1, .message_bytes = 4000}, sizeof(struct mr_frame));
    append_message(&p, &(struct mr_preamble){.op = MR_OP_ECHO}, NULL, 0);
    dissector_add(&p);
    decode(*state, "-Y millrace.malformed -T fields -e frame.number");
    expect_lines((const char *const[]){"1"}, 1);
}

/* As when it is in a folder of plug-ins, too. */
TEST(a_second_one_is_passed_over, set_up, tear_down)
{
    char how[512], path[256];
    struct packet p = dissector_make(MR_PACKET_PING, 0, 1);
    dissector_add(&p);
    (void)snprintf(how, sizeof(how), "-X lua_script:%s -T fields -e millrace.type", dissector);
    decode(*state, how);
    expect_lines((const char *const[]){"10"}, 1);
    (void)snprintf(path, sizeof(path), "%s/err", (const char *)*state);
    FILE *err = fopen(path, "r");
    assert_non_null(err);
    output[fread(output, 1, sizeof(output) - 1, err)] = '\0';
    assert_int_equal(fclose(err), 0);
    assert_null(strstr(output, "Lua"));
}

TEST(other_datagrams_are_left_alone, set_up, tear_down)
{
    struct packet p = dissector_make(MR_PACKET_PING, 0, 1);
    p.bytes[0] = 'x';
    dissector_add(&p);
    p = dissector_make(77, 0, 1); /* no type */
    dissector_add(&p);
    p = dissector_make(MR_PACKET_PING, 0, 1);
    header_of(&p)->payload_bytes = 5; /* no such length */
    dissector_add(&p);
    decode(*state, "-Y millrace");
    assert_string_equal(output, "");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s MILLRACE.LUA\n", argv[0]);
        return 2;
    }
    dissector = argv[1];
    if (system("command -v tshark >/dev/null") != 0) {
        (void)fprintf(stderr, "skipped: tshark is not installed (scripts/setup.sh test)\n");
        return 77;
    }
    return tests_run(NULL, NULL);
}
