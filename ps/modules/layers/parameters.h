/* The first values of a network's parameters. A network computes with any version of so many floats
 * (dataplane/optimizer/versions.h): those of a parameter of remote calls begin so. Any thread.
 */
#ifndef PS_PARAMETERS_H
#define PS_PARAMETERS_H

#include <stdint.h>
#include "dataplane/wire/format/mr_tensor.h"

struct ps_network;

/* First values as torch's conv2d and linear have them: uniform in +-1 / sqrt(fan_in), a function of `seed`,
 * parameter and element alone. values: ps_network_parameter_floats(). */
void ps_parameters_first_values(const struct ps_network *network, uint64_t seed, float *values);
/* They, as one tensor: what mr_parameter_create() takes. */
struct mr_tensor ps_parameters_tensor(const struct ps_network *network, const float *values);

#endif
