#include "dataplane/wire/call/path.h"

#include <string.h>

#include "dataplane/wire/format/packet.h"

#define STEP_BYTES 8u /* sizes are multiples of it */

static void path_ask(struct mr_path *path, uint32_t bytes, uint64_t at_us)
{
    path->asked_bytes = bytes;
    path->at_us = at_us;
    path->tries = 0;
    path->first_number = path->number + 1;
}

void mr_path_begin(struct mr_path *path, uint32_t max_bytes, uint64_t now_us)
{
    memset(path, 0, sizeof(*path));
    path->max_bytes = max_bytes;
    path->bytes = MR_UDP_BYTES_MIN;
    path->failed_bytes = max_bytes + STEP_BYTES;
    path_ask(path, max_bytes, now_us);
}

/* Returns the next size to probe above what gets through: the one that a report named, the largest if that
 * has not failed, otherwise the middle. 0: there is none. */
static uint32_t larger(struct mr_path *path)
{
    uint32_t hint = path->hint_bytes;
    path->hint_bytes = 0;
    if (hint > path->bytes && hint < path->failed_bytes)
        return hint;
    if (path->failed_bytes > path->max_bytes)
        return path->bytes < path->max_bytes ? path->max_bytes : 0;
    uint32_t middle = (path->bytes + path->failed_bytes) / 2 & ~(STEP_BYTES - 1);
    return middle > path->bytes ? middle : 0;
}

static void ask_next(struct mr_path *path, uint64_t now_us)
{
    if (!path->confirmed) {
        path_ask(path, path->bytes, path->narrow ? now_us + MR_PATH_NARROW_US : now_us);
        return;
    }
    path_ask(path, larger(path), now_us);
    if (path->asked_bytes == 0)
        path->at_us = path->bytes < path->max_bytes ? now_us + MR_PATH_RAISE_US : 0;
}

static enum mr_path_change path_fail(struct mr_path *path)
{
    if (path->asked_bytes > path->bytes) {
        path->failed_bytes = path->asked_bytes;
        return MR_PATH_SAME;
    }
    path->confirmed = false;
    if (path->bytes > MR_UDP_BYTES_MIN) {
        path->failed_bytes = path->bytes;
        path->bytes = MR_UDP_BYTES_MIN;
        return MR_PATH_CHANGED;
    }
    bool known = path->narrow;
    path->narrow = true;
    return known ? MR_PATH_SAME : MR_PATH_CHANGED;
}

enum mr_path_change mr_path_due(struct mr_path *path, uint64_t heard_us, uint64_t now_us)
{
    if (path->asked_bytes == 0) {
        path->failed_bytes = path->max_bytes + STEP_BYTES;
        path_ask(path, path->max_bytes, now_us);
        return MR_PATH_SAME;
    }
    if (path->tries < MR_PATH_TRIES || heard_us <= path->asked_us)
        return MR_PATH_SAME;
    enum mr_path_change change = path_fail(path);
    ask_next(path, now_us);
    return change;
}

uint64_t mr_path_sent(struct mr_path *path, uint64_t now_us, uint32_t wait_us)
{
    if (path->tries == 0)
        path->asked_us = now_us;
    path->tries++;
    path->at_us = now_us + wait_us;
    return ++path->number;
}

enum mr_path_change mr_path_answered(struct mr_path *path, uint64_t number, uint32_t bytes, uint64_t now_us)
{
    if (path->asked_bytes == 0 || bytes != path->asked_bytes || number < path->first_number ||
        number > path->number)
        return MR_PATH_SAME;
    bool changes = bytes != path->bytes || !path->confirmed;
    path->bytes = bytes;
    path->confirmed = true;
    path->narrow = false;
    ask_next(path, now_us);
    return changes ? MR_PATH_CHANGED : MR_PATH_SAME;
}

static void doubt(struct mr_path *path, uint64_t now_us)
{
    if (path->asked_bytes != 0 && path->asked_bytes <= path->bytes)
        return; /* such a probe is open already */
    path->confirmed = false;
    ask_next(path, now_us);
}

bool mr_path_doubt(struct mr_path *path, uint64_t now_us)
{
    if (now_us - path->asked_us < MR_PATH_DOUBT_US || !path->confirmed)
        return false;
    doubt(path, now_us);
    return true;
}

void mr_path_hint(struct mr_path *path, uint32_t bytes, uint64_t now_us)
{
    bytes &= ~(STEP_BYTES - 1);
    if (bytes < path->bytes) {
        path->hint_bytes = bytes > MR_UDP_BYTES_MIN ? bytes : 0;
        doubt(path, now_us);
    } else if (bytes > path->bytes && bytes < path->asked_bytes) {
        path_ask(path, bytes, now_us);
    }
}
