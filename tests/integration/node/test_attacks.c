/* A node against clients that have a key of a lower role and do what they can with it: what others have
 * stays, and their calls go through. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/wire/format/packet.h"
#include "millrace_admin.h"
#include "tests/checkpoint_calls.h"
#include "tests/command.h"
#include "tests/integration/attacks.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

#define KEY_BYTE(role) ((uint8_t)(0x21 + (role))) /* its key has no other */

enum role { OPERATOR, TRAINER, READ_ONLY, ROLES };
static const char *const role_names[ROLES] = {"operator", "trainer", "read_only"};

struct fixture {
    struct node_fixture node;
    char directory[32], listed[48];
    char key_files[ROLES][64];
    char settings[NODE_SETTINGS_MAX][128];
};

static void write_key(const char *path, uint8_t byte)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < MR_PSK_BYTES; i++)
        fprintf(file, "%02x", byte);
    assert_int_equal(fclose(file), 0);
}

/* A node with a key for each role, and these settings. */
static void attacks_start(struct fixture *x, const char *const *more)
{
    const char *settings[NODE_SETTINGS_MAX] = {NULL};
    uint32_t count = 0;
    memcpy(x->directory, "/tmp/millrace-keys-XXXXXX", sizeof "/tmp/millrace-keys-XXXXXX");
    assert_non_null(mkdtemp(x->directory));
    snprintf(x->listed, sizeof(x->listed), "%s/listed", x->directory);
    assert_int_equal(mkdir(x->listed, 0700), 0);
    for (uint32_t role = 0; role < ROLES; role++) {
        snprintf(x->key_files[role], sizeof(x->key_files[role]), "%s/%s", x->directory, role_names[role]);
        write_key(x->key_files[role], KEY_BYTE(role));
        snprintf(x->settings[count], sizeof(x->settings[count]), "node.key=%s:%s", role_names[role],
                 x->key_files[role]);
        count++;
    }
    snprintf(x->settings[count], sizeof(x->settings[count]), "checkpoint.allow=%s", x->listed);
    count++;
    for (uint32_t i = 0; i < count; i++)
        settings[i] = x->settings[i];
    settings[count++] = "cores.adaptive_idle_us=50";
    for (; *more != NULL; more++)
        settings[count++] = *more;
    node_fixture_start(&x->node, 1, settings);
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    node_fixture_stop(&x->node);
    return command_run("rm -r %s", x->directory);
}

static struct mr_client *client_of(const struct fixture *x, enum role role)
{
    char error[512] = "";
    struct mr_client *client = NULL;
    struct mr_client_options options = {.server = x->node.address,
                                        .key_file = x->key_files[role],
                                        .connect_ms = NODE_READY_MS,
                                        .deadline_ms = NODE_READY_MS};
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

/* ---- saves ---- */

static int set_up_saves(void **state)
{
    static struct fixture x;
    static const char *const settings[] = {"checkpoint.every_s=0", "checkpoint.keep=2",
                                           "checkpoint.keep_trainers=2", "checkpoint.trainer_saves=10", NULL};
    *state = &x;
    attacks_start(&x, settings);
    return 0;
}

static bool is_there(const char *directory, uint64_t id)
{
    char path[128];
    struct stat found;
    snprintf(path, sizeof(path), "%s/ckpt-%llu/MANIFEST", directory, (unsigned long long)id);
    return stat(path, &found) == 0;
}

/* The checkpoints of a directory, as "1 2 7 ". */
static const char *list(const char *directory)
{
    static char text[128];
    int at = 0;
    text[0] = '\0';
    for (uint64_t id = 1; id < 32; id++)
        if (is_there(directory, id))
            at += snprintf(text + at, sizeof(text) - (size_t)at, "%u ", (unsigned)id);
    return text;
}

static void note_ended(void *arg, const struct mr_save_info *save)
{
    *(bool *)arg = save->state == MR_SAVE_ENDED;
    if (save->state == MR_SAVE_ENDED)
        assert_int_equal(save->status, MR_OK);
}

/* Old checkpoints are removed before a save is said to have ended. */
static void wait_for_save(struct mr_client *client, uint64_t number)
{
    bool has_ended = false;
    WAIT_UNTIL(mr_checkpoint_info(client, NULL, number, NULL, note_ended, &has_ended) != MR_OK || has_ended);
    assert_true(has_ended);
}

static void note_state(void *arg, const struct mr_save_info *save)
{
    *(enum mr_save_state *)arg = save->state;
}

static enum mr_save_state state_of(struct mr_client *client, uint64_t number)
{
    enum mr_save_state state = MR_SAVE_ENDED;
    assert_int_equal(mr_checkpoint_info(client, NULL, number, NULL, note_state, &state), MR_OK);
    return state;
}

static void save_to(struct mr_client *client, const char *directory)
{
    const struct mr_save_options save = {.bytes = sizeof(save), .directory = directory};
    uint64_t number = 0;
    if (mr_save(client, NULL, &save, NULL, &number) != MR_OK)
        fail_msg("%s", mr_last_error());
    wait_for_save(client, number);
}

static void attacks_push(struct mr_client *client, uint32_t table, float value)
{
    static const uint64_t key = 7;
    const float gradient[4] = {value, value, value, value};
    assert_int_equal(mr_push_gradients(client, NULL, table, &key, 1, 4, gradient), MR_OK);
}

static float value_of(struct mr_client *client, uint32_t table)
{
    static const uint64_t key = 7;
    struct mr_reply *reply;
    assert_int_equal(mr_lookup(client, NULL, table, &key, 1, &reply), MR_OK);
    const float value = ((const float *)mr_reply_tensor(reply, 0)->data)[0];
    mr_reply_free(reply);
    return value;
}

TEST(what_trainers_save_displaces_nothing_else, set_up_saves, tear_down)
{
    struct fixture *x = *state;
    struct mr_client *operator_ = client_of(x, OPERATOR), *trainer = client_of(x, TRAINER);
    struct mr_feature feature = mr_feature_table("rows", 4);
    const char *own = x->node.checkpoints;
    char below[96];
    uint32_t table;
    uint64_t number = 0;
    feature.learning_rate = 1;
    assert_int_equal(mr_create(trainer, NULL, &feature, 1, &table), MR_OK);
    attacks_push(trainer, table, -1);
    const float good = value_of(trainer, table);
    save_to(operator_, NULL);
    save_to(operator_, NULL);
    for (int i = 0; i < 5; i++) {
        attacks_push(trainer, table, 1e6f);
        save_to(trainer, NULL);
    }
    assert_string_equal(list(own), "1 2 3 7 "); /* 3 has not reached its least age: a burst leaves it */

    /* Directories of its own do not help. */
    const struct mr_save_options elsewhere = {.bytes = sizeof(elsewhere), .directory = below};
    snprintf(below, sizeof(below), "%s/new", x->listed);
    node_fixture_refused(mr_save(trainer, NULL, &elsewhere, NULL, &number), MR_UNAUTHORIZED,
                         "to save there needs an operator's key");
    snprintf(below, sizeof(below), "%s/ckpt-1", own);
    node_fixture_refused(mr_save(trainer, NULL, &elsewhere, NULL, &number), MR_UNAUTHORIZED,
                         "to save there needs an operator's key");
    save_to(operator_, x->listed);
    for (int i = 0; i < 3; i++)
        save_to(trainer, x->listed);
    assert_string_equal(list(x->listed), "1 2 4 ");

    /* What a trainer waits for at a step that does not come lets the operator's go first, which is not the
     * trainer's to cancel. */
    const struct mr_save_options at_step = {.bytes = sizeof(at_step), .step = 1000, .trainers = 1};
    const struct mr_save_options far = {.bytes = sizeof(far), .step = 1000000, .trainers = 1};
    uint64_t waits;
    assert_int_equal(mr_save(trainer, NULL, &far, NULL, &waits), MR_OK);
    assert_int_equal(mr_save(operator_, NULL, &at_step, NULL, &number), MR_OK);
    assert_int_equal(state_of(operator_, number), MR_SAVE_WAITS_FOR_STEP);
    assert_int_equal(state_of(operator_, waits), MR_SAVE_QUEUED);
    node_fixture_refused(mr_checkpoint_cancel(trainer, NULL, number), MR_UNAUTHORIZED,
                         "to cancel it needs an operator's key");
    assert_int_equal(mr_checkpoint_cancel(operator_, NULL, number), MR_OK);
    WAIT_UNTIL(state_of(operator_, waits) != MR_SAVE_QUEUED);
    assert_int_equal(state_of(operator_, waits), MR_SAVE_WAITS_FOR_STEP);
    node_fixture_refused(mr_save(trainer, NULL, &at_step, NULL, &number), MR_CHECKPOINT_RUNNING,
                         "waits for a step already");
    assert_int_equal(mr_checkpoint_cancel(trainer, NULL, waits), MR_OK);

    /* Names make a checkpoint of another folder, for which the same holds. */
    static const char *const names[] = {"rows"};
    const struct mr_save_options some = {
        .bytes = sizeof(some), .directory = below, .names = names, .name_count = 1};
    node_fixture_refused(mr_save(trainer, NULL, &some, NULL, &number), MR_UNAUTHORIZED,
                         "to save there needs an operator's key");
    save_to(trainer, NULL);
    assert_string_equal(list(own), "1 2 3 8 ");
    node_fixture_refused(mr_save(trainer, NULL, NULL, NULL, &number), MR_UNAUTHORIZED,
                         "trainers may ask for 10 saves in an hour");
    save_to(operator_, NULL);
    assert_string_equal(list(own), "1 3 8 9 ");

    assert_int_equal(restore_from(operator_, NULL, NULL, 1, NULL), MR_OK);
    assert_float_equal(value_of(operator_, table), good, 0);
    mr_client_destroy(trainer);
    mr_client_destroy(operator_);
}

static int set_up_schedule(void **state)
{
    static struct fixture x;
    static const char *const settings[] = {"checkpoint.every_s=1", "checkpoint.trainer_saves=1024", NULL};
    *state = &x;
    attacks_start(&x, settings);
    return 0;
}

static void note_automatic(void *arg, const struct mr_save_info *save)
{
    *(bool *)arg |= save->is_automatic;
}

/* A trainer that saves all the time does not postpone the node's own saves. */
TEST(the_node_saves_by_itself_beside_trainers, set_up_schedule, tear_down)
{
    struct fixture *x = *state;
    struct mr_client *trainer = client_of(x, TRAINER);
    struct mr_feature feature = mr_feature_table("rows", 4);
    uint32_t table;
    assert_int_equal(mr_create(trainer, NULL, &feature, 1, &table), MR_OK);
    for (bool is_there = false; !is_there;) {
        const struct mr_save_options save = {.bytes = sizeof(save), .queue = true};
        uint64_t number = 0;
        attacks_push(trainer, table, 1);
        assert_int_equal(mr_save(trainer, NULL, &save, NULL, &number), MR_OK);
        wait_for_save(trainer, number);
        assert_int_equal(mr_checkpoint_info(trainer, NULL, 0, NULL, note_automatic, &is_there), MR_OK);
    }
    mr_client_destroy(trainer);
}

/* ---- memory for messages, sessions, tables ---- */

enum { CALLS = 50, KEYS = 4096, SESSIONS = 64 };

static int compare_us(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* Looks up and pushes many rows again and again, and prints how long that took: each call takes several
 * packets both ways. */
static void train(struct mr_client *client, uint32_t table, const char *when)
{
    static uint64_t keys[KEYS], took_us[CALLS];
    static float gradients[4 * KEYS];
    struct mr_reply *reply;
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i * 7919;
    for (uint32_t i = 0; i < CALLS; i++) {
        const uint64_t began_us = clock_us();
        assert_int_equal(mr_lookup(client, NULL, table, keys, KEYS, &reply), MR_OK);
        mr_reply_free(reply);
        assert_int_equal(mr_push_gradients(client, NULL, table, keys, KEYS, 4, gradients), MR_OK);
        took_us[i] = clock_us() - began_us;
    }
    qsort(took_us, CALLS, sizeof(*took_us), compare_us);
    print_message("lookup and push of %d rows, %s: median %u us, 9 of 10 within %u us\n", KEYS, when,
                  (unsigned)took_us[CALLS / 2], (unsigned)took_us[CALLS * 9 / 10]);
}

static void note_under_way(void *ready, uint32_t datagrams)
{
    if (write(*(int *)ready, "", 1) != 1)
        _exit(1);
}

static _Noreturn void attack_all_sessions(const struct attack *attack)
{
    attack_sessions(attack, 2 * SESSIONS);
}

/* Begins an attack with the key of a role, in a process of its own, and waits until it is under way. */
static pid_t begin_attack(enum role role, void (*run)(const struct attack *attack))
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        uint8_t psk[MR_PSK_BYTES];
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        memset(psk, KEY_BYTE(role), sizeof(psk));
        run(&(struct attack){.ip = NETNS_SERVER_IPV4,
                             .port = 7700,
                             .psk = psk,
                             .under_way = note_under_way,
                             .context = &ends[1]});
        _exit(1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return pid;
}

static void end_attack(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int set_up_limits(void **state)
{
    static struct fixture x;
    static const char *const settings[] = {"checkpoint.every_s=0",      "memory.messages_mib=64",
                                           "transport.sessions_max=64", "transport.sessions_per_address=64",
                                           "memory.trainer_tables=200", NULL};
    *state = &x;
    attacks_start(&x, settings);
    return 0;
}

static uint32_t make_table(struct mr_client *client, const char *name)
{
    struct mr_feature feature = mr_feature_table(name, 4);
    uint32_t table;
    assert_int_equal(mr_create(client, NULL, &feature, 1, &table), MR_OK);
    return table;
}

TEST(trainers_go_on_while_a_reader_takes_memory, set_up_limits, tear_down)
{
    struct fixture *x = *state;
    struct mr_client *trainer = client_of(x, TRAINER), *operator_ = client_of(x, OPERATOR);
    const uint32_t table = make_table(trainer, "rows");
    train(trainer, table, "alone");
    const uint64_t before = node_fixture_sum(operator_, "wire.shares_used_up");
    const pid_t attacker = begin_attack(READ_ONLY, attack_messages);
    WAIT_UNTIL(node_fixture_sum(operator_, "wire.shares_used_up") != before);
    train(trainer, table, "beside a reader that holds memory for messages");
    train(operator_, table, "the same, an operator");
    end_attack(attacker);
    mr_client_destroy(operator_);
    mr_client_destroy(trainer);
}

TEST(operators_go_on_while_a_trainer_takes_memory, set_up_limits, tear_down)
{
    struct fixture *x = *state;
    struct mr_client *operator_ = client_of(x, OPERATOR);
    const uint32_t table = make_table(operator_, "rows");
    const pid_t attacker = begin_attack(TRAINER, attack_messages);
    WAIT_UNTIL(node_fixture_sum(operator_, "wire.shares_used_up") > 0);
    train(operator_, table, "an operator beside a trainer that holds memory for messages");
    end_attack(attacker);
    mr_client_destroy(operator_);
}

TEST(higher_roles_come_in_while_others_take_sessions, set_up_limits, tear_down)
{
    struct fixture *x = *state;
    const pid_t reader = begin_attack(READ_ONLY, attack_all_sessions);
    struct mr_client *trainer = client_of(x, TRAINER), *operator_ = client_of(x, OPERATOR);
    assert_true(node_fixture_sum(operator_, "wire.sessions_refused") > 0);
    const uint32_t table = make_table(trainer, "rows");
    train(trainer, table, "beside a reader that holds sessions");
    mr_client_destroy(operator_);
    const pid_t other = begin_attack(TRAINER, attack_all_sessions);
    operator_ = client_of(x, OPERATOR);
    train(operator_, table, "an operator beside trainers that hold sessions");
    end_attack(other);
    end_attack(reader);
    mr_client_destroy(operator_);
    mr_client_destroy(trainer);
}

TEST(trainers_make_so_many_tables, set_up_limits, tear_down)
{
    struct fixture *x = *state;
    struct mr_client *trainer = client_of(x, TRAINER), *operator_ = client_of(x, OPERATOR);
    const uint32_t table = make_table(trainer, "rows");
    char name[32];
    uint32_t id, made = 1;
    enum mr_status status = MR_OK;
    train(trainer, table, "alone");
    while (status == MR_OK && made < 300) {
        snprintf(name, sizeof(name), "t%u", made);
        const struct mr_feature feature = mr_feature_table(name, 4);
        status = mr_create(trainer, NULL, &feature, 1, &id);
        made += status == MR_OK;
    }
    node_fixture_refused(status, MR_UNAUTHORIZED,
                         "trainers create tables and variables until there are 200 (memory.trainer_tables)");
    assert_int_equal(made, 200);
    assert_int_equal(make_table(trainer, "rows"), table); /* what is there is no new one */
    (void)make_table(operator_, "operator");
    train(trainer, table, "beside 200 tables");
    mr_client_destroy(operator_);
    mr_client_destroy(trainer);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    node_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
