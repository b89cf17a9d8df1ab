/* Names and texts of status codes (mr_status.h). */
#include "dataplane/wire/format/mr_status.h"

#include <stddef.h>

static const struct {
    const char *name, *text;
} statuses[MR_STATUS_COUNT] = {
#define STATUS_ROW(name, value, text) [value] = {#name, text},
    MR_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

const char *mr_status_text(enum mr_status status)
{
    return (size_t)status < MR_STATUS_COUNT ? statuses[status].text : "unknown status";
}

const char *mr_status_name(enum mr_status status)
{
    return (size_t)status < MR_STATUS_COUNT ? statuses[status].name : "?";
}
