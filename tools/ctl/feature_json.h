/* A feature's descriptor as JSON, enums by name. */
#ifndef TOOL_FEATURE_JSON_H
#define TOOL_FEATURE_JSON_H

#include <jansson.h>
#include "mr_feature.h"

/* A new object; NULL when memory is short. */
json_t *tool_feature_json(const struct mr_feature *f);

#endif
