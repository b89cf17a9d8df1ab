#include "ps/checkpoint/checkpoint_error.h"

#include <errno.h>

#include "ps/checkpoint/checkpoint_format.h"

static enum mr_status status_of(int error)
{
    switch (-error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ESPIPE: /* not a file that has blocks at all */
    case ENODATA:
        return MR_CHECKPOINT_CORRUPT;
    case ENOMEM:
        return MR_NO_MEMORY;
    default:
        return MR_IO_ERROR;
    }
}

enum mr_status ps_checkpoint_corrupt(char *text, const char *path, const char *why)
{
    ps_text_path(text, path, why);
    return MR_CHECKPOINT_CORRUPT;
}

enum mr_status ps_checkpoint_fail(char *text, const char *what, const char *path, int error)
{
    if (error == -ENOENT)
        return ps_checkpoint_corrupt(text, path, "it is missing");
    if (error == -ENODATA)
        return ps_checkpoint_corrupt(text, path, "it ends too early");
    ps_text_io(text, what, path, -error);
    return status_of(error);
}
