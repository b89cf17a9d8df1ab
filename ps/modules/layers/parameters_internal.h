/* How the next version of parameters is made. Inside ps/modules/layers/ only. */
#ifndef PS_LAYERS_PARAMETERS_INTERNAL_H
#define PS_LAYERS_PARAMETERS_INTERNAL_H

#include "ps/modules/layers/parameters.h"

struct ps_network *ps_parameters_network(const struct ps_parameters *parameters);

/* Changes `values`, which are those of the newest version, to those of the next. */
typedef void ps_change_values(void *context, float *values);
/* Runs `change` once, in place or on a copy. One at a time; another waits. MR_NO_MEMORY: it was not run. */
enum mr_status ps_parameters_change(struct ps_parameters *parameters, ps_change_values *change,
                                    void *context);

#endif
