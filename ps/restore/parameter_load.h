/* The parameters of a checkpoint while it is being loaded, until all are whole and become those of the node.
 * For the control thread.
 */
#ifndef PS_PARAMETER_LOAD_H
#define PS_PARAMETER_LOAD_H

#include "dataplane/optimizer/named_parameters.h"
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/op.h"
#include "ps/checkpoint/checkpoint_manifest.h"

#define PS_PARAMETER_TEXT_BYTES 256u

struct ps_parameter_load;

/* Makes room for the parameters that a MANIFEST lists, each with its states; with `names`, for these alone,
 * which it lists. Under a new name a parameter comes without states, because they belong to an optimizer of
 * the parameter that it was. MR_INVALID_ARGUMENT: a name comes twice, or is none; MR_NO_MEMORY; `text`
 * (PS_PARAMETER_TEXT_BYTES, as all that follow) is a line. */
enum mr_status ps_parameter_load_create(const struct ps_manifest *manifest,
                                        const struct mr_restore_pair *names, uint32_t name_count,
                                        struct ps_parameter_load **out, char *text);
void ps_parameter_load_destroy(struct ps_parameter_load *load); /* NULL is fine */
/* Whether a MANIFEST lists a parameter of that name; and how many it lists, states left out. */
bool ps_parameter_is_listed(const struct ps_manifest *manifest, const char *name);
uint32_t ps_parameters_listed(const struct ps_manifest *manifest);
uint32_t ps_parameter_load_count(const struct ps_parameter_load *load);
/* Takes a record of the checkpoint itself; of a parameter that nobody asked for it takes nothing.
 * MR_CHECKPOINT_CORRUPT: it is of no parameter, or reaches beyond its end. */
enum mr_status ps_parameter_load_add(struct ps_parameter_load *load, const struct ps_record *record,
                                     const uint8_t *bytes, char *text);
/* MR_CHECKPOINT_CORRUPT: a parameter is not whole. */
enum mr_status ps_parameter_load_check(const struct ps_parameter_load *load, char *text);
/* MR_WRONG_SHAPE: a parameter of the node has another shape, or state of another optimizer, than the
 * checkpoint's of its name. Unless it `replaces`, MR_INVALID_ARGUMENT: the node has one of that name. */
enum mr_status ps_parameter_load_fits(const struct ps_parameter_load *load, struct mr_named_parameters *node,
                                      bool replaces, char *text);
/* Gives all to the node, at one instant; others that it has stay. Errors as above, and MR_NO_MEMORY: then
 * nothing has changed. */
enum mr_status ps_parameter_load_give(struct ps_parameter_load *load, struct mr_named_parameters *node,
                                      bool replaces, char *text);

#endif
