#include "ps/cluster/map_json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_BYTES 17u /* 16 hexadecimal digits: JSON's integers have a sign */

/* ---- writing ---- */

static json_t *id_json(uint64_t id)
{
    char text[ID_BYTES];
    (void)snprintf(text, sizeof(text), "%016" PRIx64, id);
    return json_string(text);
}

static json_t *process_json(const struct ps_cluster_node *node)
{
    return json_pack("{s:s, s:I, s:o}", "address", node->address, "cores", (json_int_t)node->core_count,
                     "start_id", id_json(node->start_id));
}

static json_t *nodes_json(const struct ps_cluster_map *map)
{
    json_t *nodes = json_array();
    for (uint32_t i = 0; i < map->node_count; i++) {
        json_t *node = process_json(&map->nodes[i]);
        (void)json_object_set_new(node, "name", json_string(map->nodes[i].name));
        (void)json_object_set_new(node, "session", id_json(map->nodes[i].session));
        (void)json_array_append_new(nodes, node);
    }
    return nodes;
}

static json_t *owners_json(const struct ps_cluster_map *map)
{
    json_t *owners = json_array();
    uint32_t count;
    for (uint32_t first = 0; first < map->partition_count; first += count) {
        const uint32_t owner = map->owner[first];
        for (count = 1; first + count < map->partition_count; count++)
            if (map->owner[first + count] != owner || map->grant[first + count] != map->grant[first])
                break;
        if (owner != PS_CLUSTER_NO_NODE)
            (void)json_array_append_new(owners,
                                        json_pack("{s:I, s:I, s:s, s:I}", "first", (json_int_t)first, "count",
                                                  (json_int_t)count, "node", map->nodes[owner].name, "grant",
                                                  (json_int_t)map->grant[first]));
    }
    return owners;
}

static json_t *moves_json(const struct ps_cluster_map *map)
{
    json_t *moves = json_array();
    for (uint32_t i = 0; i < map->move_count; i++) {
        const struct ps_cluster_move *move = &map->moves[i];
        (void)json_array_append_new(
            moves, json_pack("{s:I, s:I, s:I, s:s, s:s}", "id", (json_int_t)move->id, "first",
                             (json_int_t)move->first, "count", (json_int_t)move->count, "from",
                             map->nodes[move->from].name, "to", map->nodes[move->to].name));
    }
    return moves;
}

static json_t *checkpoint_json(uint64_t id, uint64_t step)
{
    return json_pack("{s:I, s:I}", "id", (json_int_t)id, "step", (json_int_t)step);
}

static char *print(json_t *root)
{
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

char *ps_cluster_map_json(const struct ps_cluster_map *map)
{
    return print(json_pack("{s:i, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "format", PS_CLUSTER_MAP_FORMAT,
                           "epoch", (json_int_t)map->epoch, "last_id", (json_int_t)map->last_id, "partitions",
                           (json_int_t)map->partition_count, "nodes", nodes_json(map), "owners",
                           owners_json(map), "moves", moves_json(map), "committed",
                           checkpoint_json(map->committed, map->committed_step), "cut",
                           checkpoint_json(map->cut, map->cut_step)));
}

char *ps_cluster_node_json(const struct ps_cluster_node *node)
{
    json_t *root = process_json(node);
    (void)json_object_set_new(root, "format", json_integer(PS_CLUSTER_MAP_FORMAT));
    return print(root);
}

/* ---- reading ---- */

/* The first fault of what is read. */
struct reader {
    char text[PS_CLUSTER_TEXT_BYTES];
    bool is_good;
};

static void fault(struct reader *r, const char *what, const char *key)
{
    if (r->is_good)
        (void)snprintf(r->text, PS_CLUSTER_TEXT_BYTES, "%s: %s", key, what);
    r->is_good = false;
}

static uint64_t number(struct reader *r, const json_t *object, const char *key, uint64_t max)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max) {
        fault(r, "is no number that it can be", key);
        return 0;
    }
    return (uint64_t)json_integer_value(value);
}

static uint64_t id(struct reader *r, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL || strlen(text) != ID_BYTES - 1 || strspn(text, "0123456789abcdef") != ID_BYTES - 1) {
        fault(r, "is not 16 hexadecimal digits", key);
        return 0;
    }
    return strtoull(text, NULL, 16);
}

static void name(struct reader *r, const json_t *object, const char *key, char out[PS_CLUSTER_NAME_BYTES])
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL || text[0] == '\0' || strlen(text) >= PS_CLUSTER_NAME_BYTES)
        fault(r, "is no name that it can be", key);
    else
        (void)snprintf(out, PS_CLUSTER_NAME_BYTES, "%s", text);
}

static uint32_t node_named(struct reader *r, const struct ps_cluster_map *map, const json_t *object,
                           const char *key)
{
    char text[PS_CLUSTER_NAME_BYTES] = "";
    name(r, object, key, text);
    const uint32_t node = ps_cluster_map_find(map, text);
    if (node == PS_CLUSTER_NO_NODE)
        fault(r, "is none of the map's nodes", key);
    return node;
}

static const json_t *list(struct reader *r, const json_t *root, const char *key, size_t max)
{
    const json_t *array = json_object_get(root, key);
    if (!json_is_array(array) || json_array_size(array) > max)
        fault(r, "is no list, or too long a one", key);
    return array;
}

static void read_process(struct reader *r, const json_t *object, struct ps_cluster_node *node)
{
    name(r, object, "address", node->address);
    node->core_count = (uint32_t)number(r, object, "cores", UINT32_MAX);
    node->start_id = id(r, object, "start_id");
}

static void read_nodes(struct reader *r, const json_t *root, struct ps_cluster_map *map)
{
    const json_t *nodes = list(r, root, "nodes", PS_CLUSTER_NODES_MAX);
    const size_t count = json_array_size(nodes);
    for (size_t i = 0; i < count && r->is_good; i++) {
        const json_t *object = json_array_get(nodes, i);
        struct ps_cluster_node node = {0};
        name(r, object, "name", node.name);
        read_process(r, object, &node);
        node.session = id(r, object, "session");
        if (ps_cluster_map_find(map, node.name) != PS_CLUSTER_NO_NODE)
            fault(r, "is there twice", "name");
        map->nodes[map->node_count++] = node;
    }
}

/* The partitions of an entry: at least one, and none above the last. */
static void read_range(struct reader *r, const json_t *object, const struct ps_cluster_map *map,
                       uint32_t *first, uint32_t *count)
{
    *first = (uint32_t)number(r, object, "first", map->partition_count);
    *count = (uint32_t)number(r, object, "count", map->partition_count - *first);
    if (*count == 0)
        fault(r, "is no number that it can be", "count");
}

static void read_owners(struct reader *r, const json_t *root, struct ps_cluster_map *map)
{
    const json_t *owners = list(r, root, "owners", PS_CLUSTER_PARTITIONS_MAX);
    const size_t entries = json_array_size(owners);
    for (size_t i = 0; i < entries && r->is_good; i++) {
        const json_t *object = json_array_get(owners, i);
        uint32_t first;
        uint32_t count;
        read_range(r, object, map, &first, &count);
        const uint32_t node = node_named(r, map, object, "node");
        const uint64_t grant = number(r, object, "grant", map->last_id);
        for (uint32_t p = first; p < first + count && r->is_good; p++) {
            if (map->owner[p] != PS_CLUSTER_NO_NODE)
                fault(r, "has two owners", "first");
            map->owner[p] = (uint8_t)node;
            map->grant[p] = grant;
        }
    }
}

static bool crosses(const struct ps_cluster_move *a, const struct ps_cluster_move *b)
{
    return a->first < b->first + b->count && b->first < a->first + a->count;
}

static void check_move(struct reader *r, const struct ps_cluster_map *map, const struct ps_cluster_move *move)
{
    if (move->from == move->to)
        fault(r, "is where it comes from", "to");
    for (uint32_t p = move->first; p < (uint32_t)move->first + move->count; p++)
        if (map->owner[p] != move->from)
            fault(r, "does not own what is moved", "from");
    for (uint32_t i = 0; i < map->move_count; i++)
        if (map->moves[i].id == move->id || crosses(&map->moves[i], move))
            fault(r, "two moves are of the same partitions, or have one number", "moves");
}

static void read_moves(struct reader *r, const json_t *root, struct ps_cluster_map *map)
{
    const json_t *moves = list(r, root, "moves", PS_CLUSTER_MOVES_MAX);
    const size_t entries = json_array_size(moves);
    for (size_t i = 0; i < entries && r->is_good; i++) {
        const json_t *object = json_array_get(moves, i);
        uint32_t first;
        uint32_t count;
        read_range(r, object, map, &first, &count);
        const struct ps_cluster_move move = {.id = number(r, object, "id", map->last_id),
                                             .first = (uint16_t)first,
                                             .count = (uint16_t)count,
                                             .from = (uint8_t)node_named(r, map, object, "from"),
                                             .to = (uint8_t)node_named(r, map, object, "to")};
        if (r->is_good)
            check_move(r, map, &move);
        map->moves[map->move_count++] = move;
    }
}

static void read_map(struct reader *r, const json_t *root, struct ps_cluster_map *map)
{
    ps_cluster_map_init(map, (uint32_t)number(r, root, "partitions", PS_CLUSTER_PARTITIONS_MAX));
    map->epoch = number(r, root, "epoch", INT64_MAX);
    map->last_id = number(r, root, "last_id", INT64_MAX);
    read_nodes(r, root, map);
    if (r->is_good)
        read_owners(r, root, map);
    if (r->is_good)
        read_moves(r, root, map);
    const json_t *committed = json_object_get(root, "committed");
    map->committed = number(r, committed, "id", map->last_id);
    map->committed_step = number(r, committed, "step", INT64_MAX);
    const json_t *cut = json_object_get(root, "cut");
    map->cut = number(r, cut, "id", map->last_id);
    map->cut_step = number(r, cut, "step", INT64_MAX);
    if (map->cut != 0 && map->move_count > 0)
        fault(r, "there is none while partitions move", "cut");
}

static json_t *load(struct reader *r, const char *json, size_t bytes)
{
    json_error_t error;
    json_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        fault(r, error.text, "not JSON");
        return NULL;
    }
    const uint64_t format = number(r, root, "format", INT64_MAX);
    if (r->is_good && format != PS_CLUSTER_MAP_FORMAT) {
        (void)snprintf(r->text, PS_CLUSTER_TEXT_BYTES,
                       "format: is %" PRIu64 ", and this version of millraced reads %d", format,
                       PS_CLUSTER_MAP_FORMAT);
        r->is_good = false;
    }
    return root;
}

bool ps_cluster_map_parse(const char *json, size_t bytes, struct ps_cluster_map *map,
                          char text[PS_CLUSTER_TEXT_BYTES])
{
    struct reader r = {.is_good = true};
    json_t *root = load(&r, json, bytes);
    if (r.is_good)
        read_map(&r, root, map);
    json_decref(root);
    memcpy(text, r.text, sizeof(r.text));
    return r.is_good;
}

bool ps_cluster_node_parse(const char *json, size_t bytes, struct ps_cluster_node *node,
                           char text[PS_CLUSTER_TEXT_BYTES])
{
    struct reader r = {.is_good = true};
    json_t *root = load(&r, json, bytes);
    *node = (struct ps_cluster_node){0};
    if (r.is_good)
        read_process(&r, root, node);
    json_decref(root);
    memcpy(text, r.text, sizeof(r.text));
    return r.is_good;
}
