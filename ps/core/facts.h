/* What a node is, as lines "name = value": what it runs on, gathered once when it starts, and its
 * configuration, with what reloads have changed. Any thread. */
#ifndef PS_FACTS_H
#define PS_FACTS_H

#include <stdint.h>

struct ps_config;
struct ps_facts;
struct ps_node;

/* The data plane is open. NULL: no memory. */
struct ps_facts *ps_facts_create(const struct ps_node *node);
void ps_facts_destroy(struct ps_facts *f);
/* A reload gave a key the value that it has in `fresh`. `f` may be NULL. */
void ps_facts_take(struct ps_facts *f, const struct ps_config *fresh, uint32_t key);
/* Returns the lines, which the caller frees; NULL: no memory. `f` may be NULL: there are none. */
char *ps_facts_text(struct ps_facts *f);

#endif
