#include "ps/modules/layers/parameters.h"

#include <math.h>
#include <string.h>
#include "ps/modules/layers/network_internal.h"
#include "ps/row/initializer.h"

void ps_parameters_first_values(const struct ps_network *network, uint64_t seed, float *values)
{
    memset(values, 0, ps_network_parameter_floats(network) * sizeof(float));
    for (uint32_t i = 0; i < ps_network_parameter_count(network); i++) {
        const struct ps_parameter_info *info = ps_network_parameter(network, i);
        const float bound = (float)(1 / sqrt((double)info->shape.fan_in));
        const struct ps_initializer uniform = {
            .kind = MR_INIT_UNIFORM, .a = -bound, .b = bound, .seed = seed};
        ps_initializer_fill(&uniform, ((uint64_t)ps_network_first_number(network) << 32) + i,
                            values + info->first, info->shape.count);
    }
}

struct mr_tensor ps_parameters_tensor(const struct ps_network *network, const float *values)
{
    const uint32_t row = PS_LAYERS_ALIGN / sizeof(float); /* parameters begin at multiples of it */
    return mr_tensor_2d(MR_F32, (uint32_t)(ps_network_parameter_floats(network) / row), row, values);
}
