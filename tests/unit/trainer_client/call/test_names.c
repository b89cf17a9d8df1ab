/* Servers by name: several addresses of which not all answer, names that do not resolve, and name servers
 * that do not answer. The resolver is the test's own for names that end in ".test". */
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/udp/udp_socket.h"
#include "tests/test.h"
#include "tests/unit/trainer_client/fake_cluster.h"
#include "tests/unit/trainer_client/live_node.h"
#include "dataplane/rpc/millrace_rpc.h"
#include "trainer_client/call/client.h"
#include "trainer_client/call/names.h"
#include "trainer_client/millrace.h"
#include "trainer_client/millrace_observe.h"

enum { DIM = 2, NODES = 3 };

/* ---- the resolver ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_slow; /* "slow.test" waits until it is not */
    uint32_t waiting, ended;
} slow = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static atomic_uint moving_asked;

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);

static void wait_while_slow(void)
{
    pthread_mutex_lock(&slow.lock);
    slow.waiting++;
    pthread_cond_broadcast(&slow.changed);
    while (slow.is_slow)
        pthread_cond_wait(&slow.changed, &slow.lock);
    slow.waiting--;
    slow.ended++;
    pthread_cond_broadcast(&slow.changed);
    pthread_mutex_unlock(&slow.lock);
}

static void slow_begins(void)
{
    slow.is_slow = true;
    slow.ended = 0;
}

static void slow_wait_asked(void)
{
    pthread_mutex_lock(&slow.lock);
    while (slow.waiting == 0)
        pthread_cond_wait(&slow.changed, &slow.lock);
    pthread_mutex_unlock(&slow.lock);
}

static void slow_ends(void)
{
    pthread_mutex_lock(&slow.lock);
    slow.is_slow = false;
    pthread_cond_broadcast(&slow.changed);
    while (slow.waiting > 0 || slow.ended == 0)
        pthread_cond_wait(&slow.changed, &slow.lock);
    pthread_mutex_unlock(&slow.lock);
}

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    const bool is_ours = host != NULL && strstr(host, ".test") != NULL;
    if (!is_ours || (hints->ai_flags & AI_NUMERICHOST) != 0)
        return __real_getaddrinfo(host, port, hints, out);
    if (strcmp(host, "nosuch.test") == 0)
        return EAI_NONAME;
    const char *first = "127.0.0.1", *second = NULL;
    if (strcmp(host, "slow.test") == 0)
        wait_while_slow();
    if (strcmp(host, "two.test") == 0 || strcmp(host, "nobody.test") == 0)
        first = "127.0.0.6";
    if (strcmp(host, "own.test") == 0)
        first = "127.0.1.1";
    if (strcmp(host, "two.test") == 0)
        second = "127.0.0.1";
    if (strcmp(host, "nobody.test") == 0)
        second = "127.0.0.7";
    if (strcmp(host, "moving.test") == 0 && atomic_fetch_add(&moving_asked, 1) == 0)
        first = "127.0.0.6";
    int failed = __real_getaddrinfo(first, port, hints, out);
    if (failed == 0 && second != NULL)
        failed = __real_getaddrinfo(second, port, hints, &(*out)->ai_next);
    return failed;
}

/* ---- one server ---- */

static enum mr_status client_create(const char *servers, uint32_t connect_ms, struct mr_client **client,
                                    char error[1024])
{
    const struct mr_client_options options = {
        .server = servers, .deadline_ms = 60000, .connect_ms = connect_ms};
    *client = NULL;
    return mr_client_create(&options, client, error, 1024);
}

/* Until it says what it should: what is found out within so short a time is not known. */
static void client_must_say(const char *servers, uint32_t connect_ms, const char *says, const char *and_says)
{
    struct mr_client *client;
    char error[1024] = "";
    for (uint32_t i = 0; i < 100 && (strstr(error, says) == NULL || strstr(error, and_says) == NULL); i++)
        assert_int_equal(client_create(servers, connect_ms, &client, error), MR_UNREACHABLE);
    if (strstr(error, says) == NULL || strstr(error, and_says) == NULL)
        fail_msg("%s: %s", servers, error);
}

static void client_must_connect(const char *servers, struct mr_client **client)
{
    char error[1024] = "";
    if (client_create(servers, 60000, client, error) != MR_OK)
        fail_msg("%s: %s", servers, error);
}

/* Nothing listens at the first address: the host says so. */
TEST(test_next_address_when_refused)
{
    struct live_node *node = live_node_start_new(2);
    struct mr_client *client;
    char servers[64];
    (void)snprintf(servers, sizeof(servers), "two.test:%u", node->base_port);
    client_must_connect(servers, &client);
    for (uint32_t core = 0; core < 2; core++)
        assert_int_equal(mr_echo(client, NULL, core, NULL, 0, NULL), MR_OK);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* Somebody has the first address, and does not answer. */
TEST(test_next_address_when_silent)
{
    struct live_node *node = live_node_start_new(2);
    const struct mr_udp_options options = {.buffer_bytes = 0};
    const uint8_t ip[4] = {127, 0, 0, 6};
    struct mr_udp_socket silent;
    struct mr_address address;
    struct mr_client *client;
    char servers[64], error[256];
    mr_address_from_ipv4(ip, &address);
    address.port = node->base_port;
    assert_int_equal(mr_udp_bind(&address, &options, &silent, error, sizeof(error)), MR_OK);
    (void)snprintf(servers, sizeof(servers), "two.test:%u", node->base_port);
    client_must_connect(servers, &client);
    for (uint32_t core = 0; core < 2; core++)
        assert_int_equal(mr_echo(client, NULL, core, NULL, 0, NULL), MR_OK);
    mr_client_destroy(client);
    mr_udp_close(&silent);
    live_node_destroy(node);
}

TEST(test_no_address_answers)
{
    struct live_node *node = live_node_start_new(1);
    char servers[64];
    (void)snprintf(servers, sizeof(servers), "nobody.test:%u", node->base_port);
    client_must_say(servers, 300, "127.0.0.6:", "127.0.0.7:");
    live_node_destroy(node);
}

TEST(test_name_server_is_silent)
{
    slow_begins();
    client_must_say("slow.test:7700", 100, "slow.test:7700: the name server has not answered yet", "");
    slow_ends();
}

/* ---- several servers ---- */

static struct fake_cluster *cluster_start(void)
{
    const struct mr_feature table = mr_feature_table("t", DIM);
    return fake_cluster_start(NODES, &table);
}

/* Servers that cannot be found or reached are passed over while one answers. */
TEST(test_bad_seeds_are_passed_over)
{
    static const char *const bad[] = {"nosuch.test:7700", "255.255.255.255:7700", "no address:0",
                                      "127.0.0.1:0"};
    struct fake_cluster *cluster = cluster_start();
    const char *servers = fake_cluster_servers(cluster);
    struct mr_client *client;
    char list[256], error[1024] = "";
    for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        (void)snprintf(list, sizeof(list), "%s,%s", bad[i], servers);
        client_must_connect(list, &client);
        assert_int_equal(mr_client_core_count(client), 4);
        mr_client_destroy(client);
        (void)snprintf(list, sizeof(list), "%s,%s", servers, bad[i]);
        client_must_connect(list, &client);
        mr_client_destroy(client);
    }
    assert_int_equal(client_create("nosuch.test:7700,255.255.255.255:7700", 20000, &client, error),
                     MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "nosuch.test: the name does not resolve"));
    assert_non_null(strstr(error, "255.255.255.255:7700: no way there"));
    client_must_say("nosuch.test:7700,127.0.0.9:9", 200, "127.0.0.9:9 core 0: nothing listens there",
                    "nosuch.test: the name does not resolve");
    fake_cluster_destroy(cluster);
}

TEST(test_slow_seed_is_not_waited_for)
{
    struct fake_cluster *cluster = cluster_start();
    struct mr_client *client;
    char list[256];
    slow_begins();
    (void)snprintf(list, sizeof(list), "slow.test:7700,%s", fake_cluster_servers(cluster));
    client_must_connect(list, &client);
    mr_client_destroy(client);
    slow_ends();
    fake_cluster_destroy(cluster);
}

/* ---- the map's addresses ---- */

TEST(test_map_has_names)
{
    struct fake_cluster *cluster = cluster_start();
    struct mr_client *client;
    char servers[32];
    atomic_store(&cluster->hosts[0], "localhost");
    atomic_store(&cluster->hosts[1], "two.test");
    atomic_store(&moving_asked, 0);
    atomic_store(&cluster->hosts[2], "moving.test"); /* it is elsewhere when it is looked up again */
    (void)snprintf(servers, sizeof(servers), "127.0.0.1:%u", atomic_load(&cluster->ports[0]));
    client_must_connect(servers, &client);
    assert_true(atomic_load(&moving_asked) > 1);
    for (uint32_t core = 0; core < mr_client_core_count(client); core++)
        assert_int_equal(mr_echo(client, NULL, core, NULL, 0, NULL), MR_OK);
    mr_client_destroy(client);
    fake_cluster_destroy(cluster);
}

TEST(test_map_has_unknown_name)
{
    struct fake_cluster *cluster = cluster_start();
    struct mr_client *client;
    char first[32];
    (void)snprintf(first, sizeof(first), "127.0.0.1:%u", atomic_load(&cluster->ports[0]));
    atomic_store(&cluster->hosts[1], "nosuch.test");
    client_must_say(first, 300, "node-1 is not found", "nosuch.test: the name does not resolve");
    atomic_store(&cluster->hosts[1], "255.255.255.255");
    client_must_say(first, 300, "node-1 is not found", "no way there");
    client_must_connect(fake_cluster_servers(cluster), &client); /* all were named, as they are reached */
    assert_int_equal(mr_client_core_count(client), 4);
    mr_client_destroy(client);
    fake_cluster_destroy(cluster);
}

static enum mr_status look_up_one(struct mr_client *client, uint32_t table, uint64_t key)
{
    const struct mr_options brief = {.deadline_ms = 300};
    struct mr_reply *reply;
    const enum mr_status status = mr_lookup(client, &brief, table, &key, 1, &reply);
    if (status == MR_OK)
        mr_reply_free(reply);
    return status;
}

static uint32_t place_of(const struct fake_cluster *cluster, uint64_t key)
{
    const struct mr_feature *table = &cluster->nodes[0]->table->feature;
    return fake_cluster_owner(cluster, mr_partition_of(mr_key_hash(key, table->seed)));
}

/* A node is started elsewhere, under a name that is not known here: calls for its keys say so, and those for
 * others go on by the map that names it. */
TEST(test_an_unknown_name_is_that_node_s_matter)
{
    const struct mr_feature table = mr_feature_table("t", DIM);
    struct fake_cluster *cluster = cluster_start();
    struct mr_client *client;
    uint64_t its = 0, other = 0;
    uint32_t number, tries = 0;
    client_must_connect(fake_cluster_servers(cluster), &client);
    assert_int_equal(mr_create(client, NULL, &table, 1, &number), MR_OK);
    while (place_of(cluster, its) != 1)
        its++;
    while (place_of(cluster, other) != 0)
        other++;
    fake_node_kill(cluster->nodes[1]);
    atomic_store(&cluster->hosts[1], "nosuch.test");
    fake_cluster_restart_elsewhere(cluster, 1);
    do { /* until another member has been asked, and the name looked up */
        assert_int_not_equal(look_up_one(client, number, its), MR_OK);
        assert_true(tries++ < 100);
    } while (strstr(mr_last_error(), "node node-1 is not found from here") == NULL ||
             strstr(mr_last_error(), "nosuch.test: the name does not resolve") == NULL);
    fake_cluster_swap(cluster, 0, 2);
    for (tries = 0; look_up_one(client, number, other) != MR_OK; tries++)
        assert_true(tries < 100);
    assert_int_not_equal(look_up_one(client, number, its), MR_OK);
    atomic_store(&cluster->hosts[1], NULL);
    fake_cluster_grant_again(cluster, 0);
    while (look_up_one(client, number, its) != MR_OK)
        ;
    mr_client_destroy(client);
    fake_cluster_destroy(cluster);
}

/* While a name of the map is looked up, calls to nodes that are known go on. */
TEST(test_calls_go_on_during_a_look_up)
{
    struct fake_cluster *cluster = cluster_start();
    char servers[32], error[1024] = "";
    struct mr_client_options options = {.server = servers, .any_node = true};
    struct mr_client *client;
    slow_begins();
    atomic_store(&cluster->hosts[1], "slow.test");
    (void)snprintf(servers, sizeof(servers), "127.0.0.1:%u", atomic_load(&cluster->ports[0]));
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    slow_wait_asked();
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(mr_echo(client, NULL, 0, NULL, 0, NULL), MR_OK);
    assert_int_equal(mr_client_core_count(client), 1);
    slow_ends();
    while (mr_client_core_count(client) < 4)
        assert_int_equal(mr_echo(client, NULL, 0, NULL, 0, NULL), MR_OK);
    mr_client_destroy(client);
    fake_cluster_destroy(cluster);
}

/* ---- remote calls ---- */

struct worker {
    struct mr_rpc_options options;
    const char *name;
    uint32_t rank;
    enum mr_status status;
    struct mr_rpc *rpc;
    char error[1024];
};

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    w->status = mr_rpc_init(w->name, w->rank, 2, &w->options, &w->rpc, w->error, sizeof(w->error));
    if (w->status == MR_OK)
        (void)mr_rpc_shutdown(w->rpc, 0);
    return NULL;
}

static uint16_t free_port(void)
{
    const struct mr_udp_options options = {.buffer_bytes = 0};
    const struct mr_address any = {.port = 0};
    struct mr_udp_socket s;
    struct mr_address local;
    char error[256];
    assert_int_equal(mr_udp_bind(&any, &options, &s, error, sizeof(error)), MR_OK);
    mr_udp_local(&s, &local);
    mr_udp_close(&s);
    return local.port;
}

/* Two workers meet whose machines know the rendezvous by different addresses. */
static void meet(const char *first, const char *second)
{
    struct worker workers[2] = {{.name = "a", .rank = 0}, {.name = "b", .rank = 1}};
    const char *const hosts[2] = {first, second};
    char rendezvous[2][64];
    pthread_t threads[2];
    const uint16_t port = free_port();
    for (uint32_t i = 0; i < 2; i++) {
        (void)snprintf(rendezvous[i], sizeof(rendezvous[i]), "%s:%u", hosts[i], port);
        workers[i].options = (struct mr_rpc_options){.rendezvous = rendezvous[i], .init_timeout_ms = 20000};
        assert_int_equal(pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (uint32_t i = 0; i < 2; i++) {
        if (workers[i].status != MR_OK)
            fail_msg("%s: %s", hosts[i], workers[i].error);
        mr_rpc_destroy(workers[i].rpc);
    }
}

TEST(test_workers_meet_by_names)
{
    meet("127.0.0.1", "two.test"); /* nobody is at the first of them */
    meet("own.test", "127.0.0.1"); /* the machine's own name, which it knows by 127.0.1.1 alone */
    meet("localhost", "127.0.0.1");
}

/* ---- the names themselves ---- */

TEST(test_more_names_than_are_kept)
{
    struct mrc_names *names = mrc_names_create(STDERR_FILENO);
    struct mrc_addresses found;
    char text[64], error[256];
    assert_non_null(names);
    assert_int_equal(mrc_names_find(names, "[::1]:7", &found, error, sizeof(error)), MR_OK);
    assert_int_equal(found.count, 1);
    assert_int_equal(mrc_names_find(names, ":7", &found, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_int_equal(mrc_names_ended(names), 0);
    mrc_names_release(names);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    names = mrc_names_create(pipes[1]);
    for (uint32_t i = 0; i < 3000; i++) {
        uint64_t news;
        (void)snprintf(text, sizeof(text), "n%u.test:7", i);
        assert_int_equal(mrc_names_find(names, text, &found, error, sizeof(error)), MR_BUSY);
        assert_int_equal(read(pipes[0], &news, sizeof(news)), sizeof(news));
        assert_int_equal(mrc_names_ended(names), i + 1);
        assert_int_equal(mrc_names_find(names, text, &found, error, sizeof(error)), MR_OK);
        assert_int_equal(found.count, 1);
        assert_int_equal(found.list[0].port, 7);
    }
    mrc_names_release(names);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}
