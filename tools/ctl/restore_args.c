#include "tools/ctl/restore_args.h"

#include <stdio.h>
#include <string.h>
#include "millrace_admin.h"

bool tool_restore_name_parse(const char *text, char *buffer, size_t buffer_bytes, struct mr_restore_name *out,
                             char *error, size_t error_bytes)
{
    const size_t bytes = strlen(text);
    if (bytes >= buffer_bytes) {
        (void)snprintf(error, error_bytes, "--table %.20s...: names have at most %d bytes", text,
                       MR_NAME_BYTES - 1);
        return false;
    }
    memcpy(buffer, text, bytes + 1);
    char *split = strchr(buffer, '=');
    if (!split)
        split = strchr(buffer, ':');
    *out = (struct mr_restore_name){.name = buffer, .new_name = split ? split + 1 : NULL};
    if (split)
        *split = '\0';
    const char *names[2] = {out->name, out->new_name ? out->new_name : out->name};
    for (size_t i = 0; i < 2; i++) {
        const size_t length = strlen(names[i]);
        if (length > 0 && length < MR_NAME_BYTES)
            continue;
        (void)snprintf(error, error_bytes, "--table %s: expected NAME or NAME:NEW, names of 1 to %d bytes",
                       text, MR_NAME_BYTES - 1);
        return false;
    }
    return true;
}
