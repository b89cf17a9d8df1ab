/* The parameters of a checkpoint while it is being loaded, until all are whole and become those of the node.
 * For the control thread.
 */
#ifndef PS_PARAMETER_LOAD_H
#define PS_PARAMETER_LOAD_H

#include "dataplane/optimizer/named_parameters.h"
#include "dataplane/wire/format/mr_status.h"
#include "ps/checkpoint/checkpoint_manifest.h"

#define PS_PARAMETER_TEXT_BYTES 256u

struct ps_parameter_load;

/* Makes room for the parameters that a MANIFEST lists. MR_NO_MEMORY; `text` (PS_PARAMETER_TEXT_BYTES, as all
 * that follow) says so. */
enum mr_status ps_parameter_load_create(const struct ps_manifest *manifest, struct ps_parameter_load **out,
                                        char *text);
void ps_parameter_load_destroy(struct ps_parameter_load *load); /* NULL is fine */
/* Takes a record of the checkpoint itself. MR_CHECKPOINT_CORRUPT: it is of no parameter, or reaches beyond
 * its end. */
enum mr_status ps_parameter_load_add(struct ps_parameter_load *load, const struct ps_record *record,
                                     const uint8_t *bytes, char *text);
/* MR_CHECKPOINT_CORRUPT: a parameter is not whole. */
enum mr_status ps_parameter_load_check(const struct ps_parameter_load *load, char *text);
/* MR_WRONG_SHAPE: a parameter of the node has another shape, or state of another optimizer, than the
 * checkpoint's of its name. */
enum mr_status ps_parameter_load_fits(const struct ps_parameter_load *load, struct mr_named_parameters *node,
                                      char *text);
/* Gives all to the node, at one instant; others that it has stay. Errors as above, and MR_NO_MEMORY: then
 * nothing has changed. */
enum mr_status ps_parameter_load_give(struct ps_parameter_load *load, struct mr_named_parameters *node,
                                      char *text);

#endif
