/* Asks a store of checkpoints what a node needs of it: whether it can be listed, and written to, read from
 * and deleted from; what it holds; and its clock. */
#ifndef TOOL_DOCTOR_STORE_H
#define TOOL_DOCTOR_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/store/remote_store.h"

struct doctor_store {
    char directory[PS_TEXT_BYTES];
    const char *failed;      /* "list", "write", ...; NULL: nothing failed */
    char why[PS_TEXT_BYTES]; /* it failed: "error; how to fix it" */
    uint32_t checkpoints;    /* that it holds */
    uint64_t newest;         /* 0: none */
    bool is_unreadable;      /* the newest, for the reason `why` */
    bool has_clock;
    int64_t ahead_s; /* of its clock */
    bool is_s3;
    char server[PS_HTTP_SERVER_BYTES + 32]; /* its kind and version; "": it does not tell */
    bool has_condition;
    enum ps_condition condition; /* of S3 */
};

/* Writes and removes a file there. `credentials`: a file, "": the environment. */
void doctor_ask_store(const char *url, const char *credentials, struct doctor_store *out);

#endif
