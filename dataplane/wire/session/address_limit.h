/* Limits what one address may have at a serving endpoint: sessions and message memory, counted exactly, and
 * HELLOs by rate, so that one faulty or malicious machine leaves room for the others. Addresses are proven
 * (by a cookie) before they are counted. Of IPv6, a /64 counts as one address.
 *
 * One thread, that of its endpoint. No allocation after create. */
#ifndef MR_ADDRESS_LIMIT_H
#define MR_ADDRESS_LIMIT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_ADDRESS_SESSIONS_MIN 64u /* the least quarter of all sessions: the trainers of one large machine */

struct mr_address_limits;

/* One address that has sessions. The table has room for all sessions to have addresses of their own. */
struct mr_address_entry {
    uint64_t network;
    uint32_t memory_units; /* of MR_BUDDY_BLOCK_BYTES_MIN: message memory of its sessions */
    uint32_t sessions;     /* 0 = free */
};
static_assert(sizeof(struct mr_address_entry) == 16, "part of what an idle session costs");

/* Returns the network that an address counts for: an IPv4 address itself, or the /64 of an IPv6 address, of
 * which one machine has all. Never 0. */
uint64_t mr_address_network(const uint8_t ip[16]);

/* Creates limits for `sessions_max` sessions in all. `sessions_per_address` 0 = a quarter of them, at least
 * MR_ADDRESS_SESSIONS_MIN; `hellos_per_address` is per second. The seed keeps others from choosing addresses
 * that collide. NULL: no memory. */
struct mr_address_limits *mr_address_limits_create(uint32_t sessions_max, uint32_t sessions_per_address,
                                                   uint32_t hellos_per_address, uint64_t seed);
/* Changes how many HELLOs per second one address may send. */
void mr_address_limits_set_hellos(struct mr_address_limits *limits, uint32_t hellos_per_address);
void mr_address_limits_destroy(struct mr_address_limits *limits);

/* Returns how many sessions one address may have. */
uint32_t mr_address_sessions_max(const struct mr_address_limits *limits);
/* Counts one more session for this address, if it has fewer than `count`. Each is ended once. At most
 * sessions_max at a time in all. */
bool mr_address_session_begin(struct mr_address_limits *limits, const uint8_t address[16], uint32_t count);
void mr_address_session_end(struct mr_address_limits *limits, const uint8_t address[16]);
/* Counts message memory that a session of this address takes (or, below 0, gives back); whole blocks. */
void mr_address_memory_add(struct mr_address_limits *limits, const uint8_t address[16], int64_t bytes);
/* Returns the message memory of this address's sessions. */
uint64_t mr_address_memory(const struct mr_address_limits *limits, const uint8_t address[16]);
/* Whether no other address has a session. */
bool mr_address_is_alone(const struct mr_address_limits *limits, const uint8_t address[16]);
/* Returns whether a HELLO of this address may be examined now. A second's worth may arrive at once (ITU-T
 * I.371, GCRA). All addresses share a small number of buckets, so two may occasionally share one. */
bool mr_address_hello(struct mr_address_limits *limits, const uint8_t address[16], uint64_t now_us);

#endif
