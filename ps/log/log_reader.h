/* Reads one segment of a log, record after record; each block is verified before its first record is given
 * out.
 *
 * The log ends where no block of the segment lies, or one that is not as it was written: a flush that a crash
 * cut short, of which nobody was told. If a whole block does follow, the file is damaged: a flush only began
 * after the one before it had ended. Belongs to one thread at a time.
 */
#ifndef PS_LOG_READER_H
#define PS_LOG_READER_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/io/store.h"
#include "ps/log/log_format.h"

struct ps_log_reader;

enum ps_log_read {
    PS_LOG_READ_RECORD,
    PS_LOG_READ_END,
    PS_LOG_READ_TORN,    /* the end, where some bytes of a block lie that was never durable */
    PS_LOG_READ_DAMAGED, /* `text` says what and where */
    PS_LOG_READ_FAILED,  /* the file cannot be read, or memory is short; `text` */
};

/* Opens the segment and reads its header. limit_bytes: the file counts as no longer than that; 0: as long as
 * it is. READ_TORN: it is too short for a header, or its header is wrong and no block follows; READ_DAMAGED;
 * READ_FAILED, with -errno of a file that is missing in *error; READ_RECORD: it is open. */
enum ps_log_read ps_log_reader_open(const struct ps_store *store, const char *path, uint64_t limit_bytes,
                                    struct ps_log_reader **out, int *error, char text[PS_TEXT_BYTES]);
void ps_log_reader_close(struct ps_log_reader *r); /* NULL is fine */
const struct ps_log_header *ps_log_reader_header(const struct ps_log_reader *r);
/* READ_RECORD: the next record and its content, in the reader's memory, which the caller may change, until
 * the next call. */
enum ps_log_read ps_log_reader_next(struct ps_log_reader *r, const struct ps_log_record **record,
                                    uint8_t **content, char text[PS_TEXT_BYTES]);
/* The bytes up to the end of the last block that was whole. */
uint64_t ps_log_reader_good_bytes(const struct ps_log_reader *r);
/* After READ_TORN: of the block that lies there. */
uint64_t ps_log_reader_torn_bytes(const struct ps_log_reader *r);
/* After READ_END: whether the last block says that it is that. */
bool ps_log_reader_is_closed(const struct ps_log_reader *r);
/* Makes durable what was read: the process that wrote it may have died before that. 0 or -errno. */
int ps_log_reader_sync(const struct ps_log_reader *r);

#endif
