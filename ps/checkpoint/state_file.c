#include "ps/checkpoint/state_file.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "ps/checkpoint/checkpoint_format.h"

static enum mr_status state_file_fail(const char *what, int error, char *text, size_t text_bytes)
{
    const char *explanation = ps_store_explanation(-error);
    if (explanation)
        (void)snprintf(text, text_bytes, "%s: %s", what, explanation);
    else
        (void)snprintf(text, text_bytes, "%s: %s; %s", what, strerror(-error), ps_text_remedy(-error));
    return MR_IO_ERROR;
}

enum mr_status ps_state_directory(const struct ps_store *store, const char *directory, char *error,
                                  size_t error_bytes)
{
    char what[PS_PATH_BYTES];
    const struct ps_store *s = store ? store : ps_store_local();
    const int made = s->make_directory(s->self, directory);
    if (made == 0 || made == -EEXIST)
        return MR_OK;
    (void)snprintf(what, sizeof(what), "checkpoint.directory %s", directory);
    return state_file_fail(what, made, error, error_bytes);
}

/* One byte is left for the NUL: what fills it is too long. */
static int read_text(const struct ps_store *s, const char *path, char *text, size_t text_bytes)
{
    struct ps_store_file *file;
    uint64_t bytes;
    int error = s->open(s->self, path, &file, &bytes);
    if (error != 0)
        return error;
    error = bytes >= text_bytes ? -EFBIG : ps_store_read_all(s, file, text, bytes, 0);
    (void)s->close(file);
    if (error == 0)
        text[bytes] = '\0';
    return error;
}

enum mr_status ps_state_file_read(const struct ps_store *store, const char *directory, const char *name,
                                  char *text, size_t text_bytes, bool *is_there, char *error,
                                  size_t error_bytes)
{
    char path[PS_PATH_BYTES], next[PS_PATH_BYTES + sizeof(PS_STORE_NEXT)];
    const struct ps_store *s = store ? store : ps_store_local();
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    (void)snprintf(next, sizeof(next), "%s" PS_STORE_NEXT, path);
    int failed = read_text(s, path, text, text_bytes);
    if (failed == -ENOENT) {
        failed = read_text(s, next, text, text_bytes);
        if (failed == 0 && text[0] == '\0') /* of a crash in the middle of the first one */
            failed = -ENOENT;
    }
    *is_there = failed != -ENOENT;
    if (failed == 0 || failed == -ENOENT)
        return MR_OK;
    if (failed != -EFBIG)
        return state_file_fail(path, failed, error, error_bytes);
    (void)snprintf(error, error_bytes, "%s: longer than such a file can be; restore it, or remove it", path);
    return MR_IO_ERROR;
}

enum mr_status ps_state_file_write(const struct ps_store *store, const char *directory, const char *name,
                                   const char *text, char *error, size_t error_bytes)
{
    char path[PS_PATH_BYTES], what[PS_PATH_BYTES + 32];
    const struct ps_store *s = store ? store : ps_store_local();
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    const int failed = s->replace(s->self, path, text, strlen(text));
    if (failed == 0)
        return MR_OK;
    (void)snprintf(what, sizeof(what), "%s: cannot be written", path);
    return state_file_fail(what, failed, error, error_bytes);
}
