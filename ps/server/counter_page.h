/* docs/counters.md: what `millraced --print-counters` prints. */
#ifndef PS_COUNTER_PAGE_H
#define PS_COUNTER_PAGE_H

#include <stdio.h>

void ps_counter_page_print(FILE *out);

#endif
