/* JSON as the coordinator keeps it: what the map, the catalogue and the nodes' entries share. Any thread. */
#ifndef PS_CLUSTER_JSON_READER_H
#define PS_CLUSTER_JSON_READER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/cluster/cluster_map.h"

#define PS_CLUSTER_FORMAT 2 /* rises when older nodes would misread something */
/* Without capabilities in use: versions before 0.3.0 read it. Written as long as there are none. */
#define PS_CLUSTER_FORMAT_1 1

/* The format of something that needs these capabilities. */
static inline int ps_cluster_format(uint64_t needs)
{
    return needs != 0 ? PS_CLUSTER_FORMAT : PS_CLUSTER_FORMAT_1;
}

/* The first fault of what is read. */
struct ps_json_reader {
    char text[PS_CLUSTER_TEXT_BYTES];
    bool is_good;
};

void ps_json_fault(struct ps_json_reader *r, const char *what, const char *key);
/* NULL: it is no JSON, or of another format; the caller has a reference. */
json_t *ps_json_load(struct ps_json_reader *r, const char *json, size_t bytes);
uint64_t ps_json_number(struct ps_json_reader *r, const json_t *object, const char *key, uint64_t max);
/* 16 hexadecimal digits: JSON's integers have a sign. */
uint64_t ps_json_id(struct ps_json_reader *r, const json_t *object, const char *key);
void ps_json_text(struct ps_json_reader *r, const json_t *object, const char *key, char *out,
                  size_t out_bytes);
/* Not empty. */
void ps_json_name(struct ps_json_reader *r, const json_t *object, const char *key,
                  char out[PS_CLUSTER_NAME_BYTES]);
const json_t *ps_json_list(struct ps_json_reader *r, const json_t *root, const char *key, size_t max);

json_t *ps_json_id_of(uint64_t id);
/* As text, which the caller frees; NULL: no memory. Ends the reference. */
char *ps_json_print(json_t *root);

#endif
