/* A feature's descriptor as text and as JSON: the reverse of feature_args.h. Pure. */
#ifndef TOOL_FEATURE_TEXT_H
#define TOOL_FEATURE_TEXT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include "mr_feature.h"

#define TOOL_FEATURE_OPTIONS_BYTES 1024u /* room for the options of any feature */

/* "table f32[16]", "variable f32[3,4]" */
void tool_feature_shape(const struct mr_feature *f, char *out, size_t out_bytes);
/* The options of `millrace ctl create` that make the feature, without its shape and dtype and without
 * options at their defaults: "--optimizer ftrl --learning-rate 0.05 --eviction lru". Numbers
 * are exact (memory that is not whole MiB has a fraction, which the command line does not take). */
void tool_feature_options(const struct mr_feature *f, char *out, size_t out_bytes);
/* The whole descriptor as a new object, enums by name; NULL when memory is short. */
json_t *tool_feature_json(const struct mr_feature *f);

#endif
