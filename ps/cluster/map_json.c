#include "ps/cluster/map_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/capability.h"
#include "ps/cluster/json_reader.h"

/* ---- writing ---- */

static json_t *process_json(const struct ps_cluster_node *node)
{
    json_t *process = json_pack("{s:s, s:I, s:o}", "address", node->address, "cores",
                                (json_int_t)node->core_count, "start_id", ps_json_id_of(node->start_id));
    if (node->is_spare)
        (void)json_object_set_new(process, "spare", json_true());
    if (node->host[0] != '\0')
        (void)json_object_set_new(process, "host", json_string(node->host));
    if (node->session_ms != 0)
        (void)json_object_set_new(process, "session_ms", json_integer((json_int_t)node->session_ms));
    if (node->version.text[0] != '\0') {
        (void)json_object_set_new(process, "capabilities", ps_json_id_of(node->version.capabilities));
        (void)json_object_set_new(process, "version", json_string(node->version.text));
    }
    return process;
}

static json_t *nodes_json(const struct ps_cluster_map *map)
{
    json_t *nodes = json_array();
    for (uint32_t i = 0; i < map->node_count; i++) {
        json_t *node = process_json(&map->nodes[i]);
        (void)json_object_set_new(node, "name", json_string(map->nodes[i].name));
        (void)json_object_set_new(node, "session", ps_json_id_of(map->nodes[i].session));
        if (map->drained[i])
            (void)json_object_set_new(node, "drained", json_true());
        (void)json_array_append_new(nodes, node);
    }
    return nodes;
}

static bool is_same_run(const struct ps_cluster_map *map, uint32_t a, uint32_t b)
{
    return map->owner[a] == map->owner[b] && map->grant[a] == map->grant[b] &&
           map->restored_in[a] == map->restored_in[b] && map->restored_from[a] == map->restored_from[b] &&
           map->backup[a] == map->backup[b] && map->backup_grant[a] == map->backup_grant[b] &&
           map->in_sync[a] == map->in_sync[b];
}

static json_t *owners_json(const struct ps_cluster_map *map)
{
    json_t *owners = json_array();
    uint32_t count;
    for (uint32_t first = 0; first < map->partition_count; first += count) {
        const uint32_t owner = map->owner[first];
        for (count = 1; first + count < map->partition_count && is_same_run(map, first, first + count);)
            count++;
        if (owner == PS_CLUSTER_NO_NODE)
            continue;
        json_t *run =
            json_pack("{s:I, s:I, s:s, s:I}", "first", (json_int_t)first, "count", (json_int_t)count, "node",
                      map->nodes[owner].name, "grant", (json_int_t)map->grant[first]);
        if (map->restored_in[first] != 0) {
            (void)json_object_set_new(run, "restored_in", json_integer((json_int_t)map->restored_in[first]));
            (void)json_object_set_new(run, "restored_from",
                                      json_integer((json_int_t)map->restored_from[first]));
        }
        if (map->backup[first] != PS_CLUSTER_NO_NODE)
            (void)json_object_set_new(run, "backup",
                                      json_pack("[I, I, i]", (json_int_t)map->backup[first],
                                                (json_int_t)map->backup_grant[first], map->in_sync[first]));
        (void)json_array_append_new(owners, run);
    }
    return owners;
}

static json_t *moves_json(const struct ps_cluster_map *map)
{
    json_t *moves = json_array();
    for (uint32_t i = 0; i < map->move_count; i++) {
        const struct ps_cluster_move *move = &map->moves[i];
        (void)json_array_append_new(
            moves, json_pack("{s:I, s:I, s:I, s:s, s:s, s:I}", "id", (json_int_t)move->id, "first",
                             (json_int_t)move->first, "count", (json_int_t)move->count, "from",
                             map->nodes[move->from].name, "to", map->nodes[move->to].name, "mib_s",
                             (json_int_t)move->mib_s));
    }
    return moves;
}

static json_t *checkpoint_json(uint64_t id, uint64_t step)
{
    return json_pack("{s:I, s:I}", "id", (json_int_t)id, "step", (json_int_t)step);
}

char *ps_cluster_map_json(const struct ps_cluster_map *map)
{
    json_t *root =
        json_pack("{s:i, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "format", ps_cluster_format(map->needs),
                  "epoch", (json_int_t)map->epoch, "last_id", (json_int_t)map->last_id, "partitions",
                  (json_int_t)map->partition_count, "nodes", nodes_json(map), "owners", owners_json(map),
                  "moves", moves_json(map), "committed", checkpoint_json(map->committed, map->committed_step),
                  "cut", checkpoint_json(map->cut, map->cut_step));
    if (map->last_cut != 0)
        (void)json_object_set_new(root, "last_cut", json_integer((json_int_t)map->last_cut));
    if (map->needs != 0)
        (void)json_object_set_new(root, "needs", ps_json_id_of(map->needs));
    if (map->take_over_s != 0)
        (void)json_object_set_new(root, "take_over_s", json_integer((json_int_t)map->take_over_s));
    if (map->replication > 1)
        (void)json_object_set_new(root, "replication", json_integer((json_int_t)map->replication));
    if (map->answers_wait)
        (void)json_object_set_new(root, "answers_wait", json_true());
    if (map->balances_when_asked)
        (void)json_object_set_new(root, "balances_when_asked", json_true());
    if (map->balances)
        (void)json_object_set_new(root, "balance",
                                  json_pack("{s:I}", "mib_s", (json_int_t)map->balance_mib_s));
    return ps_json_print(root);
}

static void put_features(json_t *root, const struct ps_cluster_features_report *report)
{
    if (report->has_catalog)
        (void)json_object_set_new(root, "catalog", json_integer((json_int_t)report->catalog));
    if (report->failed != 0)
        (void)json_object_set_new(root, "failed",
                                  json_pack("{s:I, s:I, s:s}", "since", (json_int_t)report->failed, "status",
                                            (json_int_t)report->failed_status, "text", report->failed_text));
}

static void put_cut(json_t *root, const struct ps_cluster_cut_report *cut)
{
    if (cut->id == 0)
        return;
    (void)json_object_set_new(root, "cut",
                              json_pack("{s:I, s:I, s:s, s:o, s:o, s:o}", "id", (json_int_t)cut->id, "status",
                                        (json_int_t)cut->status, "text", cut->text, "step",
                                        json_sprintf("%" PRIu64, cut->step), "hash_high",
                                        json_sprintf("%016" PRIx64, cut->hash_high), "hash_low",
                                        json_sprintf("%016" PRIx64, cut->hash_low)));
}

static void put_part(json_t *root, const struct ps_cluster_report *report)
{
    if (report->part.id != 0)
        (void)json_object_set_new(root, "part",
                                  json_pack("{s:I, s:b, s:I}", "id", (json_int_t)report->part.id, "waits",
                                            report->part.waits, "bytes", (json_int_t)report->part.bytes));
    if (report->wants_cut)
        (void)json_object_set_new(root, "wants_cut", json_true());
    if (report->trainer_cut != 0)
        (void)json_object_set_new(root, "trainer_cut", json_integer((json_int_t)report->trainer_cut));
}

static void put_move(json_t *root, const struct ps_cluster_move_report *move)
{
    if (move->id != 0)
        (void)json_object_set_new(root, "move",
                                  json_pack("{s:I, s:b, s:I, s:I, s:I, s:I}", "id", (json_int_t)move->id,
                                            "ending", move->is_ending, "rows", (json_int_t)move->rows,
                                            "bytes", (json_int_t)move->bytes, "left_bytes",
                                            (json_int_t)move->left_bytes, "us", (json_int_t)move->us));
}

static void put_room(json_t *root, const struct ps_cluster_room_report *room)
{
    if (!room->is_known)
        return;
    json_t *object =
        json_pack("{s:I, s:I}", "free", (json_int_t)room->free_mib, "used", (json_int_t)room->used_mib);
    if (room->failed != 0) {
        (void)json_object_set_new(object, "failed", json_integer((json_int_t)room->failed));
        (void)json_object_set_new(object, "text", json_string(room->failed_text));
    }
    if (room->refuses_copies)
        (void)json_object_set_new(object, "copies", json_false());
    (void)json_object_set_new(root, "mib", object);
}

char *ps_cluster_node_json(const struct ps_cluster_node *node, const struct ps_cluster_report *report)
{
    json_t *root = process_json(node);
    (void)json_object_set_new(root, "format", json_integer(PS_CLUSTER_FORMAT_1));
    if (node->replication != 0)
        (void)json_object_set_new(root, "wants",
                                  json_pack("{s:I, s:I, s:b}", "take_over_s", (json_int_t)node->take_over_s,
                                            "replication", (json_int_t)node->replication, "answers_wait",
                                            node->answers_wait));
    put_features(root, &report->features);
    put_cut(root, &report->cut);
    put_part(root, report);
    put_move(root, &report->move);
    put_room(root, &report->room);
    return ps_json_print(root);
}

/* ---- reading ---- */

static uint32_t node_named(struct ps_json_reader *r, const struct ps_cluster_map *map, const json_t *object,
                           const char *key)
{
    char text[PS_CLUSTER_NAME_BYTES] = "";
    ps_json_name(r, object, key, text);
    const uint32_t node = ps_cluster_map_find(map, text);
    if (node == PS_CLUSTER_NO_NODE)
        ps_json_fault(r, "is none of the map's nodes", key);
    return node;
}

static void read_process(struct ps_json_reader *r, const json_t *object, struct ps_cluster_node *node)
{
    ps_json_name(r, object, "address", node->address);
    node->core_count = (uint32_t)ps_json_number(r, object, "cores", UINT32_MAX);
    node->start_id = ps_json_id(r, object, "start_id");
    node->is_spare = json_is_true(json_object_get(object, "spare"));
    if (json_object_get(object, "host") != NULL)
        ps_json_text(r, object, "host", node->host, sizeof(node->host));
    if (json_object_get(object, "session_ms") != NULL)
        node->session_ms = (uint32_t)ps_json_number(r, object, "session_ms", UINT32_MAX);
    if (json_object_get(object, "version") == NULL) /* a version before 0.3.0 wrote it */
        return;
    node->version.capabilities = ps_json_id(r, object, "capabilities");
    ps_json_text(r, object, "version", node->version.text, sizeof(node->version.text));
}

static void read_nodes(struct ps_json_reader *r, const json_t *root, struct ps_cluster_map *map)
{
    const json_t *nodes = ps_json_list(r, root, "nodes", PS_CLUSTER_NODES_MAX);
    const size_t count = json_array_size(nodes);
    for (size_t i = 0; i < count && r->is_good; i++) {
        const json_t *object = json_array_get(nodes, i);
        struct ps_cluster_node node = {0};
        ps_json_name(r, object, "name", node.name);
        read_process(r, object, &node);
        node.session = ps_json_id(r, object, "session");
        if (ps_cluster_map_find(map, node.name) != PS_CLUSTER_NO_NODE)
            ps_json_fault(r, "is there twice", "name");
        map->drained[map->node_count] = json_is_true(json_object_get(object, "drained"));
        map->nodes[map->node_count++] = node;
    }
}

/* The partitions of an entry: at least one, and none above the last. */
static void read_range(struct ps_json_reader *r, const json_t *object, const struct ps_cluster_map *map,
                       uint32_t *first, uint32_t *count)
{
    *first = (uint32_t)ps_json_number(r, object, "first", map->partition_count);
    *count = (uint32_t)ps_json_number(r, object, "count", map->partition_count - *first);
    if (*count == 0)
        ps_json_fault(r, "is no number that it can be", "count");
}

/* Of an entry's partitions: none, or [its place among the nodes, the number of the assignment, in sync]: the
 * largest map is to fit a znode. */
struct backup {
    uint32_t node;
    uint64_t grant;
    bool is_in_sync;
};

static struct backup read_backup(struct ps_json_reader *r, const json_t *run,
                                 const struct ps_cluster_map *map, uint32_t owner)
{
    const json_t *object = json_object_get(run, "backup");
    struct backup backup = {.node = PS_CLUSTER_NO_NODE};
    if (object == NULL)
        return backup;
    uint64_t words[3];
    for (size_t i = 0; i < 3; i++) {
        const json_t *word = json_array_get(object, i);
        words[i] = json_is_integer(word) && json_integer_value(word) >= 0 ? (uint64_t)json_integer_value(word)
                                                                          : UINT64_MAX;
    }
    if (words[0] >= map->node_count || words[0] == owner || words[1] == 0 || words[1] > map->last_id ||
        words[2] > 1) {
        ps_json_fault(r, "is not another node, the number of an assignment, and 0 or 1", "backup");
        return backup;
    }
    return (struct backup){.node = (uint32_t)words[0], .grant = words[1], .is_in_sync = words[2] == 1};
}

static void read_owners(struct ps_json_reader *r, const json_t *root, struct ps_cluster_map *map)
{
    const json_t *owners = ps_json_list(r, root, "owners", PS_CLUSTER_PARTITIONS_MAX);
    const size_t entries = json_array_size(owners);
    for (size_t i = 0; i < entries && r->is_good; i++) {
        const json_t *object = json_array_get(owners, i);
        uint32_t first;
        uint32_t count;
        read_range(r, object, map, &first, &count);
        const uint32_t node = node_named(r, map, object, "node");
        const uint64_t grant = ps_json_number(r, object, "grant", map->last_id);
        const bool is_restored = json_object_get(object, "restored_in") != NULL;
        const uint64_t in = is_restored ? ps_json_number(r, object, "restored_in", map->epoch) : 0;
        const uint64_t from = is_restored ? ps_json_number(r, object, "restored_from", map->last_id) : 0;
        const struct backup backup = read_backup(r, object, map, node);
        for (uint32_t p = first; p < first + count && r->is_good; p++) {
            if (map->owner[p] != PS_CLUSTER_NO_NODE)
                ps_json_fault(r, "has two owners", "first");
            map->owner[p] = (uint16_t)node;
            map->grant[p] = grant;
            map->restored_in[p] = in;
            map->restored_from[p] = from;
            map->backup[p] = (uint16_t)backup.node;
            map->backup_grant[p] = backup.grant;
            map->in_sync[p] = backup.is_in_sync;
        }
    }
}

static bool crosses(const struct ps_cluster_move *a, const struct ps_cluster_move *b)
{
    return a->first < b->first + b->count && b->first < a->first + a->count;
}

static void check_move(struct ps_json_reader *r, const struct ps_cluster_map *map,
                       const struct ps_cluster_move *move)
{
    if (move->from == move->to)
        ps_json_fault(r, "is where it comes from", "to");
    for (uint32_t p = move->first; p < (uint32_t)move->first + move->count; p++)
        if (map->owner[p] != move->from)
            ps_json_fault(r, "does not own what is moved", "from");
    for (uint32_t i = 0; i < map->move_count; i++)
        if (map->moves[i].id == move->id || crosses(&map->moves[i], move))
            ps_json_fault(r, "two moves are of the same partitions, or have one number", "moves");
}

static void read_moves(struct ps_json_reader *r, const json_t *root, struct ps_cluster_map *map)
{
    const json_t *moves = ps_json_list(r, root, "moves", PS_CLUSTER_MOVES_MAX);
    const size_t entries = json_array_size(moves);
    for (size_t i = 0; i < entries && r->is_good; i++) {
        const json_t *object = json_array_get(moves, i);
        uint32_t first;
        uint32_t count;
        read_range(r, object, map, &first, &count);
        struct ps_cluster_move move = {.id = ps_json_number(r, object, "id", map->last_id),
                                       .first = (uint16_t)first,
                                       .count = (uint16_t)count,
                                       .from = (uint16_t)node_named(r, map, object, "from"),
                                       .to = (uint16_t)node_named(r, map, object, "to")};
        if (json_object_get(object, "mib_s") != NULL) /* an older version writes none */
            move.mib_s = (uint32_t)ps_json_number(r, object, "mib_s", UINT32_MAX);
        if (r->is_good)
            check_move(r, map, &move);
        map->moves[map->move_count++] = move;
    }
}

static void lacks(struct ps_json_reader *r, uint64_t needs)
{
    char text[128];
    mr_capability_text(needs, text, sizeof(text));
    (void)snprintf(
        r->text, PS_CLUSTER_TEXT_BYTES,
        "the cluster uses %.100s, which this version of millraced (%s) lacks: install the one that the "
        "other nodes have",
        text, mr_version_text());
    r->is_good = false;
}

static void read_map(struct ps_json_reader *r, const json_t *root, struct ps_cluster_map *map)
{
    ps_cluster_map_init(map, (uint32_t)ps_json_number(r, root, "partitions", PS_CLUSTER_PARTITIONS_MAX));
    map->epoch = ps_json_number(r, root, "epoch", INT64_MAX);
    map->last_id = ps_json_number(r, root, "last_id", INT64_MAX);
    if (json_object_get(root, "needs") != NULL)
        map->needs = ps_json_id(r, root, "needs");
    if (r->is_good && (map->needs & ~MR_CAPABILITIES) != 0)
        lacks(r, map->needs & ~MR_CAPABILITIES);
    read_nodes(r, root, map);
    if (r->is_good)
        read_owners(r, root, map);
    if (r->is_good)
        read_moves(r, root, map);
    if (json_object_get(root, "take_over_s") != NULL)
        map->take_over_s = (uint32_t)ps_json_number(r, root, "take_over_s", UINT32_MAX);
    if (json_object_get(root, "replication") != NULL)
        map->replication = (uint32_t)ps_json_number(r, root, "replication", 2);
    map->answers_wait = json_is_true(json_object_get(root, "answers_wait"));
    const json_t *balance = json_object_get(root, "balance");
    map->balances = balance != NULL;
    map->balances_when_asked = json_is_true(json_object_get(root, "balances_when_asked"));
    if (map->balances)
        map->balance_mib_s = (uint32_t)ps_json_number(r, balance, "mib_s", UINT32_MAX);
    const json_t *committed = json_object_get(root, "committed");
    map->committed = ps_json_number(r, committed, "id", map->last_id);
    map->committed_step = ps_json_number(r, committed, "step", INT64_MAX);
    const json_t *cut = json_object_get(root, "cut");
    map->cut = ps_json_number(r, cut, "id", map->last_id);
    map->cut_step = ps_json_number(r, cut, "step", INT64_MAX);
    map->last_cut = map->cut > map->committed ? map->cut : map->committed;
    if (json_object_get(root, "last_cut") != NULL) /* a version before 0.3.0 writes none */
        map->last_cut = ps_json_number(r, root, "last_cut", map->last_id);
    if (map->cut != 0 && map->move_count > 0)
        ps_json_fault(r, "there is none while partitions move", "cut");
}

bool ps_cluster_map_parse(const char *json, size_t bytes, struct ps_cluster_map *map,
                          char text[PS_CLUSTER_TEXT_BYTES])
{
    struct ps_json_reader r = {.is_good = true};
    json_t *root = ps_json_load(&r, json, bytes);
    if (r.is_good)
        read_map(&r, root, map);
    json_decref(root);
    memcpy(text, r.text, sizeof(r.text));
    return r.is_good;
}

/* What is not there was not said: a node of an older version, too, says nothing. */
static void read_features(struct ps_json_reader *r, const json_t *root,
                          struct ps_cluster_features_report *report)
{
    const json_t *failed = json_object_get(root, "failed");
    *report = (struct ps_cluster_features_report){.has_catalog = json_object_get(root, "catalog") != NULL};
    if (report->has_catalog)
        report->catalog = ps_json_number(r, root, "catalog", INT64_MAX);
    if (failed == NULL)
        return;
    report->failed = ps_json_number(r, failed, "since", INT64_MAX);
    report->failed_status = (enum mr_status)ps_json_number(r, failed, "status", MR_STATUS_COUNT - 1);
    ps_json_text(r, failed, "text", report->failed_text, sizeof(report->failed_text));
}

/* A number as text: JSON's have 63 bits. */
static uint64_t read_u64(struct ps_json_reader *r, const json_t *object, const char *key, int base)
{
    char text[24] = "";
    char *end = text;
    ps_json_text(r, object, key, text, sizeof(text));
    const uint64_t number = strtoull(text, &end, base);
    if (r->is_good && (text[0] == '\0' || *end != '\0'))
        ps_json_fault(r, "\"%s\" is no number", key);
    return number;
}

static void read_cut(struct ps_json_reader *r, const json_t *root, struct ps_cluster_cut_report *cut)
{
    const json_t *object = json_object_get(root, "cut");
    if (object == NULL)
        return;
    cut->id = ps_json_number(r, object, "id", INT64_MAX);
    cut->status = (enum mr_status)ps_json_number(r, object, "status", MR_STATUS_COUNT - 1);
    ps_json_text(r, object, "text", cut->text, sizeof(cut->text));
    cut->step = read_u64(r, object, "step", 10);
    cut->hash_high = read_u64(r, object, "hash_high", 16);
    cut->hash_low = read_u64(r, object, "hash_low", 16);
}

static void read_part(struct ps_json_reader *r, const json_t *root, struct ps_cluster_report *report)
{
    const json_t *object = json_object_get(root, "part");
    report->wants_cut = json_is_true(json_object_get(root, "wants_cut"));
    if (json_object_get(root, "trainer_cut") != NULL)
        report->trainer_cut = ps_json_number(r, root, "trainer_cut", INT64_MAX);
    if (object == NULL)
        return;
    report->part.id = ps_json_number(r, object, "id", INT64_MAX);
    report->part.waits = json_is_true(json_object_get(object, "waits"));
    report->part.bytes = ps_json_number(r, object, "bytes", INT64_MAX);
}

static void read_move_report(struct ps_json_reader *r, const json_t *root,
                             struct ps_cluster_move_report *move)
{
    const json_t *object = json_object_get(root, "move");
    if (object == NULL)
        return;
    move->id = ps_json_number(r, object, "id", INT64_MAX);
    move->is_ending = json_is_true(json_object_get(object, "ending"));
    move->rows = ps_json_number(r, object, "rows", INT64_MAX);
    move->bytes = ps_json_number(r, object, "bytes", INT64_MAX);
    move->left_bytes = ps_json_number(r, object, "left_bytes", INT64_MAX);
    move->us = ps_json_number(r, object, "us", INT64_MAX);
}

static void read_settings(struct ps_json_reader *r, const json_t *root, struct ps_cluster_node *node)
{
    const json_t *wants = json_object_get(root, "wants");
    if (wants == NULL)
        return;
    node->take_over_s = (uint32_t)ps_json_number(r, wants, "take_over_s", UINT32_MAX);
    node->replication = (uint32_t)ps_json_number(r, wants, "replication", UINT32_MAX);
    node->answers_wait = json_is_true(json_object_get(wants, "answers_wait"));
}

static void read_room(struct ps_json_reader *r, const json_t *root, struct ps_cluster_room_report *room)
{
    const json_t *object = json_object_get(root, "mib");
    room->is_known = object != NULL;
    if (object == NULL)
        return;
    room->free_mib = ps_json_number(r, object, "free", INT64_MAX);
    room->used_mib = ps_json_number(r, object, "used", INT64_MAX);
    room->refuses_copies = json_is_false(json_object_get(object, "copies"));
    if (json_object_get(object, "failed") == NULL)
        return;
    room->failed = ps_json_number(r, object, "failed", INT64_MAX);
    ps_json_text(r, object, "text", room->failed_text, sizeof(room->failed_text));
}

bool ps_cluster_node_parse(const char *json, size_t bytes, struct ps_cluster_node *node,
                           struct ps_cluster_report *report, char text[PS_CLUSTER_TEXT_BYTES])
{
    struct ps_json_reader r = {.is_good = true};
    json_t *root = ps_json_load(&r, json, bytes);
    *node = (struct ps_cluster_node){0};
    *report = (struct ps_cluster_report){0};
    if (r.is_good)
        read_process(&r, root, node);
    if (r.is_good)
        read_settings(&r, root, node);
    if (r.is_good)
        read_features(&r, root, &report->features);
    if (r.is_good)
        read_cut(&r, root, &report->cut);
    if (r.is_good)
        read_part(&r, root, report);
    if (r.is_good)
        read_move_report(&r, root, &report->move);
    if (r.is_good)
        read_room(&r, root, &report->room);
    json_decref(root);
    memcpy(text, r.text, sizeof(r.text));
    return r.is_good;
}
