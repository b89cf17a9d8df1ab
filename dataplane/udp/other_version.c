#include "dataplane/udp/other_version.h"

#include <stdio.h>

#include "dataplane/udp/address.h"
#include "dataplane/wire/format/capability.h"

void mr_other_version_text(const struct mr_other_version *other, const char *self,
                           char out[MR_OTHER_VERSION_TEXT_BYTES])
{
    char from[MR_ADDRESS_TEXT_BYTES];
    mr_address_text(&other->from, from);
    (void)snprintf(
        out, MR_OTHER_VERSION_TEXT_BYTES,
        "%s speaks version %u of the protocol, and this %s (version %s) version %u: upgrade the %s", from,
        other->version, self, mr_version_text(), MR_PROTOCOL_VERSION,
        other->version < MR_PROTOCOL_VERSION ? "peer" : self);
}
