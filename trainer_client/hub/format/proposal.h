/* What a description may lack where a field is not of its column's type: broken lines say it, and
 * --check-format puts together what they say. Pure, any thread. */
#ifndef HUB_PROPOSAL_H
#define HUB_PROPOSAL_H

#include "trainer_client/hub/format/field.h"

/* Texts that other programs write for a value that is not there: "NA", "NULL", ... Ends with NULL. */
extern const char *const hub_missing_words[];

/* The word that the field is, or NULL. */
const char *hub_missing_word(struct hub_field field);
/* Appends to `reason` (HUB_REASON_BYTES), which says what the field is not, the key of [format] that would
 * help; nothing if none is known. */
void hub_propose(struct hub_field field, bool may_be_empty, char *reason);
/* What such a reason proposes: a word for `missing`, or NULL; and whether it is `trim`. */
const char *hub_proposed_missing(const char *reason);
bool hub_proposed_trim(const char *reason);

#endif
