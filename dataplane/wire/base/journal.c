#include "dataplane/wire/base/journal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

bool mr_journal_has(int fd, const char *stream)
{
    struct stat at;
    uintmax_t device, inode;
    int length = 0;
    if (stream == NULL || sscanf(stream, "%ju:%ju%n", &device, &inode, &length) != 2 ||
        stream[length] != '\0')
        return false;
    return fstat(fd, &at) == 0 && (uintmax_t)at.st_dev == device && (uintmax_t)at.st_ino == inode;
}

__attribute__((format(printf, 3, 4))) static void add(struct mr_journal_entry *e, size_t *used,
                                                      const char *format, ...)
{
    const size_t room = sizeof(e->bytes) - *used;
    va_list arguments;
    if (e->count == MR_JOURNAL_FIELDS_MAX || room < 2)
        return;
    va_start(arguments, format);
    size_t length = (size_t)vsnprintf(e->bytes + *used, room, format, arguments);
    va_end(arguments);
    length = length < room ? length : room - 1;
    e->fields[e->count] = e->bytes + *used;
    e->lengths[e->count++] = length;
    *used += length + 1;
}

static int priority(enum mr_log_level level)
{
    static const int priorities[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
    return priorities[level];
}

static void add_field(struct mr_journal_entry *e, size_t *used, const struct mr_log_field *field)
{
    char name[64];
    size_t i = 0;
    for (; field->name[i] != '\0' && i + 1 < sizeof(name); i++)
        name[i] = (char)toupper((unsigned char)field->name[i]);
    name[i] = '\0';
    if (field->text != NULL)
        add(e, used, "MILLRACE_%s=%s", name, field->text);
    else
        add(e, used, "MILLRACE_%s=%" PRIu64, name, field->number);
}

void mr_journal_entry_make(const struct mr_log_record *record, const struct mr_log_identity *who,
                           struct mr_journal_entry *out)
{
    const struct mr_log_site *site = record->site;
    const char *folder;
    const size_t folder_length = mr_log_component(site->file, &folder);
    size_t used = 0;
    out->count = 0;
    add(out, &used, "MESSAGE=%s", record->message);
    add(out, &used, "PRIORITY=%d", priority(site->level));
    add(out, &used, "SYSLOG_IDENTIFIER=%s", who->program);
    add(out, &used, "CODE_FILE=%s", site->file);
    add(out, &used, "CODE_LINE=%d", site->line);
    if (who->node[0] != '\0')
        add(out, &used, "MILLRACE_NODE=%s", who->node);
    add(out, &used, "MILLRACE_COMPONENT=%.*s", (int)folder_length, folder);
    add(out, &used, "MILLRACE_EVENT=%s", site->event);
    for (size_t i = 0; i < record->field_count; i++)
        add_field(out, &used, &record->fields[i]);
}

#ifdef MR_HAVE_SYSTEMD
#define SD_JOURNAL_SUPPRESS_LOCATION /* the line has its own */
#include <systemd/sd-journal.h>

const char *mr_journal_missing(void)
{
    return access("/run/systemd/journal/socket", W_OK) == 0
               ? NULL
               : "/run/systemd/journal/socket is not there: systemd-journald does not run here";
}

bool mr_journal_send(const struct mr_log_record *record, const struct mr_log_identity *who)
{
    struct mr_journal_entry entry;
    struct iovec parts[MR_JOURNAL_FIELDS_MAX];
    mr_journal_entry_make(record, who, &entry);
    for (size_t i = 0; i < entry.count; i++)
        parts[i] = (struct iovec){.iov_base = (void *)entry.fields[i], .iov_len = entry.lengths[i]};
    return sd_journal_sendv(parts, (int)entry.count) >= 0;
}
#else
const char *mr_journal_missing(void)
{
    return "this program was built without libsystemd";
}

bool mr_journal_send(const struct mr_log_record *record, const struct mr_log_identity *who)
{
    (void)record;
    (void)who;
    return false;
}
#endif
