#include "trainer_client/hub/format/proposal.h"

#include <stdio.h>
#include <string.h>
#include "trainer_client/hub/format/sample.h"

#define PROPOSES_MISSING "; with format.missing = "
#define PROPOSES_TRIM    "; there are blanks around it: set format.trim = blanks"

const char *const hub_missing_words[] = {"NA",  "N/A",  "<NA>", "NULL", "null", "NaN", "nan",    "None",
                                         "nil", "none", "\\N",  "n/a",  "-",    "?",   "(null)", NULL};

const char *hub_missing_word(struct hub_field field)
{
    for (size_t i = 0; hub_missing_words[i] != NULL; i++)
        if (field.bytes == strlen(hub_missing_words[i]) &&
            memcmp(field.text, hub_missing_words[i], field.bytes) == 0)
            return hub_missing_words[i];
    return NULL;
}

void hub_propose(struct hub_field field, bool may_be_empty, char *reason)
{
    const size_t used = strlen(reason);
    const struct hub_field trimmed = hub_field_trim(field);
    const char *word = hub_missing_word(trimmed);
    if (word != NULL)
        snprintf(reason + used, HUB_REASON_BYTES - used, PROPOSES_MISSING "%s%s it is a missing value", word,
                 may_be_empty ? "" : ", and \" or empty\" behind the column's type,");
    else if (trimmed.bytes != field.bytes)
        snprintf(reason + used, HUB_REASON_BYTES - used, PROPOSES_TRIM);
}

const char *hub_proposed_missing(const char *reason)
{
    const char *at = strstr(reason, PROPOSES_MISSING);
    if (at == NULL)
        return NULL;
    at += strlen(PROPOSES_MISSING);
    return hub_missing_word((struct hub_field){at, strcspn(at, ", ")});
}

bool hub_proposed_trim(const char *reason)
{
    return strstr(reason, PROPOSES_TRIM) != NULL;
}
