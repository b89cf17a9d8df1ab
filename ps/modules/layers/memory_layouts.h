/* Parameters in the formats that primitives take: made once for each version and format, and kept beside the
 * version. Inside ps/modules/layers/ only. */
#ifndef PS_LAYERS_MEMORY_LAYOUTS_H
#define PS_LAYERS_MEMORY_LAYOUTS_H

#include "dataplane/optimizer/versions.h"
#include "ps/modules/layers/engine.h"
#include "ps/modules/layers/layer_list.h"

/* Parameter `index` of the list, as it lies in the version. */
const float *ps_layout_plain(const struct mr_parameter_version *version, const struct ps_layer_list *list,
                             uint32_t index);
/* The same in `format`; `plain`: row-major. Stays as it is while the version is held. */
enum mr_status ps_layout_as(struct mr_parameter_version *version, const struct ps_layer_list *list,
                            uint32_t index, ps_format plain, ps_format format, dnnl_stream_t stream,
                            const float **out);

#endif
