/* Annotations: what happened on a node, and when, in words. Clients set them (ANNOTATE, mr_annotate()), and
 * so does the node itself for what its log says at level info and above: checkpoints, restores, moves, its
 * configuration.
 */
#ifndef MR_ANNOTATION_H
#define MR_ANNOTATION_H

#include <stdint.h>

#define MR_ANNOTATION_EVENT_BYTES  32u
#define MR_ANNOTATION_CLIENT_BYTES 64u
#define MR_ANNOTATION_TEXT_BYTES   144u /* with the zero at the end */
#define MR_ANNOTATION_CLIENT                                                                                 \
    "annotation" /* the event of those that clients set; others are events of the log */

/* As on the wire. Strings end with a zero. */
struct mr_annotation {
    uint64_t sequence; /* counts from 1 since the node's start */
    uint64_t age_ns;   /* when the node answered */
    char event[MR_ANNOTATION_EVENT_BYTES];
    char client[MR_ANNOTATION_CLIENT_BYTES]; /* its address; "": the node itself */
    char text[MR_ANNOTATION_TEXT_BYTES];
};

#endif
