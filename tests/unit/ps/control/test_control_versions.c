/* What the log says of peers that speak another version of the protocol. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/format/capability.h"
#include "fake_dp.h"
#include "node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

#define LOG_BYTES (1u << 16)

static char log_text[LOG_BYTES];
static int log_file, own_stderr;

/* The log is this process's stderr. */
static int control_versions_begin(void **state)
{
    char path[] = "/tmp/millrace-log-XXXXXX";
    log_file = mkstemp(path);
    own_stderr = dup(STDERR_FILENO);
    if (log_file < 0 || own_stderr < 0 || unlink(path) != 0 || dup2(log_file, STDERR_FILENO) < 0)
        return -1;
    return node_setup(state);
}

static int control_versions_end(void **state)
{
    const int result = node_teardown(state);
    (void)dup2(own_stderr, STDERR_FILENO);
    close(own_stderr);
    close(log_file);
    return result;
}

static const char *read_log(void)
{
    const ssize_t n = pread(log_file, log_text, sizeof(log_text) - 1, 0);
    log_text[n > 0 ? n : 0] = '\0';
    return log_text;
}

static void hello_of(uint8_t version)
{
    uint8_t hello[MR_VERSION_HELLO_BYTES] = {0x4d, 0x52, version, MR_PACKET_HELLO, [8] = 1, [20] = 7};
    const struct mr_address to = fake_dp_address(0);
    memcpy(fake_dp_client_tx_begin(NULL, &to, sizeof(hello)), hello, sizeof(hello));
    fake_dp_client_tx_end(NULL, sizeof(hello));
}

static uint32_t control_versions_count(const char *text, const char *part)
{
    uint32_t times = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part))
        times++;
    return times;
}

/* A heartbeat has the core refresh what it shows, behind the HELLOs that came before. */
static void wait_for_line(struct node_fixture *n)
{
    WAIT_UNTIL(node_call(n, 0, MR_OP_HEARTBEAT, 0, NULL, 0)->status == MR_OK &&
               strstr(read_log(), "speaks version") != NULL);
}

TEST(a_line_names_the_peer_and_both_versions, control_versions_begin, control_versions_end)
{
    struct node_fixture *n = *state;
    char says[200];
    hello_of(3);
    wait_for_line(n);
    (void)snprintf(
        says, sizeof(says),
        "speaks version 3 of the protocol, and this node (version %s) version %u: upgrade the peer",
        mr_version_text(), MR_PROTOCOL_VERSION);
    assert_non_null(strstr(log_text, says));
    assert_non_null(strstr(log_text, "since the last line: 1)"));
}

/* Anybody can send them. */
TEST(more_of_them_make_no_more_lines, control_versions_begin, control_versions_end)
{
    struct node_fixture *n = *state;
    hello_of(MR_PROTOCOL_VERSION + 1);
    wait_for_line(n);
    assert_non_null(strstr(log_text, "upgrade the node"));
    for (uint32_t i = 0; i < 100; i++) {
        hello_of(3);
        assert_int_equal(node_call(n, 0, MR_OP_HEARTBEAT, 0, NULL, 0)->status, MR_OK);
    }
    node_stop(n);
    node_start(n, 1);
    assert_int_equal(control_versions_count(read_log(), "speaks version"), 1);
}
