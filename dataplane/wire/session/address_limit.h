/* What one address may have and ask for at a serving endpoint: sessions, counted exactly, and HELLOs by rate.
 * So that one machine, gone wrong or malicious, leaves room for the others. Addresses are proven (by a
 * cookie) before they are counted.
 *
 * One thread's, like the endpoint it belongs to. No allocation after create. */
#ifndef MR_ADDRESS_LIMIT_H
#define MR_ADDRESS_LIMIT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_ADDRESS_SESSIONS_MIN                                                                              \
    64u /* the least that `a quarter of all` comes to: the trainers of one large machine */

struct mr_address_limits;

/* One address that has sessions. The table has room for all sessions to have addresses of their own. */
struct mr_address_entry {
    uint8_t ip[16];
    uint32_t sessions; /* 0 = free */
};
static_assert(sizeof(struct mr_address_entry) == 20, "part of what an idle session costs");

/* `sessions_max` in all; `sessions_per_address` 0 = a quarter of them, at least MR_ADDRESS_SESSIONS_MIN;
 * `hellos_per_address` in each second. The seed keeps others from choosing addresses that fall on one place.
 * NULL: no memory. */
struct mr_address_limits *mr_address_limits_create(uint32_t sessions_max, uint32_t sessions_per_address,
                                                   uint32_t hellos_per_address, uint64_t seed);
void mr_address_limits_destroy(struct mr_address_limits *limits);

/* One more session for this address, if it may have one. Each is ended once. At most sessions_max at a time
 * in all. */
bool mr_address_session_begin(struct mr_address_limits *limits, const uint8_t ip[16]);
void mr_address_session_end(struct mr_address_limits *limits, const uint8_t ip[16]);
/* Whether a HELLO of this address may be looked at now. A second's worth may come at once (ITU-T I.371,
 * GCRA). Few buckets serve all addresses: now and then two share one. */
bool mr_address_hello(struct mr_address_limits *limits, const uint8_t ip[16], uint64_t now_us);

#endif
