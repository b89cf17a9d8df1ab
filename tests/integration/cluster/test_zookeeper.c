/* The coordinator against a real ZooKeeper server: sessions, the map, who leads, and answers that are
 * lost. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <zookeeper/zookeeper.h>

#include "ps/cluster/zookeeper.h"
#include "ps/cluster/zookeeper_calls.h"
#include "dataplane/wire/base/clock.h"
#include "tests/integration/cluster/cut_proxy.h"
#include "tests/integration/cluster/zookeeper_server.h"
#include "tests/test.h"

#define SESSION_MS 1000u
#define LIMIT_S    60
#define PARTITIONS 8u
#define CLUSTERS   2u
#define WAITING    25u /* nodes of each */

/* What a node has heard from its coordinator. */
struct node {
    pthread_mutex_t lock;
    pthread_cond_t heard;
    struct ps_zookeeper *zookeeper;
    uint64_t session, session_us, confirmed_count, confirmed_us, glimpsed_epoch;
    unsigned expired_count, view_count, written_count;
    enum ps_member_written outcome;
    struct ps_cluster_map map;
    struct ps_cluster_catalog catalog;
    struct ps_cluster_report reports[PS_CLUSTER_REGISTERED_MAX];
    struct ps_cluster_node registered[PS_CLUSTER_REGISTERED_MAX];
    uint32_t self;
    uint32_t registered_count;
    bool leads;
    bool forms; /* does what a leader does */
    char trouble[PS_CLUSTER_TEXT_BYTES];
};

static struct zookeeper_server server;
static const bool everybody[PS_CLUSTER_NODES_MAX] = {true, true, true, true};

/* ---- events ---- */

static struct node *hear(void *context)
{
    struct node *n = context;
    pthread_mutex_lock(&n->lock);
    return n;
}

static void heard(struct node *n)
{
    pthread_cond_broadcast(&n->heard);
    pthread_mutex_unlock(&n->lock);
}

static void confirmed(void *context, uint64_t session, uint64_t session_us, uint64_t sent_us)
{
    struct node *n = hear(context);
    n->session_us = session_us;
    n->session = session;
    n->confirmed_us = sent_us;
    n->confirmed_count++;
    heard(n);
}

static void expired(void *context)
{
    struct node *n = hear(context);
    n->expired_count++;
    heard(n);
}

/* As a leader: admits all, and spreads the partitions once three are there, in one change. */
static void lead(const struct node *n, const struct ps_zookeeper_view *view)
{
    static struct ps_cluster_map next;
    bool is_changed = false;
    next = *view->map;
    for (uint32_t i = 0; i < view->registered_count; i++)
        is_changed |= ps_cluster_map_join(&next, &view->registered[i]);
    if (view->registered_count == 3)
        is_changed |= ps_cluster_map_spread(&next, everybody);
    next.epoch = view->map->epoch + 1;
    if (is_changed && n->zookeeper != NULL)
        ps_zookeeper_write_map(n->zookeeper, &next);
}

static void viewed(void *context, const struct ps_zookeeper_view *view)
{
    struct node *n = hear(context);
    n->map = *view->map;
    ps_cluster_catalog_copy(&n->catalog, view->catalog);
    memcpy(n->reports, view->reports, view->registered_count * sizeof(*view->reports));
    n->self = view->self;
    memcpy(n->registered, view->registered, view->registered_count * sizeof(*view->registered));
    n->registered_count = view->registered_count;
    n->leads = view->leads;
    n->view_count++;
    if (view->leads && n->forms)
        lead(n, view);
    heard(n);
}

static void written(void *context, const struct ps_cluster_map *next, enum ps_member_written outcome)
{
    struct node *n = hear(context);
    (void)next;
    n->outcome = outcome;
    n->written_count++;
    heard(n);
}

static void catalog_written(void *context, const struct ps_cluster_catalog *next,
                            enum ps_member_written outcome)
{
    struct node *n = hear(context);
    (void)next;
    n->outcome = outcome;
    n->written_count++;
    heard(n);
}

static void glimpsed(void *context, const struct ps_cluster_map *map)
{
    struct node *n = hear(context);
    n->glimpsed_epoch = map->epoch;
    heard(n);
}

static void troubled(void *context, const char *text)
{
    struct node *n = hear(context);
    (void)snprintf(n->trouble, sizeof(n->trouble), "%s", text ? text : "");
    heard(n);
}

static const struct ps_zookeeper_events events = {.confirmed = confirmed,
                                                  .expired = expired,
                                                  .glimpsed = glimpsed,
                                                  .viewed = viewed,
                                                  .written = written,
                                                  .catalog_written = catalog_written,
                                                  .troubled = troubled};

/* Waits until it holds, and then has the node's lock. */
#define WAIT_FOR(n, condition)                                                                               \
    do {                                                                                                     \
        struct timespec end_;                                                                                \
        (void)clock_gettime(CLOCK_REALTIME, &end_);                                                          \
        end_.tv_sec += LIMIT_S;                                                                              \
        pthread_mutex_lock(&(n)->lock);                                                                      \
        while (!(condition))                                                                                 \
            if (pthread_cond_timedwait(&(n)->heard, &(n)->lock, &end_) != 0)                                 \
                fail_msg("never: " #condition "; trouble: \"%s\"", (n)->trouble);                            \
        pthread_mutex_unlock(&(n)->lock);                                                                    \
    } while (0)

static uint32_t session_ms = SESSION_MS; /* that nodes ask for */
static bool all_form;

static void zookeeper_start(struct node *n, const char *name, uint64_t start_id, uint16_t port,
                            const char *cluster, const char *credentials)
{
    static char servers[8][32];
    static unsigned next;
    char text[PS_CLUSTER_TEXT_BYTES];
    char *const where = servers[next++ % 8];
    (void)snprintf(where, sizeof(servers[0]), "127.0.0.1:%u", port);
    *n = (struct node){.forms = all_form};
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->heard, NULL);
    struct ps_zookeeper_options options = {.servers = where,
                                           .cluster = cluster,
                                           .credentials = credentials,
                                           .session_ms = session_ms,
                                           .self = {.core_count = 1, .start_id = start_id},
                                           .partition_count = PARTITIONS,
                                           .events = &events,
                                           .context = n};
    (void)snprintf(options.self.name, sizeof(options.self.name), "%s", name);
    (void)snprintf(options.self.address, sizeof(options.self.address), "10.0.0.1:%u", (unsigned)start_id);
    assert_int_equal(ps_zookeeper_start(&options, &n->zookeeper, text), MR_OK);
}

static void zookeeper_stop(struct node *n)
{
    ps_zookeeper_stop(n->zookeeper);
    pthread_cond_destroy(&n->heard);
    pthread_mutex_destroy(&n->lock);
}

/* Proposes what follows the map that the node knows, with its own node in it. */
static uint64_t propose(struct node *n, uint32_t by)
{
    pthread_mutex_lock(&n->lock);
    struct ps_cluster_map next = n->map;
    next.epoch++;
    next.last_id += by;
    n->written_count = 0;
    pthread_mutex_unlock(&n->lock);
    ps_zookeeper_write_map(n->zookeeper, &next);
    return next.epoch;
}

/* The same of the catalogue. */
static uint64_t propose_feature(struct node *n, const char *name)
{
    static struct ps_cluster_catalog next;
    pthread_mutex_lock(&n->lock);
    ps_cluster_catalog_copy(&next, &n->catalog);
    next.version++;
    next.features[next.count++] = (struct ps_cluster_feature){
        .id = ++next.last_feature, .since = next.version, .feature = mr_feature_table(name, 8)};
    n->written_count = 0;
    pthread_mutex_unlock(&n->lock);
    ps_zookeeper_write_catalog(n->zookeeper, &next);
    return next.version;
}

static enum ps_member_written outcome_of(struct node *n)
{
    WAIT_FOR(n, n->written_count == 1);
    return n->outcome;
}

static int start_server(void **state)
{
    zookeeper_server_create(&server);
    return 0;
}

static int stop_server(void **state)
{
    zookeeper_server_destroy(&server);
    return 0;
}

/* ---- tests ---- */

TEST(test_a_node_alone)
{
    static struct node a;
    zookeeper_start(&a, "a", 11, server.port, "alone", "");
    WAIT_FOR(&a, a.view_count > 0 && a.leads);
    assert_int_equal(a.map.epoch, 0);
    assert_int_equal(a.map.partition_count, PARTITIONS);
    assert_int_equal(a.registered_count, 1);
    assert_string_equal(a.registered[0].name, "a");
    assert_string_equal(a.registered[0].address, "10.0.0.1:11");
    assert_int_equal(a.registered[0].start_id, 11);
    assert_true(a.registered[0].session == a.session && a.session != 0);

    struct ps_cluster_map next = a.map;
    assert_true(ps_cluster_map_join(&next, &a.registered[0]));
    ps_zookeeper_write_map(a.zookeeper, &next);
    assert_int_equal(outcome_of(&a), PS_WRITTEN);
    WAIT_FOR(&a, a.map.epoch == 1);
    next = a.map;
    assert_true(ps_cluster_map_spread(&next, everybody));
    a.written_count = 0;
    ps_zookeeper_write_map(a.zookeeper, &next);
    assert_int_equal(outcome_of(&a), PS_WRITTEN);
    WAIT_FOR(&a, a.map.epoch == 2);
    assert_memory_equal(a.map.owner, next.owner, sizeof(next.owner));

    /* the lease goes on by itself */
    const uint64_t count = a.confirmed_count, sent_us = a.confirmed_us;
    WAIT_FOR(&a, a.confirmed_count >= count + 3);
    assert_true(a.confirmed_us > sent_us);
    assert_int_equal(a.session_us, SESSION_MS * 1000u);
    assert_string_equal(a.trouble, "");
    zookeeper_stop(&a);

    zookeeper_start(&a, "a", 12, server.port, "alone", ""); /* the session before was closed: no wait */
    WAIT_FOR(&a, a.view_count > 0 && a.leads);
    assert_int_equal(a.map.epoch, 2);
    zookeeper_stop(&a);
}

/* Changes wake all nodes several times, and each write is synced by a majority of the servers. */
TEST(test_rounds_without_news_write_nothing)
{
    static struct node a;
    zookeeper_start(&a, "a", 11, server.port, "quiet", "");
    WAIT_FOR(&a, a.view_count > 0 && a.leads);
    const uint64_t began_us = mr_clock_boot_us(), confirmed = a.confirmed_count;
    for (unsigned round = 0; round < 50; round++) {
        const unsigned views = a.view_count;
        ps_zookeeper_wake(a.zookeeper);
        WAIT_FOR(&a, a.view_count > views);
    }
    const uint64_t took_us = mr_clock_boot_us() - began_us;
    assert_true(a.confirmed_count - confirmed <= 2 + took_us / (SESSION_MS * 1000u / 12));

    const struct ps_cluster_report report = {.features = {.has_catalog = true, .catalog = 7}};
    const uint64_t before = a.confirmed_count;
    ps_zookeeper_report(a.zookeeper, &report);
    WAIT_FOR(&a,
             a.registered_count == 1 && a.reports[0].features.catalog == 7); /* news are written at once */
    assert_true(a.confirmed_count > before);
    zookeeper_stop(&a);
}

#define MANY 12u

/* Each node reads its own entry, and the leader those of all. */
TEST(test_reads_do_not_grow_with_the_square)
{
    static struct node n[MANY];
    char name[8];
    unsigned led = 0, of_all = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "n%u", i);
        zookeeper_start(&n[i], name, i + 1, server.port, "many", "");
    }
    for (uint32_t i = 0; i < MANY; i++)
        WAIT_FOR(&n[i], n[i].registered_count == MANY);
    const uint64_t received = zookeeper_server_says(&server, "Received");
    for (uint32_t i = 0; i < MANY; i++) {
        of_all -= n[i].view_count;
        led -= n[i].leads ? n[i].view_count : 0;
    }
    for (unsigned round = 0; round < 20; round++)
        for (uint32_t i = 0; i < MANY; i++) {
            const unsigned views = n[i].view_count;
            ps_zookeeper_wake(n[i].zookeeper);
            WAIT_FOR(&n[i], n[i].view_count > views);
        }
    for (uint32_t i = 0; i < MANY; i++) {
        of_all += n[i].view_count;
        led += n[i].leads ? n[i].view_count : 0;
    }
    const uint64_t requests = zookeeper_server_says(&server, "Received") - received;
    print_message("%u nodes: %u rounds, %u of the leader, %llu requests\n", MANY, of_all, led,
                  (unsigned long long)requests);
    assert_true(of_all >= 20 * MANY);
    assert_true(requests <= 8u * of_all + MANY * (led + 1u) + 100u); /* pings among them */
    for (uint32_t i = 0; i < MANY; i++)
        zookeeper_stop(&n[i]);
}

/* ---- how many writes come one after the other ----
 *
 * Each write has a depth: 1 more than that of all writes that its node has made, or seen the result of. So
 * the depth of the map is the number of times that the ensemble has to sync its log before the map can be
 * there, however the nodes' requests fall together. Entries that are renewed do not count: they come with
 * time. */

static struct {
    pthread_mutex_t lock;
    bool counts;
    struct {
        const struct ps_zookeeper_link *link;
        unsigned depth;
    } links[3];
    struct {
        char path[256];
        unsigned depth;
    } znodes[16];
} causes = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned *depth_of_link(const struct ps_zookeeper_link *link)
{
    uint32_t i = 0;
    while (causes.links[i].link != NULL && causes.links[i].link != link)
        assert_true(++i < 3);
    if (causes.links[i].link == NULL)
        causes.links[i].depth = 1; /* the session */
    causes.links[i].link = link;
    return &causes.links[i].depth;
}

static unsigned *depth_of_znode(const char *path)
{
    uint32_t i = 0;
    while (causes.znodes[i].path[0] != '\0' && strcmp(causes.znodes[i].path, path) != 0)
        assert_true(++i < 16);
    (void)snprintf(causes.znodes[i].path, sizeof(causes.znodes[i].path), "%s", path);
    return &causes.znodes[i].depth;
}

/* Around a request, which is made alone then. */
static bool cause_begin(void)
{
    pthread_mutex_lock(&causes.lock);
    if (!causes.counts)
        pthread_mutex_unlock(&causes.lock);
    return causes.counts;
}

/* The node knows what it has read, or what stood in the way of its write. */
static void cause_seen(unsigned *node, const char *path)
{
    const unsigned depth = *depth_of_znode(path);
    *node = depth > *node ? depth : *node;
}

static void read_end(const struct ps_zookeeper_link *link, const char *path)
{
    cause_seen(depth_of_link(link), path);
    pthread_mutex_unlock(&causes.lock);
}

static void set_end(const struct ps_zookeeper_link *link, const char *path, bool is_done)
{
    unsigned *node = depth_of_link(link);
    cause_seen(node, path);
    *node += strstr(path, "/nodes/") == NULL;
    if (is_done)
        *depth_of_znode(path) = *node;
    pthread_mutex_unlock(&causes.lock);
}

static void creation_end(const struct ps_zookeeper_link *link, const struct ps_zookeeper_new *znodes,
                         uint32_t count, bool is_done)
{
    unsigned *node = depth_of_link(link);
    for (uint32_t i = 0; i < count; i++)
        cause_seen(node, znodes[i].path);
    ++*node;
    for (uint32_t i = 0; i < count && is_done; i++) {
        char parent[256];
        (void)snprintf(parent, sizeof(parent), "%s", znodes[i].path);
        *strrchr(parent, '/') = '\0';
        *depth_of_znode(znodes[i].path) = *node;
        if (parent[0] != '\0')
            *depth_of_znode(parent) = *node;
    }
    pthread_mutex_unlock(&causes.lock);
}

int __real_ps_zookeeper_create(struct ps_zookeeper_link *l, const struct ps_zookeeper_new *znodes,
                               uint32_t count);
int __wrap_ps_zookeeper_create(struct ps_zookeeper_link *l, const struct ps_zookeeper_new *znodes,
                               uint32_t count);
int __wrap_ps_zookeeper_create(struct ps_zookeeper_link *l, const struct ps_zookeeper_new *znodes,
                               uint32_t count)
{
    const bool counts = cause_begin();
    const int error = __real_ps_zookeeper_create(l, znodes, count);
    if (counts)
        creation_end(l, znodes, count, error == ZOK);
    return error;
}

int __real_ps_zookeeper_set(struct ps_zookeeper_link *l, const char *path, const char *value, int version);
int __wrap_ps_zookeeper_set(struct ps_zookeeper_link *l, const char *path, const char *value, int version);
int __wrap_ps_zookeeper_set(struct ps_zookeeper_link *l, const char *path, const char *value, int version)
{
    const bool counts = cause_begin();
    const int error = __real_ps_zookeeper_set(l, path, value, version);
    if (counts)
        set_end(l, path, error == ZOK);
    return error;
}

int __real_ps_zookeeper_get(struct ps_zookeeper_link *l, const char *path, watcher_fn watch, void *context,
                            char *buffer, int *bytes, struct Stat *stat);
int __wrap_ps_zookeeper_get(struct ps_zookeeper_link *l, const char *path, watcher_fn watch, void *context,
                            char *buffer, int *bytes, struct Stat *stat);
int __wrap_ps_zookeeper_get(struct ps_zookeeper_link *l, const char *path, watcher_fn watch, void *context,
                            char *buffer, int *bytes, struct Stat *stat)
{
    const bool counts = cause_begin();
    const int error = __real_ps_zookeeper_get(l, path, watch, context, buffer, bytes, stat);
    if (counts)
        read_end(l, path);
    return error;
}

int __real_ps_zookeeper_exists(struct ps_zookeeper_link *l, const char *path, watcher_fn watch, void *context,
                               struct Stat *stat);
int __wrap_ps_zookeeper_exists(struct ps_zookeeper_link *l, const char *path, watcher_fn watch, void *context,
                               struct Stat *stat);
int __wrap_ps_zookeeper_exists(struct ps_zookeeper_link *l, const char *path, watcher_fn watch, void *context,
                               struct Stat *stat)
{
    const bool counts = cause_begin();
    const int error = __real_ps_zookeeper_exists(l, path, watch, context, stat);
    if (counts)
        read_end(l, path);
    return error;
}

int __real_ps_zookeeper_children(struct ps_zookeeper_link *l, const char *path, watcher_fn watch,
                                 void *context, struct String_vector *names);
int __wrap_ps_zookeeper_children(struct ps_zookeeper_link *l, const char *path, watcher_fn watch,
                                 void *context, struct String_vector *names);
int __wrap_ps_zookeeper_children(struct ps_zookeeper_link *l, const char *path, watcher_fn watch,
                                 void *context, struct String_vector *names)
{
    const bool counts = cause_begin();
    const int error = __real_ps_zookeeper_children(l, path, watch, context, names);
    if (counts)
        read_end(l, path);
    return error;
}

static unsigned form(const struct zookeeper_server *s, const char *cluster, uint64_t session_us)
{
    static struct node n[3];
    char path[128];
    const uint64_t written = zookeeper_server_says(s, "Zxid");
    memset(causes.links, 0, sizeof(causes.links));
    memset(causes.znodes, 0, sizeof(causes.znodes));
    causes.counts = all_form = true;
    for (uint32_t i = 0; i < 3; i++)
        zookeeper_start(&n[i], (const char *const[]){"a", "b", "c"}[i], i + 1, s->port, cluster, "");
    for (uint32_t i = 0; i < 3; i++)
        WAIT_FOR(&n[i], n[i].map.node_count == 3 && n[i].map.owner[0] != PS_CLUSTER_NO_NODE);
    (void)snprintf(path, sizeof(path), "/millrace/%s/map", cluster);
    pthread_mutex_lock(&causes.lock);
    const unsigned depth = *depth_of_znode(path);
    causes.counts = all_form = false;
    pthread_mutex_unlock(&causes.lock);
    print_message("the map of three nodes takes %u writes one after the other, of %llu in all\n", depth,
                  (unsigned long long)(zookeeper_server_says(s, "Zxid") - written));
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(n[i].session_us == session_us);
        zookeeper_stop(&n[i]);
    }
    return depth;
}

/* ZooKeeper's own default of the tick. A server whose log takes a second for each sync has the map after as
 * many seconds; the lease is not renewed meanwhile. Where sessions are longer than those that were asked for,
 * rounds are rarer, too. */
TEST(test_a_cluster_forms_in_few_writes)
{
    struct zookeeper_server slow;
    zookeeper_server_create_with(&slow, 2000);
    session_ms = 40000;
    assert_true(form(&slow, "forms", 40000000) <= 10);
    session_ms = SESSION_MS;
    (void)form(&slow, "short", 4000000);
    zookeeper_server_destroy(&slow);
}

TEST(test_two_nodes)
{
    static struct node a, b;
    zookeeper_start(&a, "a", 1, server.port, "two", "");
    WAIT_FOR(&a, a.view_count > 0 && a.leads);
    zookeeper_start(&b, "b", 2, server.port, "two", "");
    WAIT_FOR(&b, b.registered_count == 2);
    WAIT_FOR(&a, a.registered_count == 2);
    assert_false(b.leads);

    /* of two changes of one map, one is made */
    propose(&a, 1);
    assert_int_equal(outcome_of(&a), PS_WRITTEN);
    WAIT_FOR(&b, b.glimpsed_epoch == 1);
    WAIT_FOR(&b, b.map.epoch == 1);
    WAIT_FOR(&a, a.map.epoch == 1);
    struct ps_cluster_map old = a.map;
    old.epoch = 1; /* the one that b believes in is not there any more */
    b.written_count = 0;
    ps_zookeeper_write_map(b.zookeeper, &old);
    assert_int_equal(outcome_of(&b), PS_NOT_WRITTEN);
    propose(&a, 10);
    propose(&b, 20);
    const enum ps_member_written of_a = outcome_of(&a), of_b = outcome_of(&b);
    assert_true((of_a == PS_WRITTEN) != (of_b == PS_WRITTEN));
    assert_true((of_a == PS_NOT_WRITTEN) != (of_b == PS_NOT_WRITTEN));
    const uint64_t last_id = of_a == PS_WRITTEN ? 11 : 21;
    WAIT_FOR(&a, a.map.epoch == 2);
    WAIT_FOR(&b, b.map.epoch == 2);
    assert_int_equal(a.map.last_id, last_id);
    assert_int_equal(b.map.last_id, last_id);

    zookeeper_stop(&a); /* b learns of it at once, and leads */
    WAIT_FOR(&b, b.registered_count == 1 && b.leads);
    assert_string_equal(b.registered[0].name, "b");
    zookeeper_stop(&b);
}

/* What a change became is not known when its answer is lost; the next view tells. */
TEST(test_a_lost_answer)
{
    static struct node a;
    struct cut_proxy proxy;
    cut_proxy_start(&proxy, server.port);
    zookeeper_start(&a, "a", 1, proxy.port, "lost", "");
    WAIT_FOR(&a, a.view_count > 0);
    const uint64_t session = a.session;
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        char needle[32];
        (void)snprintf(needle, sizeof(needle), "\"epoch\":%llu,", (unsigned long long)epoch);
        cut_proxy_lose_answer(&proxy, needle);
        assert_int_equal(propose(&a, 1), epoch);
        assert_int_equal(outcome_of(&a), PS_PERHAPS_WRITTEN);
        WAIT_FOR(&a, a.map.epoch == epoch);
        assert_int_equal(cut_proxy_cuts(&proxy), epoch);
    }
    /* the answer to the first entry is lost: it is this session's all the same */
    assert_int_equal(a.expired_count, 0);
    assert_true(a.session == session);
    zookeeper_stop(&a);
    cut_proxy_lose_answer(&proxy, "10.0.0.1:2");
    zookeeper_start(&a, "a", 2, proxy.port, "lost", "");
    WAIT_FOR(&a, a.view_count > 0);
    assert_int_equal(cut_proxy_cuts(&proxy), 4);
    assert_int_equal(a.registered[0].start_id, 2);
    zookeeper_stop(&a);
    cut_proxy_stop(&proxy);
}

TEST(test_a_name_is_one_process_s)
{
    static struct node a, other;
    zookeeper_start(&a, "a", 1, server.port, "names", "");
    WAIT_FOR(&a, a.view_count > 0);
    zookeeper_start(&other, "a", 2, server.port, "names", "");
    WAIT_FOR(&other, other.trouble[0] != '\0');
    assert_non_null(strstr(other.trouble, "another process is node a of cluster names, at 10.0.0.1:1"));
    assert_int_equal(other.view_count, 0);
    assert_int_equal(other.confirmed_count, 0);
    zookeeper_stop(&a);
    WAIT_FOR(&other, other.view_count > 0 && other.trouble[0] == '\0');
    zookeeper_stop(&other);
}

TEST(test_credentials)
{
    static struct node a, stranger;
    zookeeper_start(&a, "a", 1, server.port, "secret", "ads:pony");
    WAIT_FOR(&a, a.view_count > 0);
    zookeeper_start(&stranger, "b", 2, server.port, "secret", "");
    WAIT_FOR(&stranger, strstr(stranger.trouble, "belongs to other credentials") != NULL);
    assert_int_equal(stranger.confirmed_count, 0);
    zookeeper_stop(&stranger);
    zookeeper_start(&stranger, "b", 2, server.port, "secret", "ads:pony");
    WAIT_FOR(&stranger, stranger.registered_count == 2);
    zookeeper_stop(&stranger);
    zookeeper_stop(&a);
}

/* Nodes that have started before the server show what they have as soon as it is there. */
TEST(test_credentials_of_those_who_wait)
{
    static struct node nodes[CLUSTERS * WAITING];
    static const char *const clusters[CLUSTERS] = {"patient", "calm"};
    zookeeper_server_kill(&server);
    for (uint32_t i = 0; i < CLUSTERS * WAITING; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%u", i);
        zookeeper_start(&nodes[i], name, i + 1, server.port, clusters[i % CLUSTERS], "ads:pony");
    }
    zookeeper_server_start(&server);
    for (uint32_t i = 0; i < CLUSTERS * WAITING; i++)
        WAIT_FOR(&nodes[i], nodes[i].registered_count == WAITING);
    for (uint32_t i = 0; i < CLUSTERS * WAITING; i++)
        zookeeper_stop(&nodes[i]);
}

TEST(test_the_catalogue)
{
    static struct node a, b;
    zookeeper_start(&a, "a", 1, server.port, "features", "");
    WAIT_FOR(&a, a.view_count > 0);
    zookeeper_start(&b, "b", 2, server.port, "features", "");
    WAIT_FOR(&b, b.registered_count == 2);
    WAIT_FOR(&a, a.registered_count == 2);
    assert_int_equal(a.catalog.version, 0);
    assert_false(a.reports[0].features.has_catalog);

    /* of two changes of one catalogue, one is made */
    propose_feature(&a, "of_a");
    propose_feature(&b, "of_b");
    const enum ps_member_written of_a = outcome_of(&a), of_b = outcome_of(&b);
    assert_true((of_a == PS_WRITTEN) != (of_b == PS_WRITTEN));
    assert_true((of_a == PS_NOT_WRITTEN) != (of_b == PS_NOT_WRITTEN));
    WAIT_FOR(&a, a.catalog.version == 1);
    WAIT_FOR(&b, b.catalog.version == 1);
    assert_string_equal(a.catalog.features[0].feature.name, of_a == PS_WRITTEN ? "of_a" : "of_b");
    assert_memory_equal(&a.catalog.features[0], &b.catalog.features[0], sizeof(a.catalog.features[0]));
    propose_feature(&b, "second");
    assert_int_equal(outcome_of(&b), PS_WRITTEN);
    WAIT_FOR(&a, a.catalog.version == 2 && a.catalog.count == 2);

    /* whoever asks reads what a node says of its work */
    const struct ps_cluster_report report = {.features = {.has_catalog = true,
                                                          .catalog = 2,
                                                          .failed = 1,
                                                          .failed_status = MR_OUT_OF_MEMORY,
                                                          .failed_text = "no room"}};
    ps_zookeeper_report(a.zookeeper, &report);
    WAIT_FOR(&a, a.reports[a.self].features.has_catalog);
    assert_int_equal(a.reports[a.self].features.catalog, 2);
    ps_zookeeper_read_all(b.zookeeper);
    ps_zookeeper_wake(b.zookeeper);
    WAIT_FOR(&b, b.reports[1 - b.self].features.failed == 1);
    assert_string_equal(b.reports[1 - b.self].features.failed_text, "no room");
    assert_false(b.reports[b.self].features.has_catalog);
    zookeeper_stop(&a);
    zookeeper_stop(&b);
}

TEST(test_a_lost_answer_about_the_catalogue)
{
    static struct node a;
    struct cut_proxy proxy;
    cut_proxy_start(&proxy, server.port);
    zookeeper_start(&a, "a", 1, proxy.port, "lost_features", "");
    WAIT_FOR(&a, a.view_count > 0);
    for (uint64_t version = 1; version <= 3; version++) {
        char name[16], needle[32];
        (void)snprintf(name, sizeof(name), "f%llu", (unsigned long long)version);
        (void)snprintf(needle, sizeof(needle), "\"version\":%llu,", (unsigned long long)version);
        cut_proxy_lose_answer(&proxy, needle);
        assert_int_equal(propose_feature(&a, name), version);
        assert_int_equal(outcome_of(&a), PS_PERHAPS_WRITTEN);
        WAIT_FOR(&a, a.catalog.version == version);
        assert_int_equal(cut_proxy_cuts(&proxy), version);
    }
    assert_int_equal(a.catalog.count, 3);
    zookeeper_stop(&a);
    cut_proxy_stop(&proxy);
}

static void ignore_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    (void)handle;
    (void)type;
    (void)path;
    (void)context;
}

/* As an operator may do by hand. */
static void overwrite(const char *path, const char *text)
{
    char where[32];
    int error = ZCONNECTIONLOSS;
    (void)snprintf(where, sizeof(where), "127.0.0.1:%u", server.port);
    zhandle_t *handle = zookeeper_init(where, ignore_event, 1000, NULL, NULL, ZOO_NO_LOG_CLIENTENV);
    assert_non_null(handle);
    for (const time_t end = time(NULL) + LIMIT_S; error != ZOK && time(NULL) < end;)
        error = zoo_set(handle, path, text, (int)strlen(text), -1);
    assert_int_equal(error, ZOK);
    (void)zookeeper_close(handle);
}

TEST(test_what_is_no_map)
{
    static struct node a;
    zookeeper_start(&a, "a", 1, server.port, "broken", "");
    WAIT_FOR(&a, a.view_count > 0);
    propose(&a, 1);
    assert_int_equal(outcome_of(&a), PS_WRITTEN);
    overwrite("/millrace/broken/map", "{\"format\":7}");
    WAIT_FOR(&a, a.trouble[0] != '\0');
    assert_non_null(strstr(a.trouble, "/millrace/broken/map in ZooKeeper is no map that this version reads: "
                                      "format: is 7, and this version of millraced ("));
    zookeeper_stop(&a);

    zookeeper_start(&a, "a", 2, server.port, "torn", "");
    WAIT_FOR(&a, a.view_count > 0);
    propose_feature(&a, "user");
    assert_int_equal(outcome_of(&a), PS_WRITTEN);
    overwrite("/millrace/torn/catalog", "{\"format\":1,");
    WAIT_FOR(&a, a.trouble[0] != '\0');
    assert_non_null(strstr(a.trouble,
                           "/millrace/torn/catalog in ZooKeeper is no catalogue that this version reads: "
                           "not JSON"));
    zookeeper_stop(&a);
}

/* A node that is cut off: the others see that its session has died, and it learns that when it is back. */
TEST(test_a_session_dies)
{
    static struct node a, b;
    struct cut_proxy proxy;
    cut_proxy_start(&proxy, server.port);
    zookeeper_start(&a, "a", 1, proxy.port, "cut", "");
    WAIT_FOR(&a, a.view_count > 0 && a.leads);
    zookeeper_start(&b, "b", 2, server.port, "cut", "");
    WAIT_FOR(&b, b.registered_count == 2);
    WAIT_FOR(&a, a.registered_count == 2);
    const uint64_t session = a.session;
    cut_proxy_hold(&proxy, true);
    WAIT_FOR(&b, b.registered_count == 1 && b.leads);
    const uint64_t confirmed_us = a.confirmed_us;
    assert_true(mr_clock_boot_us() - confirmed_us >= SESSION_MS * 1000u / 2); /* its lease ended before */
    assert_int_equal(a.expired_count, 0);
    cut_proxy_hold(&proxy, false);
    WAIT_FOR(&a, a.expired_count == 1);
    WAIT_FOR(&b, b.registered_count == 2);
    WAIT_FOR(&a, a.session != session && a.registered_count == 2 && !a.leads);
    zookeeper_stop(&a);
    zookeeper_stop(&b);
    cut_proxy_stop(&proxy);
}

/* No server is in reach; then one is; then it is gone for a while, and knows everything when it is back. */
TEST(test_the_server_goes_and_comes)
{
    static struct node a;
    zookeeper_server_kill(&server);
    zookeeper_start(&a, "a", 1, server.port, "away", "");
    WAIT_FOR(&a, strstr(a.trouble, "no ZooKeeper server of cluster.zookeeper = 127.0.0.1:") != NULL);
    zookeeper_server_start(&server);
    WAIT_FOR(&a, a.view_count > 0 && a.trouble[0] == '\0');
    propose(&a, 5);
    assert_int_equal(outcome_of(&a), PS_WRITTEN);

    zookeeper_server_kill(&server);
    zookeeper_server_start(&server);
    const unsigned views = a.view_count;
    WAIT_FOR(&a, a.view_count >= views + 2);
    assert_int_equal(a.map.last_id, 5);
    zookeeper_stop(&a);
}

int main(void)
{
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    zookeeper_server_require();
    return tests_run(start_server, stop_server);
}
