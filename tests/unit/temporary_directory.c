#include "tests/unit/temporary_directory.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include "tests/test.h"

#define OPEN_FILES_MAX 8

char *temporary_directory_make(void)
{
    const char *base = getenv("TMPDIR");
    char *path = NULL;
    assert_true(asprintf(&path, "%s/millrace-test-XXXXXX", base != NULL ? base : "/tmp") > 0);
    assert_non_null(mkdtemp(path));
    return path;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

int temporary_directory_remove(char *path)
{
    int result = nftw(path, remove_one, OPEN_FILES_MAX, FTW_DEPTH | FTW_PHYS);
    free(path);
    return result;
}

int temporary_directory_setup(void **state)
{
    *state = temporary_directory_make();
    return 0;
}

int temporary_directory_teardown(void **state)
{
    return temporary_directory_remove(*state);
}
