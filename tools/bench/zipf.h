/* Draws from Zipf's law, exactly so, by rejection-inversion (Hoermann, Derflinger, ACM TOMACS 6, 1996): no
 * table, whatever the number of keys. Pure. */
#ifndef TOOL_ZIPF_H
#define TOOL_ZIPF_H

#include <stdint.h>

struct tool_zipf {
    double count, exponent;
    double low, high; /* areas under the hat over all ranks */
    double always;    /* within so much of a rank every draw is accepted */
};

/* count >= 1, exponent > 0. */
void tool_zipf_init(struct tool_zipf *z, uint64_t count, double exponent);
/* 0 .. count - 1: r with a probability proportional to (r + 1)^-exponent. */
uint64_t tool_zipf_draw(const struct tool_zipf *z, uint64_t *random);

#endif
