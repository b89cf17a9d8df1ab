/* A directory of a test's own, below TMPDIR or /tmp. */
#ifndef TEMPORARY_DIRECTORY_H
#define TEMPORARY_DIRECTORY_H

/* Returns its path. Fails the test if it cannot be made. */
char *temporary_directory_make(void);
/* Removes it with all that is in it, and frees the path. Returns 0, or -1 if something is left. */
int temporary_directory_remove(char *path);

/* cmocka's setup and teardown: *state is the path. */
int temporary_directory_setup(void **state);
int temporary_directory_teardown(void **state);

#endif
