/* A checkpoint as a trainer sees it, for bench_checkpoint: saves that are waited for, and lookups and pushes
 * while one runs. */
#ifndef CHECKPOINT_LOAD_H
#define CHECKPOINT_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "millrace_admin.h"

#define CHECKPOINT_DIM       16u
#define CHECKPOINT_CALL_KEYS 13312u /* in a call at most */

struct checkpoint_bench {
    struct mr_client *client;
    uint32_t table;
    uint64_t rows;
    unsigned long pid;   /* of the server */
    double seconds;      /* of lookups and pushes without a save, each time */
    uint32_t saves;      /* with and without by turns */
    const char *command; /* of `beside`, for the shell; NULL: none */
    pid_t command_pid;   /* 0: it does not run */
    float gradients[CHECKPOINT_CALL_KEYS * CHECKPOINT_DIM];
};

/* How the save or restore stands; ends the program when it failed. True: it is over. */
bool checkpoint_is_over(struct checkpoint_bench *b, struct mr_checkpoint_info *status);
void checkpoint_begin(struct checkpoint_bench *b, enum mr_save_kind kind);

/* Whether the newest checkpoint is in the store; ends the program when the copy failed. */
bool checkpoint_is_copied(struct checkpoint_bench *b);

/* Prints checkpoint_keys and checkpoint_p99 (without, and with a save), and checkpoint_memory. */
void checkpoint_load(struct checkpoint_bench *b);
/* Prints copy_keys, copy_p99 and copy_memory: the same while a save that is over is copied to the store. */
void checkpoint_copy_load(struct checkpoint_bench *b);
/* Prints command_keys, command_p99 and command_memory: the same while the command runs after a save. */
void checkpoint_command_load(struct checkpoint_bench *b);

#endif
