/* systemd's journal: lines with their fields, by its own protocol. Any thread. */
#ifndef MR_JOURNAL_H
#define MR_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include "dataplane/wire/base/log_line.h"

/* Whether `fd` leads to the journal that systemd has connected it to: `stream` is what it has put into
 * JOURNAL_STREAM, DEVICE:INODE; NULL: nothing. */
bool mr_journal_has(int fd, const char *stream);
/* NULL: lines can be sent; else why not. */
const char *mr_journal_missing(void);
/* Sends a line, which may have to wait for the journal. False: it did not take it. */
bool mr_journal_send(const struct mr_log_record *record, const struct mr_log_identity *who);

/* The fields of a line, as NAME=value. */
#define MR_JOURNAL_FIELDS_MAX (8u + MR_LOG_FIELDS_MAX)
struct mr_journal_entry {
    size_t count;
    size_t lengths[MR_JOURNAL_FIELDS_MAX];
    const char *fields[MR_JOURNAL_FIELDS_MAX]; /* into bytes */
    char bytes[MR_LOG_LINE_BYTES];
};
void mr_journal_entry_make(const struct mr_log_record *record, const struct mr_log_identity *who,
                           struct mr_journal_entry *out);

#endif
