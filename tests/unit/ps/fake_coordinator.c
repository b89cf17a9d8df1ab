#include "fake_coordinator.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "ps/cluster/zookeeper.h"
#include "ps/config/config.h"

static struct ps_zookeeper {
    struct ps_zookeeper_options options;
    atomic_bool runs;
    bool writes;
    struct ps_cluster_map next;
} fake;
static struct ps_cluster_map map;
static struct ps_cluster_node other;
static struct ps_cluster_catalog catalog;
static uint64_t free_mib_max = UINT64_MAX;
/* What the node's control thread asks for. */
static struct {
    pthread_mutex_t lock;
    bool writes;
    struct ps_cluster_catalog next;
    struct ps_cluster_report report;
} asked = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- what the node calls ---- */

enum mr_status ps_zookeeper_start(const struct ps_zookeeper_options *options, struct ps_zookeeper **out,
                                  char text[PS_CLUSTER_TEXT_BYTES])
{
    text[0] = '\0';
    fake = (struct ps_zookeeper){.options = *options, .runs = true};
    asked.writes = false;
    asked.report = (struct ps_cluster_report){0};
    *out = &fake;
    return MR_OK;
}

void ps_zookeeper_write_map(struct ps_zookeeper *z, const struct ps_cluster_map *next)
{
    z->next = *next;
    z->writes = true;
}

void ps_zookeeper_write_catalog(struct ps_zookeeper *z, const struct ps_cluster_catalog *next)
{
    (void)z;
    pthread_mutex_lock(&asked.lock);
    ps_cluster_catalog_copy(&asked.next, next);
    asked.writes = true;
    pthread_mutex_unlock(&asked.lock);
}

void ps_zookeeper_report(struct ps_zookeeper *z, const struct ps_cluster_report *report)
{
    (void)z;
    pthread_mutex_lock(&asked.lock);
    asked.report = *report;
    pthread_mutex_unlock(&asked.lock);
}

void ps_zookeeper_wake(struct ps_zookeeper *z)
{
    (void)z;
}

void ps_zookeeper_read_all(struct ps_zookeeper *z)
{
    (void)z;
}

void ps_zookeeper_stop(struct ps_zookeeper *z)
{
    if (z != NULL)
        z->runs = false;
}

/* ---- what the test calls ---- */

void fake_coordinator_configure(struct ps_config *config, uint32_t nodes)
{
    (void)snprintf(config->cluster_name, sizeof(config->cluster_name), "ads");
    (void)snprintf(config->cluster_node, sizeof(config->cluster_node), "a");
    (void)snprintf(config->cluster_zookeeper, sizeof(config->cluster_zookeeper), "nowhere:1");
    (void)snprintf(config->port_ipv4, sizeof(config->port_ipv4), "10.0.0.1/24");
    config->cluster_nodes = nodes;
}

void fake_coordinator_reset(void)
{
    ps_cluster_map_init(&map, MR_PARTITION_COUNT);
    other = (struct ps_cluster_node){.core_count = 0};
    memset(&catalog, 0, sizeof(catalog));
}

struct ps_cluster_map *fake_coordinator_map(void)
{
    return &map;
}

void fake_coordinator_set_other(const char *name)
{
    other =
        (struct ps_cluster_node){.core_count = 1, .start_id = 77, .session = 78, .version = mr_version_own()};
    (void)snprintf(other.name, sizeof(other.name), "%s", name != NULL ? name : "");
    (void)snprintf(other.address, sizeof(other.address), "10.0.0.9:7700");
}

void fake_coordinator_set_room(uint64_t max)
{
    free_mib_max = max;
}

void fake_coordinator_set_session(uint32_t ms)
{
    other.session_ms = ms;
}

void fake_coordinator_set_settings(uint32_t take_over_s, uint32_t replication)
{
    other.take_over_s = take_over_s;
    other.replication = replication;
}

void fake_coordinator_create(const char *name)
{
    catalog = (struct ps_cluster_catalog){.version = 1, .last_feature = 1, .count = 1};
    catalog.features[0] = (struct ps_cluster_feature){
        .id = 1, .is_final = true, .since = 1, .feature = mr_feature_table(name, 4)};
}

static void write_next(void)
{
    const bool fits = fake.next.epoch == map.epoch + 1;
    if (!fake.writes)
        return;
    fake.writes = false;
    if (fits)
        map = fake.next;
    const struct ps_cluster_map next = fake.next;
    fake.options.events->written(fake.options.context, &next, fits ? PS_WRITTEN : PS_NOT_WRITTEN);
}

struct ps_cluster_report fake_coordinator_report(void)
{
    pthread_mutex_lock(&asked.lock);
    const struct ps_cluster_report report = asked.report;
    pthread_mutex_unlock(&asked.lock);
    return report;
}

static void write_next_catalog(void)
{
    static struct ps_cluster_catalog next;
    pthread_mutex_lock(&asked.lock);
    const bool writes = asked.writes;
    if (writes)
        ps_cluster_catalog_copy(&next, &asked.next);
    asked.writes = false;
    pthread_mutex_unlock(&asked.lock);
    const bool fits = next.version == catalog.version + 1;
    if (!writes)
        return;
    if (fits)
        ps_cluster_catalog_copy(&catalog, &next);
    fake.options.events->catalog_written(fake.options.context, &next, fits ? PS_WRITTEN : PS_NOT_WRITTEN);
}

void fake_coordinator_round(uint64_t session, uint64_t sent_us)
{
    struct ps_cluster_report reports[2] = {fake_coordinator_report(),
                                           {.room = {.is_known = true, .free_mib = 1000}}};
    if (reports[0].room.free_mib > free_mib_max)
        reports[0].room.free_mib = free_mib_max;
    const struct ps_zookeeper_events *events = fake.options.events;
    struct ps_cluster_node registered[2] = {fake.options.self, other};
    registered[0].session = session;
    registered[0].session_ms = FAKE_SESSION_US / 1000u;
    events->confirmed(fake.options.context, session, FAKE_SESSION_US, sent_us);
    write_next();
    write_next_catalog();
    const struct ps_zookeeper_view view = {.map = &map,
                                           .catalog = &catalog,
                                           .registered = registered,
                                           .reports = reports,
                                           .registered_count = other.name[0] != '\0' ? 2 : 1,
                                           .leads = true,
                                           .is_whole = true};
    events->viewed(fake.options.context, &view);
}

void fake_coordinator_settle(uint64_t session)
{
    do
        fake_coordinator_round(session, mr_clock_boot_us());
    while (fake.writes);
}

void fake_coordinator_expire(void)
{
    fake.options.events->expired(fake.options.context);
}

bool fake_coordinator_is_left(void)
{
    return !fake.runs;
}
