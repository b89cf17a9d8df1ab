/* A feature's descriptor in words: the other way round than feature_args.h. Pure. */
#ifndef TOOL_FEATURE_TEXT_H
#define TOOL_FEATURE_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include "mr_feature.h"

#define TOOL_FEATURE_OPTIONS_BYTES 1024u /* room for the options of any feature */

/* "table f32[16]", "variable f32[3,4]" */
void tool_feature_shape(const struct mr_feature *f, char *out, size_t out_bytes);
/* The options of `millrace ctl create` that make the feature, without those of its shape and dtype and
 * without those that stand at their defaults: "--optimizer ftrl --learning-rate 0.05 --eviction lru". Numbers
 * are the descriptor's to the last bit (memory that is not whole MiB has a fraction, which the command line
 * does not take). */
void tool_feature_options(const struct mr_feature *f, char *out, size_t out_bytes);

#endif
