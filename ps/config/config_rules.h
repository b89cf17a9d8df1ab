/* What text values of the configuration may look like. Each rule returns NULL when `text` is fine, else what
 * is allowed. Pure, any thread. */
#ifndef PS_CONFIG_RULES_H
#define PS_CONFIG_RULES_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/op.h"

typedef const char *(*ps_rule)(const char *text);

const char *ps_rule_any(const char *text);
const char *ps_rule_place(const char *text);
const char *ps_rule_name(const char *text);
const char *ps_rule_mac(const char *text);
const char *ps_rule_ipv4(const char *text);
const char *ps_rule_ipv6(const char *text);
const char *ps_rule_ipv4_alone(const char *text);
const char *ps_rule_ipv6_alone(const char *text);
const char *ps_rule_cluster_name(const char *text);
/* A place, and in it one checkpoint. */
const char *ps_rule_checkpoint(const char *text);
const char *ps_rule_host_port(const char *text);
const char *ps_rule_told_address(const char *text);
const char *ps_rule_host_ports(const char *text);
const char *ps_rule_cpus(const char *text);
const char *ps_rule_restore(const char *text);
const char *ps_rule_role_file(const char *text);

/* "2,3" or "2-5" into `cpus`; how many there are, or -1 when `text` is not such a list or names more than
 * `cpus_max`. */
int ps_cpus_parse(const char *text, int *cpus, uint32_t cpus_max);

/* "trainer:/etc/millrace/trainer.key": the path in it, or NULL when `text` is not such. */
const char *ps_role_file_parse(const char *text, enum mr_role *role);

/* A decimal number of up to 20 digits and nothing else. */
bool ps_number_parse(const char *text, uint64_t *value);

#endif
