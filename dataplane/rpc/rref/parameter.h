/* Parameters: references whose value is an f32 tensor in versions (dataplane/optimizer/versions.h). For the
 * rest of the library the value is an object; mr_rref_to_here() gives a copy of the newest version.
 *
 * Public: mr_parameter_create(), _read(), _tensor(), _number(), _done(). Any thread.
 */
#ifndef MR_RPC_PARAMETER_H
#define MR_RPC_PARAMETER_H

#include "dataplane/optimizer/versions.h"
#include "dataplane/rpc/millrace_rpc.h"

/* On the owner: the parameter's versions, there as long as the reference is held. NULL: it is no parameter,
 * or another worker's. */
struct mr_versions *mr_parameter_versions(struct mr_rref *parameter);

/* Destroys the object that a parameter is. References to an object with this function are parameters. */
void mr_parameter_destroy(void *versions);

#endif
