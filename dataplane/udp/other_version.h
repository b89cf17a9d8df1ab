/* What is said where somebody asks in another version of the protocol: by nodes, hubs and workers. */
#ifndef MR_UDP_OTHER_VERSION_H
#define MR_UDP_OTHER_VERSION_H

#include <stddef.h>
#include "dataplane/wire/endpoint.h"

#define MR_OTHER_VERSION_TEXT_BYTES 256u

/* "10.0.0.2:4711 speaks version 3 of the protocol, and this hub (version 0.4.0) version 4: upgrade the peer".
 * self: "node", "hub", "library". */
void mr_other_version_text(const struct mr_other_version *other, const char *self,
                           char out[MR_OTHER_VERSION_TEXT_BYTES]);

#endif
