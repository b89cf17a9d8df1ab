/* Clocks of several machines, and how far each is ahead of the first: what processes measured of each other
 * is a graph, and each clock is reached by the way whose error is smallest. Clocks drift; between two
 * measurements the offset changes evenly, and away from them the error grows by TOOL_CLOCK_DRIFT_PPM of the
 * time (RFC 5905's PHI). One thread. */
#ifndef TOOL_TIMELINE_CLOCKS_H
#define TOOL_TIMELINE_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#define TOOL_CLOCK_DRIFT_PPM 15u

struct tool_clocks;

/* NULL: no memory. The caller ends with tool_clocks_free(). */
struct tool_clocks *tool_clocks_new(void);
void tool_clocks_free(struct tool_clocks *c);

/* Adds what was measured: at at_ns of the clock `own`, `peer` showed offset_ns more, give or take error_ns.
 * False: no memory. */
bool tool_clocks_measured(struct tool_clocks *c, uint64_t own, uint64_t peer, int64_t at_ns,
                          int64_t offset_ns, uint64_t error_ns);
/* Finds the ways from every clock to `reference`, after the last measurement. False: no memory. */
bool tool_clocks_join(struct tool_clocks *c, uint64_t reference);
/* Moves a time of `clock` to the reference, and says by how much it may be wrong. False: no measurements lead
 * from this clock there. */
bool tool_clocks_move(const struct tool_clocks *c, uint64_t clock, int64_t *ns, uint64_t *error_ns);

#endif
