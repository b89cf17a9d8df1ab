#include "dataplane/metrics/metrics_accept.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_type(const char *range, const char *type)
{
    size_t length = strlen(type);
    return strncasecmp(range, type, length) == 0 && strchr(" \t;,", range[length]) != NULL;
}

/* The q of a range that ends at `end`: 1 unless it has one. */
static double quality(const char *range, const char *end)
{
    for (const char *at = memchr(range, ';', (size_t)(end - range)); at != NULL;
         at = memchr(at, ';', (size_t)(end - at))) {
        at++;
        at += strspn(at, " \t");
        if (strncasecmp(at, "q=", 2) == 0)
            return strtod(at + 2, NULL);
    }
    return 1;
}

bool mr_metrics_wants_open(const char *accept)
{
    double open = 0, plain = 0;
    for (const char *at = accept != NULL ? accept : ""; *at != '\0';) {
        at += strspn(at, " \t,");
        const char *end = at + strcspn(at, ",");
        double *best = is_type(at, "application/openmetrics-text") ? &open : &plain;
        bool is_known =
            best == &open || is_type(at, "text/plain") || is_type(at, "text/*") || is_type(at, "*/*");
        double q = quality(at, end);
        if (is_known && q > *best)
            *best = q;
        at = end;
    }
    return open > 0 && open >= plain;
}
