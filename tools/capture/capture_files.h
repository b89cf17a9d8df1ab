/* Where captured packets go: one file, standard output, or the newest of several files. Only whole blocks
 * are appended, so every file is readable at any time, and when the program is killed. */
#ifndef CAPTURE_FILES_H
#define CAPTURE_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include "tools/capture/pcapng.h"

#define CAPTURE_ERROR_BYTES 512

struct capture_files {
    const char *path;    /* "-": standard output */
    uint64_t file_bytes; /* a file becomes no longer; 0: there is one file */
    uint32_t files_max;  /* so many are kept; 0: all */
    /* what each file begins with, and ends with */
    void (*begin)(void *arg, struct pcapng *out);
    void (*end)(void *arg, struct pcapng *out);
    void *arg;

    int fd;           /* -1: none is open */
    uint32_t number;  /* of the file, from 1 */
    uint64_t written; /* to it */
    uint32_t end_bytes;
    struct pcapng blocks; /* that have not been written */
};

/* The name of file `number`: "x.pcapng" becomes "x-00001.pcapng". */
void capture_file_name(const char *path, uint32_t number, char *out, uint32_t out_bytes);

/* Opens the first file. False, here and below: one line in `error`. */
bool capture_files_open(struct capture_files *files, char error[CAPTURE_ERROR_BYTES]);
/* Adds a packet; it is in the file after the next flush. */
bool capture_files_add(struct capture_files *files, const struct pcapng_packet *packet,
                       char error[CAPTURE_ERROR_BYTES]);
bool capture_files_flush(struct capture_files *files, char error[CAPTURE_ERROR_BYTES]);
/* Ends the last file. To be called once, also after a failure. */
bool capture_files_close(struct capture_files *files, char error[CAPTURE_ERROR_BYTES]);

#endif
