/* Programs that run to their end in a namespace, and what they wrote. For cmocka tests. */
#ifndef TESTS_PROGRAM_H
#define TESTS_PROGRAM_H

#include "tests/integration/netns.h"

#define PROGRAM_OUTPUT_BYTES 65536
#define PROGRAM_LIMIT_S      120 /* it is ended then, with exit code 124 */

struct program_result {
    int code; /* exit code, or 128 + signal */
    char out[PROGRAM_OUTPUT_BYTES], err[PROGRAM_OUTPUT_BYTES];
};

/* Runs a program with arguments as a shell takes them. */
void program_run(const struct netns *net, enum netns_side side, struct program_result *result,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Fails the test, showing stderr, unless it ended with `code` and stderr says `says`. */
void program_expect(const struct program_result *result, int code, const char *says);

#endif
