/* Lines of a file, from any offset on, with bounded memory. Reads with pread(): a file that is cut short
 * while it is read ends early, where a mapping would end the process. One thread.
 */
#ifndef HUB_LINES_H
#define HUB_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hub_lines {
    int fd;
    char *buffer;
    size_t capacity, begin, end; /* bytes [begin, end) are read and not handed out */
    size_t read_bytes;
    uint64_t offset;             /* in the file, of `begin` */
    uint64_t line_number;        /* of the line at `begin`; from 1 */
    struct XXH3_state_s *digest; /* gets every byte that is read; NULL: none is made */
    bool at_end;
    int error_number; /* errno of a failed read, 0 = none */
};

struct hub_line {
    const char *text; /* no line end ("\n" or "\r\n"); valid until the next call */
    size_t bytes;
    uint64_t number, offset;
    bool too_long; /* more than HUB_LINE_BYTES_MAX: text is not to be looked at */
};

/* read_bytes: how much to read at a time. False: no memory. */
bool hub_lines_init(struct hub_lines *l, int fd, size_t read_bytes);
void hub_lines_free(struct hub_lines *l);
/* Go on at `offset`, where the line `line_number` begins. */
void hub_lines_seek(struct hub_lines *l, uint64_t offset, uint64_t line_number);
/* False at the end of the file and on a read error (l->error_number). */
bool hub_lines_next(struct hub_lines *l, struct hub_line *line);

#endif
