/* Lines of a file, from any offset on, with bounded memory. It is read piece by piece: a file that is cut
 * short while it is read ends early, where a mapping would end the process. One thread.
 */
#ifndef HUB_LINES_H
#define HUB_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "trainer_client/hub/samples/file_bytes.h"

struct hub_lines {
    struct hub_file_bytes *bytes;
    char *buffer;
    size_t capacity, begin, end; /* bytes [begin, end) are read and not handed out */
    size_t read_bytes;
    uint64_t offset;             /* in the file (as it is unpacked), of `begin` */
    uint64_t line_number;        /* of the line at `begin`; from 1 */
    struct XXH3_state_s *digest; /* gets every byte that is read; NULL: none is made */
    bool at_end;
    bool has_failed; /* a read: hub_file_bytes_error() says why */
};

struct hub_line {
    const char *text; /* no line end ("\n" or "\r\n"); valid until the next call */
    size_t bytes;
    uint64_t number, offset;
    bool too_long; /* more than HUB_LINE_BYTES_MAX: text is not to be looked at */
};

/* read_bytes: how much to read at a time. `bytes` stays the caller's. False: no memory. */
bool hub_lines_init(struct hub_lines *l, struct hub_file_bytes *bytes, size_t read_bytes);
void hub_lines_free(struct hub_lines *l);
/* Reads another file from now on, from its start. */
void hub_lines_change(struct hub_lines *l, struct hub_file_bytes *bytes);
/* Go on at `offset`, where the line `line_number` begins. */
void hub_lines_seek(struct hub_lines *l, uint64_t offset, uint64_t line_number);
/* False at the end of the file and on a read error (l->has_failed). */
bool hub_lines_next(struct hub_lines *l, struct hub_line *line);

/* Finds the end of the line that begins at `text`, of which [bytes] are there and the first `looked` have no
 * line end. True: *line_bytes are the line's, without "\n" (*is_whole), or all that are there of one that is
 * longer than any may be. False: more have to come; *line_bytes are all that are there. */
bool hub_line_find(const char *text, size_t bytes, size_t looked, size_t *line_bytes, bool *is_whole);
/* The bytes of a line without the "\r" of its end. */
size_t hub_line_trim(const char *text, size_t bytes);

#endif
