/* The segments of a node's log: files segment-NUMBER.CORE of the folder `log` of its checkpoint directory,
 * one for each core from one cut to the next. Blocking calls, for the control thread, but for
 * ps_log_replay_next(). */
#ifndef PS_LOG_SEGMENTS_H
#define PS_LOG_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/log/log_reader.h"
#include "ps/log/log_writer.h"

#define PS_LOG_FOLDER    "log"
#define PS_LOG_CORES_MAX 1024u

/* What segments follow: a checkpoint of a directory ("": the node's own), id 0: nothing, the node began
 * empty. */
struct ps_log_base {
    uint64_t id;
    char directory[PS_LOG_DIRECTORY_BYTES];
};

/* Where one core's log ended when it was replayed: the segment, and what counts of it; number 0: it had
 * none. */
struct ps_log_cut {
    uint64_t number, bytes;
};

/* The numbers that are there, ascending. */
struct ps_log_list {
    uint64_t *numbers;
    uint32_t count;
};

/* Lists the segments of a checkpoint directory; none where there is no folder. MR_IO_ERROR, MR_NO_MEMORY, and
 * `text`. The caller frees list->numbers. */
enum mr_status ps_log_list(const struct ps_store *store, const char *directory, struct ps_log_list *list,
                           char text[PS_TEXT_BYTES]);
/* What the headers of a segment say (struct ps_log_header). */
struct ps_log_segment {
    uint64_t number;
    uint32_t core_count;
    const struct ps_log_base *base; /* NULL: it continues the segment before */
    const struct ps_log_cut *cuts;  /* of each core; NULL: no start makes it, or there was no log */
    uint64_t told;
    bool is_first;
};

/* Creates a segment of all cores, durable but for records. MR_IO_ERROR, MR_NO_MEMORY with `text`: nothing is
 * left of it. */
enum mr_status ps_log_create(const struct ps_store *store, const char *directory,
                             const struct ps_log_segment *segment, struct ps_log_file *files,
                             char text[PS_TEXT_BYTES]);
/* Closes and removes what was created and is not to be used. */
void ps_log_discard(const struct ps_store *store, const char *directory, uint64_t number, uint32_t core_count,
                    const struct ps_log_file *files);
/* Removes all segments before this number. 0 or -errno of the first that stays. */
int ps_log_remove_before(const struct ps_store *store, const char *directory, uint64_t number);

/* ---- replay ---- */

struct ps_log_replay; /* of one core */

/* The header of the newest segment, or of the newest with is_first; number 0: there is none. Same errors as
 * below. */
enum mr_status ps_log_newest(const struct ps_store *store, const char *directory,
                             const struct ps_log_list *list, bool is_first, struct ps_log_header *out,
                             char text[PS_TEXT_BYTES]);
/* Finds the segments that follow `base`, from the one with this header on to the last of the list: the newest
 * that begins there, and is not given up. MR_OK with first->number 0: none does. MR_CHECKPOINT_CORRUPT,
 * MR_IO_ERROR, MR_NO_MEMORY, and `text`. */
enum mr_status ps_log_find(const struct ps_store *store, const char *directory,
                           const struct ps_log_list *list, const struct ps_log_base *base,
                           struct ps_log_header *first, char text[PS_TEXT_BYTES]);
/* The records of a core in these segments, from `first` on. Same errors. */
enum mr_status ps_log_replay_open(const struct ps_store *store, const char *directory,
                                  const struct ps_log_list *list, uint64_t first, uint32_t core,
                                  struct ps_log_replay **out, char text[PS_TEXT_BYTES]);
void ps_log_replay_close(struct ps_log_replay *r); /* NULL is fine */
/* The next record, as ps_log_reader_next(); *record NULL: there are no more. By any one thread. */
enum mr_status ps_log_replay_next(struct ps_log_replay *r, const struct ps_log_record **record,
                                  uint8_t **content, char text[PS_TEXT_BYTES]);
/* Bytes of blocks that have been read. */
uint64_t ps_log_replay_bytes(const struct ps_log_replay *r);
/* After the last record: the cut for the next segment, and how many bytes of a torn block lie behind it, of
 * which nobody was told. What is before it is durable. */
struct ps_log_cut ps_log_replay_cut(const struct ps_log_replay *r, uint64_t *torn_bytes);

#endif
