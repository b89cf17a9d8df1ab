/* The pre-shared key of a running node is changed while clients make calls: no call fails, no session is lost, and in the end
 * the old key opens nothing. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "dataplane/wire/packet.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/wire_client.h"

#define PORT         7700
#define CORES        2u
#define CALLS        48u
#define CALL_BYTES   50000u
#define ANSWER_MS    20000u
#define SILENCE_MS   300u
#define TRIES        60
#define MIDDLE_TURNS 4u /* of at least 20: a turn takes at most 64 datagrams */

enum key { OLD, NEW, KEYS };

struct fixture {
    struct node_fixture node;
    char directory[32];
    char key_file[48], next_file[48];
    char settings[2][80];
    uint8_t keys[KEYS][MR_PSK_BYTES];
    struct wire_client *clients[CORES];
};

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void write_key(const struct fixture *x, const char *path, enum key key)
{
    char text[2 * MR_PSK_BYTES + 1];

    for (uint32_t i = 0; i < MR_PSK_BYTES; i++)
        snprintf(text + (size_t)2 * i, 3, "%02x", x->keys[key][i]);
    write_text(path, text);
}

static struct wire_client *connect_with(const struct fixture *x, uint32_t core, enum key key)
{
    struct wire_client *client =
        wire_client_create(NETNS_SERVER_IPV4, (uint16_t)(PORT + core), (uint16_t)core);

    wire_client_set_key(client, x->keys[key]);
    return client;
}

static int set_up(void **state)
{
    static struct fixture x;
    const char *settings[3] = {x.settings[0], x.settings[1], NULL};

    memcpy(x.directory, "/tmp/millrace-keys-XXXXXX", sizeof "/tmp/millrace-keys-XXXXXX");
    assert_non_null(mkdtemp(x.directory));
    snprintf(x.key_file, sizeof x.key_file, "%s/key", x.directory);
    snprintf(x.next_file, sizeof x.next_file, "%s/next", x.directory);
    snprintf(x.settings[0], sizeof x.settings[0], "node.key_file=%s", x.key_file);
    snprintf(x.settings[1], sizeof x.settings[1], "node.key_file_next=%s", x.next_file);
    for (int key = 0; key < KEYS; key++)
        memset(x.keys[key], 0x31 + key, MR_PSK_BYTES);
    write_key(&x, x.key_file, OLD);
    node_fixture_start(&x.node, CORES, settings);
    for (uint32_t core = 0; core < CORES; core++)
        x.clients[core] = connect_with(&x, core, OLD);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;

    for (uint32_t core = 0; core < CORES; core++)
        wire_client_destroy(x->clients[core]);
    node_fixture_stop(&x->node);
    (void)unlink(x->key_file);
    (void)unlink(x->next_file);
    return rmdir(x->directory);
}

static void work(struct fixture *x)
{
    for (uint32_t core = 0; core < CORES; core++) {
        assert_int_equal(wire_client_echo(x->clients[core], CALL_BYTES, CALLS, ANSWER_MS), MR_OK);
        assert_int_equal(wire_client_restarts(x->clients[core]), 0);
    }
}

/* Every core takes the key: at once, or once it has read the files. */
static void is_taken(const struct fixture *x, enum key key)
{
    for (uint32_t core = 0; core < CORES; core++) {
        struct wire_client *client = connect_with(x, core, key);

        assert_int_equal(wire_client_echo(client, 1, 1, ANSWER_MS), MR_OK);
        wire_client_destroy(client);
    }
}

static void is_refused(const struct fixture *x, enum key key)
{
    for (uint32_t core = 0; core < CORES; core++) {
        enum mr_status status = MR_OK;

        for (int i = 0; i < TRIES && status == MR_OK; i++) {
            struct wire_client *client = connect_with(x, core, key);

            status = wire_client_echo(client, 1, 1, SILENCE_MS);
            wire_client_destroy(client);
        }
        assert_int_equal(status, MR_UNREACHABLE);
    }
}

static void test_rotation_under_load(void **state)
{
    struct fixture *x = *state;

    work(x);
    is_refused(x, NEW);
    write_key(x, x->next_file, NEW);
    assert_int_equal(kill(x->node.server.pid, SIGHUP), 0);
    work(x);
    is_taken(x, NEW);
    is_taken(x, OLD);
    for (uint32_t core = 0; core < CORES; core++)
        wire_client_set_key_at(x->clients[core], x->keys[NEW], MIDDLE_TURNS);
    work(x);
    assert_int_equal(rename(x->next_file, x->key_file), 0);
    assert_int_equal(kill(x->node.server.pid, SIGHUP), 0);
    work(x);
    is_refused(x, OLD);
    is_taken(x, NEW);
    work(x);
}

/* Then nothing changes. */
static void test_a_bad_file(void **state)
{
    struct fixture *x = *state;

    write_text(x->next_file, "not a key");
    assert_int_equal(kill(x->node.server.pid, SIGHUP), 0);
    work(x);
    is_taken(x, OLD);
    assert_int_equal(unlink(x->key_file), 0);
    assert_int_equal(kill(x->node.server.pid, SIGHUP), 0);
    work(x);
    is_taken(x, OLD);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rotation_under_load, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_bad_file, set_up, tear_down),
    };

    if (argc != 2)
        return 2;
    node_fixture_server = argv[1];
    netns_require_root();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
