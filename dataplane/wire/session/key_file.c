#include "dataplane/wire/session/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_DIGITS     (2 * MR_PSK_BYTES)
#define FILE_BYTES_MAX 4096
#define GROUPS_MAX     1024

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

enum mr_status mr_key_parse(const char *text, size_t text_bytes, uint8_t key[MR_PSK_BYTES], const char **why)
{
    const char *reason = NULL;
    uint8_t parsed[MR_PSK_BYTES];
    size_t parsed_bytes = 0;
    while (text_bytes > 0 && is_space(text[0])) {
        text++;
        text_bytes--;
    }
    while (text_bytes > 0 && is_space(text[text_bytes - 1]))
        text_bytes--;

    if (text_bytes == 0)
        reason = "it is empty";
    else if (text_bytes < KEY_DIGITS)
        reason = "it has fewer than 64 characters";
    else if (text_bytes > KEY_DIGITS)
        reason = "it has more than 64 characters";
    else if (sodium_hex2bin(parsed, sizeof(parsed), text, text_bytes, NULL, &parsed_bytes, NULL) != 0 ||
             parsed_bytes != MR_PSK_BYTES)
        reason = "it has a character that is not a hex digit";
    else if (sodium_is_zero(parsed, sizeof(parsed)))
        reason = "it is all zeros, which stands for no key";

    if (reason == NULL)
        memcpy(key, parsed, MR_PSK_BYTES);
    else if (why != NULL)
        *why = reason;
    sodium_memzero(parsed, sizeof(parsed));
    return reason == NULL ? MR_OK : MR_INVALID_ARGUMENT;
}

/* A command that writes the file is suggested only if there is none yet: it would destroy a key that others
 * use. */
static void describe_missing(const char *path, int error_number, char *error, size_t error_bytes)
{
    const char *why = strerror(error_number);
    if (error_number == ENOENT)
        snprintf(error, error_bytes, "key file %s: %s; make one with: (umask 077; openssl rand -hex 32 > %s)",
                 path, why, path);
    else if (error_number == EACCES)
        snprintf(error, error_bytes, "key file %s: %s; the user of this process (%u) must be able to read it",
                 path, why, (unsigned)geteuid());
    else
        snprintf(error, error_bytes, "key file %s: %s", path, why);
}

enum mr_status mr_key_file_read(const char *path, uint8_t key[MR_PSK_BYTES], char *error, size_t error_bytes)
{
    char text[FILE_BYTES_MAX];
    const char *why = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC); /* without stdio, whose buffer would keep the key */
    if (fd < 0) {
        describe_missing(path, errno, error, error_bytes);
        return MR_INVALID_ARGUMENT;
    }
    size_t n = 0;
    int read_error = 0;
    for (ssize_t more = 1; more != 0 && n < sizeof(text);) {
        more = read(fd, text + n, sizeof(text) - n);
        if (more < 0 && errno != EINTR) {
            read_error = errno;
            break;
        }
        n += more > 0 ? (size_t)more : 0;
    }
    close(fd);

    enum mr_status status = MR_INVALID_ARGUMENT;
    if (read_error != 0)
        snprintf(error, error_bytes, "key file %s: %s", path, strerror(read_error));
    else if (n == sizeof(text))
        snprintf(error, error_bytes, "key file %s: a key is 64 hex digits; this file is far longer", path);
    else if ((status = mr_key_parse(text, n, key, &why)) != MR_OK)
        snprintf(error, error_bytes, "key file %s: a key is 64 hex digits; %s", path, why);
    sodium_memzero(text, sizeof(text));
    return status;
}

static bool is_own_group(gid_t group)
{
    gid_t groups[GROUPS_MAX];
    const int count = getgroups(GROUPS_MAX, groups);
    bool is_own = group == getegid();
    for (int i = 0; i < count && !is_own; i++)
        is_own = groups[i] == group;
    return is_own;
}

bool mr_key_file_is_exposed(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    return (st.st_mode & (S_IROTH | S_IWOTH | S_IWGRP)) != 0 ||
           ((st.st_mode & S_IRGRP) != 0 && !is_own_group(st.st_gid));
}
