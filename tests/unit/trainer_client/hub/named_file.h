/* A file with a name of its own in a directory of its own, for tests that rename or remove it. */
#ifndef TESTS_NAMED_FILE_H
#define TESTS_NAMED_FILE_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct named_file {
    int fd; /* writes go to its end */
    char directory[64], path[80], other_path[80];
};

static inline struct named_file named_file_make(void)
{
    struct named_file f = {.directory = "/tmp/millrace-test-XXXXXX"};
    assert_non_null(mkdtemp(f.directory));
    (void)snprintf(f.path, sizeof(f.path), "%s/samples", f.directory);
    (void)snprintf(f.other_path, sizeof(f.other_path), "%s/samples.1", f.directory);
    f.fd = open(f.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(f.fd >= 0);
    return f;
}

static inline void named_file_write(const struct named_file *f, const char *text)
{
    assert_int_equal(write(f->fd, text, strlen(text)), strlen(text));
}

static inline void named_file_remove(struct named_file *f)
{
    close(f->fd);
    (void)unlink(f->path);
    (void)unlink(f->other_path);
    (void)rmdir(f->directory);
}

#endif
