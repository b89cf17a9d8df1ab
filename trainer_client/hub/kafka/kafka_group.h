/* A consumer group in which a hub keeps what only a reader knows, and no broker once retention has deleted
 * it: that between the offset at which a plan continues and the next message there are only ends of
 * transactions. The group's offset of a partition is that of the next message, or, where there is none, the
 * partition's end; its metadata is the offset at which the plan continues. Nobody joins the group, and it
 * never says where to continue.
 *
 * A client of its own speaks to the group's coordinator, so that what goes wrong there stops no reading. One
 * thread at a time; only hub_kafka_group_find() and hub_kafka_group_free() wait.
 */
#ifndef HUB_KAFKA_GROUP_H
#define HUB_KAFKA_GROUP_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

#define HUB_KAFKA_GROUP_BYTES 256u /* of its name, with its NUL */

struct hub_kafka_group;

/* conf: of the client that reads, copied; its group.id, if it has one, is the name in the place of `name`.
 * topic: the caller's. NULL: no memory, or librdkafka makes no client. */
struct hub_kafka_group *hub_kafka_group_new(const rd_kafka_conf_t *conf, const char *topic, const char *name);
void hub_kafka_group_free(struct hub_kafka_group *g); /* waits briefly for an answer; NULL is fine */
const char *hub_kafka_group_name(const struct hub_kafka_group *g);
/* The partition has no messages at offsets [from, to). Called again and again while that is so: it is sent
 * once, and then once an hour, as brokers forget the offsets of a group that rests; what cannot be sent is
 * sent later. */
void hub_kafka_group_keep(struct hub_kafka_group *g, uint32_t partition, uint64_t from, uint64_t to);
/* The offset below which, from `from` on, the partition has no messages; `from` if nothing is known of them,
 * and `*why` is then NULL, or the reason why the brokers do not tell. Waits for them for some seconds. */
uint64_t hub_kafka_group_find(struct hub_kafka_group *g, uint32_t partition, uint64_t from, const char **why);

#endif
