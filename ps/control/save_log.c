#include "ps/control/save_log.h"

#include <stddef.h>

struct ps_save_entry *ps_save_log_add(struct ps_save_log *log)
{
    uint64_t number = ++log->last_number;
    struct ps_save_entry *entry = &log->entries[number % PS_SAVE_LOG_MAX];
    *entry = (struct ps_save_entry){.number = number};
    return entry;
}

struct ps_save_entry *ps_save_log_find(struct ps_save_log *log, uint64_t number)
{
    struct ps_save_entry *entry = &log->entries[number % PS_SAVE_LOG_MAX];
    return number != 0 && entry->number == number ? entry : NULL;
}
