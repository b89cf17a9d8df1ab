/* The pre-shared key of a running node is changed while clients make calls: no call fails, no session is
 * lost, and in the end the old key opens nothing. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/format/packet.h"
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/checkpoint_calls.h"
#include "tests/command.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/wire_client.h"
#include "tests/test.h"
#include "tests/wait.h"

#define PORT         7700
#define CORES        2u
#define CALLS        48u
#define CALL_BYTES   50000u
#define ANSWER_MS    60000u
#define SILENCE_MS   300u
#define MIDDLE_TURNS 4u /* of at least 20: a turn takes at most 64 datagrams */

enum key { OLD, NEW, KEYS };

struct fixture {
    struct node_fixture node;
    char directory[32];
    char key_file[48], next_file[48];
    char settings[2][80];
    char role_settings[2][96];
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
    snprintf(x.key_file, sizeof(x.key_file), "%s/key", x.directory);
    snprintf(x.next_file, sizeof(x.next_file), "%s/next", x.directory);
    snprintf(x.settings[0], sizeof(x.settings[0]), "node.key_file=%s", x.key_file);
    snprintf(x.settings[1], sizeof(x.settings[1]), "node.key_file_next=%s", x.next_file);
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

static enum mr_status try_key(const struct fixture *x, uint32_t core, enum key key)
{
    struct wire_client *client = connect_with(x, core, key);
    const enum mr_status status = wire_client_echo(client, 1, 1, SILENCE_MS);
    wire_client_destroy(client);
    return status;
}

/* No core takes the key: at once, or once it has read the files. A call that had its session and was too late
 * says nothing. */
static void is_refused(const struct fixture *x, enum key key)
{
    for (uint32_t core = 0; core < CORES; core++) {
        enum mr_status status;
        WAIT_UNTIL((status = try_key(x, core, key)) != MR_OK && status != MR_DEADLINE_EXCEEDED);
        assert_int_equal(status, MR_UNREACHABLE);
    }
}

TEST(test_rotation_under_load, set_up, tear_down)
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
TEST(test_a_bad_file, set_up, tear_down)
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

/* ---- roles ---- */

static struct mr_client *client_patient(const struct fixture *x, const char *name, uint32_t deadline_ms)
{
    char path[64], error[512] = "";
    struct mr_client *client = NULL;
    snprintf(path, sizeof(path), "%s/%s", x->directory, name);
    struct mr_client_options options = {
        .server = x->node.address, .key_file = path, .connect_ms = NODE_READY_MS, .deadline_ms = deadline_ms};
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

static struct mr_client *client_with(const struct fixture *x, const char *name)
{
    return client_patient(x, name, NODE_READY_MS);
}

/* The node's command line names key files of this many roles. */
static int start_with_roles(void **state, int count)
{
    static const char *const names[] = {"trainer", "read_only"};
    static struct fixture x;
    const char *settings[5] = {x.settings[0], x.settings[1]};
    for (int i = 0; i < count; i++)
        settings[2 + i] = x.role_settings[i];
    char path[64];
    *state = &x;
    memcpy(x.directory, "/tmp/millrace-keys-XXXXXX", sizeof "/tmp/millrace-keys-XXXXXX");
    assert_non_null(mkdtemp(x.directory));
    snprintf(x.key_file, sizeof(x.key_file), "%s/key", x.directory);
    snprintf(x.settings[0], sizeof(x.settings[0]), "node.key_file=%s", x.key_file);
    snprintf(x.settings[1], sizeof(x.settings[1]), "cores.adaptive_idle_us=50");
    for (int key = 0; key < KEYS; key++)
        memset(x.keys[key], 0x41 + key, MR_PSK_BYTES);
    write_key(&x, x.key_file, OLD);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", x.directory, names[i]);
        snprintf(x.role_settings[i], sizeof(x.role_settings[i]), "node.key=%s:%s", names[i], path);
        memset(x.keys[NEW], 0x51 + i, MR_PSK_BYTES);
        write_key(&x, path, NEW);
    }
    node_fixture_start(&x.node, CORES, settings);
    return 0;
}

static int set_up_roles(void **state)
{
    return start_with_roles(state, 2);
}

static int set_up_operator(void **state)
{
    return start_with_roles(state, 0);
}

static int tear_down_roles(void **state)
{
    struct fixture *x = *state;
    node_fixture_stop(&x->node);
    return command_run("rm -r %s", x->directory);
}

static void skip_call(void *arg, const struct mr_recent_call *call)
{
}

/* The last line that a call left says which operation, which role, and what it needs. */
static void not_allowed(enum mr_status status, const char *op, const char *needs, const char *has)
{
    char says[128];
    snprintf(says, sizeof(says), "%s needs a key of the role %s, and the caller's has the role %s", op, needs,
             has);
    node_fixture_refused(status, MR_UNAUTHORIZED, says);
}

static uint64_t rows_of(struct mr_client *client)
{
    struct mr_feature_info *infos;
    uint32_t count;
    assert_int_equal(mr_list(client, NULL, &infos, &count), MR_OK);
    assert_int_equal(count, 1);
    uint64_t rows = infos[0].rows;
    free(infos);
    return rows;
}

TEST(test_roles, set_up_roles, tear_down_roles)
{
    static const uint64_t key = 7, other_key = 8;
    static const float gradient[4] = {1, 1, 1, 1};
    struct fixture *x = *state;
    struct mr_feature feature = mr_feature_table("rows", 4), other = mr_feature_table("more", 4);
    struct mr_client *trainer = client_with(x, "trainer"), *reader = client_with(x, "read_only"),
                     *operator_ = client_with(x, "key");
    struct mr_reply *reply;
    uint32_t table;
    assert_int_equal(mr_create(trainer, NULL, &feature, 1, &table), MR_OK);
    assert_int_equal(mr_lookup(trainer, NULL, table, &key, 1, &reply), MR_OK);
    mr_reply_free(reply);
    assert_int_equal(mr_push_gradients(trainer, NULL, table, &key, 1, 4, gradient), MR_OK);
    assert_int_equal(save_into(trainer, NULL, NULL, NULL), MR_OK);
    not_allowed(restore_from(trainer, NULL, NULL, 0, NULL), "restore", "operator", "trainer");
    not_allowed(mr_freeze(trainer, NULL, MR_FREEZE_ALL), "freeze", "operator", "trainer");
    not_allowed(mr_recent_calls(trainer, NULL, 0, 0, 0, NULL, skip_call, NULL), "recent_calls", "operator",
                "trainer");

    assert_int_equal(mr_lookup(reader, NULL, table, &key, 1, &reply), MR_OK);
    mr_reply_free(reply);
    assert_int_equal(mr_lookup(reader, NULL, table, &other_key, 1, &reply), MR_OK);
    mr_reply_free(reply);
    assert_int_equal(rows_of(reader), 1); /* what a reader looks up makes no row */
    not_allowed(mr_push_gradients(reader, NULL, table, &key, 1, 4, gradient), "push_grad", "trainer",
                "read_only");
    not_allowed(mr_create(reader, NULL, &other, 1, &table), "create", "trainer", "read_only");
    not_allowed(save_into(reader, NULL, NULL, NULL), "save", "trainer", "read_only");
    assert_true(node_fixture_sum(reader, "wire.calls_not_allowed") >= 5);

    assert_int_equal(mr_freeze(operator_, NULL, MR_FREEZE_ALL), MR_OK);
    mr_client_destroy(operator_);
    mr_client_destroy(reader);
    mr_client_destroy(trainer);
}

/* ---- removed keys ---- */

static enum mr_status list(struct mr_client *client)
{
    struct mr_feature_info *infos = NULL;
    uint32_t count;
    const enum mr_status status = mr_list(client, NULL, &infos, &count);
    if (status == MR_OK)
        free(infos);
    return status;
}

/* The client's session ends once the node has read its keys again, and stays so. */
static void loses_its_session(struct mr_client *client)
{
    WAIT_UNTIL(list(client) != MR_OK);
    assert_int_not_equal(list(client), MR_OK);
}

static void write_key_of(struct fixture *x, const char *name, int byte)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/%s", x->directory, name);
    memset(x->keys[NEW], byte, MR_PSK_BYTES);
    write_key(x, path, NEW);
}

TEST(test_removed_keys_end, set_up_operator, tear_down_roles)
{
    struct fixture *x = *state;
    write_key_of(x, "second", 0x61);
    assert_int_equal(command_run("for key in trainer:%s/trainer read_only:%s/read_only trainer:%s/second; do "
                                 "echo \"[node]\nkey = $key\"; done >>%s",
                                 x->directory, x->directory, x->directory, x->node.config),
                     0);
    assert_int_equal(kill(x->node.server.pid, SIGHUP), 0);
    is_taken(x, NEW);
    struct mr_client *operator_ = client_with(x, "key"), *second = client_patient(x, "second", SILENCE_MS),
                     *reader = client_patient(x, "read_only", SILENCE_MS);

    /* a line that is removed */
    assert_int_equal(command_run("sed -i '/second/d' %s", x->node.config), 0);
    assert_int_equal(kill(x->node.server.pid, SIGHUP), 0);
    loses_its_session(second);
    is_refused(x, NEW);
    assert_int_equal(list(operator_), MR_OK);

    /* a file that is removed */
    assert_int_equal(command_run("rm %s/read_only", x->directory), 0);
    assert_int_equal(kill(x->node.server.pid, SIGHUP), 0);
    loses_its_session(reader);
    memset(x->keys[NEW], 0x52, MR_PSK_BYTES);
    is_refused(x, NEW);
    assert_int_equal(list(operator_), MR_OK);

    /* without the last one everybody could do everything: all stays, until a reload that leaves one */
    assert_int_equal(command_run("rm %s/trainer %s", x->directory, x->key_file), 0);
    assert_int_equal(kill(x->node.server.pid, SIGHUP), 0);
    memset(x->keys[NEW], 0x51, MR_PSK_BYTES);
    is_taken(x, NEW);
    write_key(x, x->key_file, OLD);
    assert_int_equal(kill(x->node.server.pid, SIGHUP), 0);
    is_refused(x, NEW);
    assert_int_equal(list(operator_), MR_OK);
    mr_client_destroy(reader);
    mr_client_destroy(second);
    mr_client_destroy(operator_);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    node_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
