/* A store that fails on purpose: the local file system behind it, faults at the Nth call, and the loss of what was not
 * synced when the machine "crashes". For tests; one writer at a time. */
#ifndef TESTS_FAULT_STORE_H
#define TESTS_FAULT_STORE_H

#include <stdatomic.h>
#include "ps/checkpoint_store.h"

enum fault_mode {
    FAULT_ONCE,       /* call `fail_at` fails, later ones work */
    FAULT_FOR_EVER,   /* call `fail_at` and all later ones fail: the process died there */
    FAULT_SHORT_ONCE, /* a write at `fail_at` moves half of its bytes */
};

#define FAULT_FILES_MAX 16

struct fault_store {
    struct ps_store store; /* give &fault.store to the code under test */
    enum fault_mode mode;
    uint32_t fail_at; /* from 1; 0 = never */
    int error;        /* errno of the failure */
    bool descriptors; /* let io_uring write to the files */
    _Atomic uint32_t calls;
    _Atomic bool hold_writes; /* writes wait while this is set */
    bool triggered;           /* the call was reached */
    bool shortened;           /* and was a write that moved half */
    /* what a crash would lose */
    struct {
        char path[PS_PATH_BYTES];
        bool content_synced, name_synced;
    } files[FAULT_FILES_MAX];
    uint32_t file_count;
    char renamed_from[PS_PATH_BYTES], renamed_to[PS_PATH_BYTES]; /* a rename whose parent is not synced */
};

void fault_store_init(struct fault_store *f);
/* The power fails: contents that were not synced are lost by half, names that were not synced vanish. With lose_rename an
 * unsynced rename is undone, without it has happened to reach the disk. */
void fault_store_power_loss(struct fault_store *f, bool lose_rename);

#endif
