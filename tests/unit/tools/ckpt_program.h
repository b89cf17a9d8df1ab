/* Runs `millrace ckpt` and reads what it says. For cmocka tests: what is not there fails the test. */
#ifndef TESTS_CKPT_PROGRAM_H
#define TESTS_CKPT_PROGRAM_H

#include <stdint.h>
#include <jansson.h>

#define CKPT_OUTPUT_BYTES (1u << 20)

extern const char *ckpt_program;                 /* path of millrace; set by the test's main */
extern char ckpt_output_text[CKPT_OUTPUT_BYTES]; /* of the last run: standard output and error */

/* Arguments behind `ckpt`, as a shell takes them. Returns the exit code. */
int ckpt_run(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The output has this in it. */
void ckpt_expect(const char *says);
/* The output as JSON; to be dropped. */
json_t *ckpt_json(void);
int64_t ckpt_number(const json_t *object, const char *key);
const char *ckpt_word(const json_t *object, const char *key);
/* The object of that name in a list. */
const json_t *ckpt_feature(const json_t *list, const char *name);

#endif
