/* What parameters are made of. Inside ps/modules/layers/ only. */
#ifndef PS_LAYERS_PARAMETERS_INTERNAL_H
#define PS_LAYERS_PARAMETERS_INTERNAL_H

#include "dataplane/optimizer/versions.h"
#include "ps/modules/layers/parameters.h"

struct ps_parameters {
    struct ps_network *network;
    struct mr_versions *versions;
};

#endif
