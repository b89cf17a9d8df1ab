/* The addresses of servers that are named, looked up on threads of their own: a name server that does not
 * answer holds getaddrinfo() for half a minute, and calls to other nodes must go on meanwhile. Addresses that
 * are written as such are read at once. Has a lock of its own, which nobody holds while a name is looked up;
 * it may be taken under the client's. */
#ifndef MRC_NAMES_H
#define MRC_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/udp/address.h"
#include "dataplane/wire/format/mr_status.h"

#define MRC_ADDRESSES_MAX 8u /* of one name; more are ignored */

struct mrc_names;

/* The addresses of one name, in the order in which they are tried. */
struct mrc_addresses {
    uint32_t count;
    struct mr_address list[MRC_ADDRESSES_MAX];
};

/* wake_fd: an eventfd that is written to when a look-up ends. It stays the caller's. NULL: no memory. */
struct mrc_names *mrc_names_create(int wake_fd);
/* Does not wait: look-ups that have begun end by themselves. NULL is fine. */
void mrc_names_release(struct mrc_names *names);

/* Returns MR_OK with the addresses of "host:port": those that the machine has a route to, unless it has none
 * to any. MR_BUSY: the name is being looked up, see mrc_names_ended(). MR_INVALID_ARGUMENT: one line in
 * `error`; another try is made when it is asked for a second later. A name that was found more than a second
 * ago is looked up again, and has the former addresses until that has ended. */
enum mr_status mrc_names_find(struct mrc_names *names, const char *text, struct mrc_addresses *out,
                              char *error, size_t error_bytes);
/* Returns how many look-ups have ended. */
uint32_t mrc_names_ended(const struct mrc_names *names);

/* Whether `address`, apart from its path, is one of them. */
static inline bool mrc_addresses_has(const struct mrc_addresses *addresses, const struct mr_address *address)
{
    return mr_address_is_among(addresses->list, addresses->count, address);
}

#endif
