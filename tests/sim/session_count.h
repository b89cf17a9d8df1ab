/* How many sessions an endpoint has; only tests ask. */
#ifndef TEST_SESSION_COUNT_H
#define TEST_SESSION_COUNT_H

#include "dataplane/wire/endpoint_internal.h"

static inline uint32_t session_count(const struct mr_endpoint *ep)
{
    return ep->session_count;
}

#endif
