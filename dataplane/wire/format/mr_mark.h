/* Marks: what happened on a node, and when, in words. Clients set them (MARK, mr_mark()), and so does the
 * node itself for what its log says at level info and above: checkpoints, restores, moves, its configuration.
 */
#ifndef MR_MARK_H
#define MR_MARK_H

#include <stdint.h>

#define MR_MARK_EVENT_BYTES  32u
#define MR_MARK_CLIENT_BYTES 64u
#define MR_MARK_TEXT_BYTES   144u   /* with the zero at the end */
#define MR_MARK_CLIENT       "mark" /* the event of those that clients set; others are events of the log */

/* As on the wire. Strings end with a zero. */
struct mr_mark {
    uint64_t sequence; /* counts from 1 since the node's start */
    uint64_t age_ns;   /* when the node answered */
    char event[MR_MARK_EVENT_BYTES];
    char client[MR_MARK_CLIENT_BYTES]; /* its address; "": the node itself */
    char text[MR_MARK_TEXT_BYTES];
};

#endif
