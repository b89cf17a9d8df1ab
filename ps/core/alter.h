/* Which options of a table or variable can become which: values, the optimizer's state and the stamps of
 * rows stay as they are, in memory and in the checkpoints that deltas build on. Pure, any thread.
 */
#ifndef PS_ALTER_H
#define PS_ALTER_H

#include <stdbool.h>
#include <stddef.h>
#include "dataplane/wire/format/mr_feature.h"

/* Both have passed mr_feature_check() and differ only in fields that mr_feature_alter() takes. False, and
 * a line in `text` that names the field: what is stored would have to be laid out again. */
bool ps_alter_check(const struct mr_feature *is, const struct mr_feature *after, char *text,
                    size_t text_bytes);

#endif
