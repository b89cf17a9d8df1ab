/* millrace doctor: checks this machine, and names the command that fixes each problem. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/base/plural.h"
#include "millrace_observe.h"
#include "tools/commands.h"
#include "tools/connection.h"
#include "tools/doctor/doctor_facts.h"
#include "tools/doctor/doctor_rules.h"
#include "tools/doctor/doctor_store.h"
#include "tools/doctor/doctor_zookeeper.h"
#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/base/printable.h"

static void print_text(const struct doctor_findings *findings)
{
    for (uint32_t i = 0; i < findings->count; i++) {
        struct doctor_finding f = findings->list[i];
        (void)printf("%-8s %-12s %s\n", doctor_level_name(f.level), f.check,
                     mr_make_printable(f.what, sizeof(f.what)));
        if (f.fix[0] != '\0')
            (void)printf("%-8s %-12s fix: %s\n", "", "", mr_make_printable(f.fix, sizeof(f.fix)));
    }
    (void)printf("%u ok, %u advice, %u problem%s\n", doctor_count(findings, DOCTOR_OK),
                 doctor_count(findings, DOCTOR_ADVICE), doctor_count(findings, DOCTOR_PROBLEM),
                 mr_plural(doctor_count(findings, DOCTOR_PROBLEM)));
}

static void print_json(const struct doctor_findings *findings)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < findings->count; i++) {
        const struct doctor_finding *f = &findings->list[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "check", f->check, "level",
                                              doctor_level_name(f->level), "what", f->what, "mend", f->fix));
    }
    char *text = json_dumps(list, JSON_INDENT(2));
    if (text)
        (void)puts(text);
    free(text);
    json_decref(list);
}

static enum mr_status ask_nodes(struct mr_client *client, struct doctor_nodes *nodes)
{
    static struct mr_core_state states[MR_CLIENT_CORES_MAX];
    struct mr_core_place place;
    const enum mr_status status = mr_heartbeat(client, NULL, states);
    const uint32_t cores = status == MR_OK ? mr_client_core_count(client) : 0;
    for (uint32_t core = 0; core < cores; core++) {
        const bool is_member = mr_client_core_place(client, core, &place);
        if (is_member ? place.core == 0 : core == 0)
            doctor_nodes_add(nodes, is_member ? place.node : "", &states[core]);
    }
    return status;
}

/* What a cluster says of itself, and the name of the node that a loss is about. */
struct cluster_asked {
    struct mr_cluster_state state;
    uint32_t count;
    char names[MR_CLUSTER_NODES_MAX][MR_CLUSTER_NAME_BYTES];
};

static void note_member(void *arg, const struct mr_cluster_member *node)
{
    struct cluster_asked *asked = arg;
    if (asked->count < MR_CLUSTER_NODES_MAX)
        (void)snprintf(asked->names[asked->count++], MR_CLUSTER_NAME_BYTES, "%s", node->name);
}

static enum mr_status ask_cluster(struct mr_client *client, const char *server,
                                  struct doctor_findings *findings)
{
    static struct cluster_asked asked;
    const enum mr_status status = mr_cluster(client, NULL, &asked.state, note_member, &asked);
    const bool has_name = asked.state.tolerance_node < asked.count;
    if (status == MR_OK)
        doctor_judge_tolerance(server, &asked.state, has_name ? asked.names[asked.state.tolerance_node] : "",
                               findings);
    return status;
}

/* From the counters of a server's cores. */
struct doctor_counted {
    struct doctor_port port;
    struct tool_log_state log;
};

static void note_counter(void *arg, const char *name, uint64_t value)
{
    struct doctor_counted *counted = arg;
    doctor_port_counter(&counted->port, name, value);
    tool_log_counter(&counted->log, name, value);
}

/* 0, or the exit code after a line about why the server could not be asked. */
static int ask_server(const struct tool_connection *connection, struct doctor_findings *findings)
{
    struct doctor_counted counted = {.port = {.server = connection->server, .carrier = UINT64_MAX}};
    struct doctor_port *port = &counted.port;
    struct doctor_nodes nodes = {.server = connection->server};
    struct mr_client *client;
    int exit_code = tool_connect("millrace doctor", connection, &client);
    if (exit_code != 0)
        return exit_code;
    enum mr_status status = ask_nodes(client, &nodes);
    port->core_count = mr_client_core_count(client);
    for (uint32_t core = 0; core < port->core_count && status == MR_OK; core++)
        status = mr_stats(client, NULL, core, note_counter, &counted);
    if (status == MR_OK) {
        doctor_judge_log(connection->server, &counted.log, findings);
        doctor_judge_nodes(&nodes, findings);
        status = ask_cluster(client, connection->server, findings);
    }
    if (status == MR_OK)
        doctor_judge_port(port, findings);
    else
        exit_code = tool_call_failed("millrace doctor", status);
    mr_client_destroy(client);
    return exit_code;
}

struct place {
    const char *url, *credentials; /* url NULL: none is to be asked */
    const char *zookeeper;         /* NULL: likewise */
    const char *log;               /* directory; NULL: likewise */
};

/* Returns the exit code. */
static int examine(const char *root, const struct tool_connection *connection, const struct place *store,
                   struct doctor_facts *facts, struct doctor_findings *findings)
{
    doctor_read(root, facts);
    doctor_judge(facts, findings);
    if (store->url) {
        struct doctor_store asked;
        doctor_ask_store(store->url, store->credentials, &asked);
        doctor_judge_store(&asked, findings);
    }
    if (store->log) {
        struct ps_log_disk disk;
        const int error = ps_log_disk_measure(store->log, &disk);
        doctor_judge_log_disk(store->log, &disk, -error, findings);
    }
    if (store->zookeeper) {
        struct doctor_zookeeper asked;
        doctor_ask_zookeeper(store->zookeeper, &asked);
        doctor_judge_zookeeper(&asked, findings);
    }
    int exit_code = connection->server ? ask_server(connection, findings) : 0;
    if (connection->json)
        print_json(findings);
    else
        print_text(findings);
    if (exit_code != 0)
        return exit_code;
    return doctor_count(findings, DOCTOR_PROBLEM) > 0 ? CLI_EXIT_FAILED : 0;
}

int tool_doctor(int argc, char **argv)
{
    struct tool_connection connection = {.deadline_ms = 2000};
    const char *root = "";
    struct place store = {.credentials = ""};
    const struct cli_option options[] = {
        {"server", CLI_STRING, &connection.server, "HOST:PORT,...",
         "also ask this server, or the nodes of this cluster, how packets reach its cores, and what carries "
         "them"},
        {"key-file", CLI_STRING, &connection.key_file, "FILE",
         "file with the pre-shared key, 64 hex digits; default: $MILLRACE_KEY_FILE, else no key"},
        {"store", CLI_STRING, &store.url, "URL",
         "also check this store of checkpoints, as checkpoint.remote names it: a file is written there, and "
         "removed"},
        {"store-credentials", CLI_STRING, &store.credentials, "FILE",
         "file with the store's keys, as checkpoint.remote_credentials; default: from the environment"},
        {"log", CLI_STRING, &store.log, "DIR",
         "also check this directory on this machine, as checkpoint.directory with durability = log: what it "
         "is\n"
         "on, how long a flush takes there, and its room; a file is written there, and removed"},
        {"zookeeper", CLI_STRING, &store.zookeeper, "HOST:PORT,...",
         "also ask these servers, as cluster.zookeeper names them, whether they serve"},
        {"json", CLI_FLAG, &connection.json, NULL, "print one JSON list instead of text"},
        {"root", CLI_STRING, &root, "DIR",
         "check another machine, from copies of its /proc and /sys in DIR/proc and DIR/sys"},
    };
    const struct cli_usage usage = {
        .program = "millrace doctor",
        .synopsis = "[options]",
        .summary = "Checks what the server and its clients need on this machine: memory, CPUs, NICs,\n"
                   "limits. Each finding is ok, advice (it works, but could be faster) or a problem (it\n"
                   "does not work); advice and problems come with the command that fixes them. The exit\n"
                   "code is 1 if there is a problem.\n"
                   "\n"
                   "  millrace doctor\n"
                   "  millrace doctor --server 10.0.0.1:7700\n"
                   "  millrace doctor --log /var/lib/millrace\n"
                   "  millrace doctor --store 'hdfs://namenode:9870/millrace/ads?user.name=ads'",
        CLI_OPTIONS(options),
    };
    int exit_code;
    (void)cli_parse(&usage, argc, argv, NULL);
    struct doctor_facts *facts = malloc(sizeof(*facts));
    struct doctor_findings *findings = malloc(sizeof(*findings));
    if (!facts || !findings)
        exit_code = cli_fail("millrace doctor", "no memory");
    else
        exit_code = examine(root, &connection, &store, facts, findings);
    free(facts);
    free(findings);
    return exit_code;
}
