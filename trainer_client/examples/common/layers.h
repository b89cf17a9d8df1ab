/* Starts the module layers.so in a worker's own program, as a node does that has it in its configuration. */
#ifndef EXAMPLES_LAYERS_H
#define EXAMPLES_LAYERS_H

#include <stddef.h>
#include <millrace_rpc.h>

/* Opens the module and has it register its functions layers.*. Once in a process, after the worker has
 * joined. `arguments`: "" or "parts N". On failure `error` gets a line. */
enum mr_status example_start_layers(struct mr_rpc *rpc, const char *arguments, char *error,
                                    size_t error_bytes);

#endif
