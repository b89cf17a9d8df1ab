/* Clients of servers: instances that are configured alike share one, as there is an instance for each
 * embedding table. Any thread. */
#ifndef TDE_CONNECTION_H
#define TDE_CONNECTION_H

#include "millrace.h"
#include "trainer_client/torchrec/configuration.h"

/* NULL, with one line in `error`, when the server does not answer. */
struct mr_client *tde_connection_open(const struct tde_configuration *configuration, char *error,
                                      size_t error_bytes);
void tde_connection_close(struct mr_client *client);

#endif
