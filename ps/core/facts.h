/* What a node runs on: its machine, libraries and port, as lines "name = value". Gathered once, when it
 * starts. */
#ifndef PS_FACTS_H
#define PS_FACTS_H

struct ps_node;

/* The data plane is open. The caller frees the text; NULL: no memory. */
char *ps_facts_gather(const struct ps_node *node);

#endif
