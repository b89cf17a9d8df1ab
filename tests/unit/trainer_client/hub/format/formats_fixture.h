/* The formats that are built in, made before a group of tests and freed after it; and formats of a test's
 * own. */
#ifndef TESTS_FORMATS_FIXTURE_H
#define TESTS_FORMATS_FIXTURE_H

#include <stdio.h>
#include <string.h>
#include "trainer_client/hub/format/format.h"

static struct hub_formats *formats;

static inline int make_formats(void **state)
{
    formats = hub_formats_create();
    return formats != NULL ? 0 : -1;
}

static inline int free_formats(void **state)
{
    hub_formats_destroy(formats);
    return 0;
}

/* The format of a description; NULL: `why` (HUB_FORMAT_ERROR_BYTES) has the error. */
static inline struct hub_format *read_format(const char *text, char *why)
{
    struct hub_format *made = NULL;
    FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    assert_non_null(file);
    why[0] = '\0';
    enum mr_status status = hub_format_read(file, "own.ini", &made, why);
    assert_int_equal(status == MR_OK, made != NULL);
    fclose(file);
    return made;
}

#endif
