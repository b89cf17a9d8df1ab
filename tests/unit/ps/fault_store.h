/* A store that fails on purpose: another one behind it (the local file system by default), and faults at the
 * Nth call. What a machine finds when its power fails is power_store.h's business. For tests; one writer at a
 * time. */
#ifndef TESTS_FAULT_STORE_H
#define TESTS_FAULT_STORE_H

#include <stdatomic.h>
#include "ps/io/store.h"

enum fault_mode {
    FAULT_ONCE,       /* call `fail_at` fails, later ones work */
    FAULT_FOR_EVER,   /* call `fail_at` and all later ones fail */
    FAULT_SHORT_ONCE, /* write `fail_at` moves half of its bytes; only writes are counted */
};

/* Calls that can fail, as bits. */
enum fault_call {
    FAULT_MAKE_DIRECTORY = 1,
    FAULT_CREATE = 2,
    FAULT_OPEN = 4,
    FAULT_WRITE = 8,
    FAULT_READ = 16,
    FAULT_SYNC = 32,
    FAULT_CLOSE = 64,
    FAULT_RENAME = 128,
    FAULT_SYNC_DIRECTORY = 256,
    FAULT_LIST = 512,
    FAULT_REMOVE = 1024,
    FAULT_CLAIM = 2048,
    FAULT_RESERVE = 4096,
    FAULT_SET_LENGTH = 8192,
    FAULT_FACTS = 16384,
};

struct fault_store {
    struct ps_store store;        /* give &fault.store to the code under test */
    const struct ps_store *below; /* where calls go that do not fail */
    enum fault_mode mode;
    uint32_t fail_at;    /* from 1; 0 = never */
    int error;           /* errno of the failure */
    bool descriptors;    /* let io_uring write to the files */
    bool refuses_direct; /* as file systems do that take O_DIRECT at open and answer EINVAL to each write */
    _Atomic uint32_t calls;
    _Atomic uint32_t reads;   /* that have ended */
    _Atomic bool hold_writes; /* writes wait while this is set */
    bool triggered;           /* the call was reached */
    enum fault_call failed;   /* it was this one */
    bool shortened;           /* and was a write that moved half */
};

void fault_store_init(struct fault_store *f);

#endif
