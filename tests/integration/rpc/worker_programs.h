/* Programs that are workers of one world on loopback: started side by side, and what they said at their end.
 * For cmocka tests. */
#ifndef TESTS_WORKER_PROGRAMS_H
#define TESTS_WORKER_PROGRAMS_H

#include <stdio.h>
#include <sys/types.h>

#define WORKER_TEXT_BYTES 8192u

struct worker_program {
    FILE *from;
    pid_t pid;
    char text[WORKER_TEXT_BYTES]; /* stdout and stderr, once it has ended */
};

/* On loopback, free a moment ago, and not given to anybody else by itself so soon. */
unsigned worker_free_port(void);
/* Starts `path` with arguments, printf style, with blanks between them. */
void worker_start(struct worker_program *p, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Until it ends: with exit code `code`, or by signal -code; else the test fails with what it said. */
void worker_finish(struct worker_program *p, int code);
/* Fails the test, with all that was said, unless `part` is in it. */
void worker_said(const struct worker_program *p, const char *part);
/* The number behind the last `key=`; fails the test when there is none. */
double worker_number(const struct worker_program *p, const char *key);

#endif
