#include "ps/store/credentials.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/session/key_file.h"
#include "ps/checkpoint/checkpoint_format.h"

struct reading {
    struct ps_credentials *out;
    const char *profile;
    bool is_in_profile, is_too_long;
};

static bool credentials_take(char *out, const char *value)
{
    return (size_t)snprintf(out, PS_SECRET_BYTES, "%s", value) < PS_SECRET_BYTES;
}

static char *field_of(struct ps_credentials *c, const char *name)
{
    if (strcmp(name, "aws_access_key_id") == 0)
        return c->access_key;
    if (strcmp(name, "aws_secret_access_key") == 0)
        return c->secret_key;
    if (strcmp(name, "aws_session_token") == 0)
        return c->session_token;
    return strcmp(name, "hdfs_delegation_token") == 0 ? c->hdfs_token : NULL;
}

static char *trim(char *text)
{
    text += strspn(text, " \t");
    size_t bytes = strlen(text);
    while (bytes > 0 && strchr(" \t\r\n", text[bytes - 1]))
        bytes--;
    text[bytes] = '\0';
    return text;
}

/* Other keys and sections belong to other programs. False: this is not a line of such a file. */
static bool read_line(struct reading *r, char *line)
{
    line = trim(line);
    if (*line == '\0' || *line == '#' || *line == ';')
        return true;
    if (*line == '[') {
        char *end = strchr(line, ']');
        if (!end)
            return false;
        *end = '\0';
        r->is_in_profile = strcmp(trim(line + 1), r->profile) == 0;
        return true;
    }
    char *value = strchr(line, '=');
    if (!value)
        return false;
    *value++ = '\0';
    char *field = r->is_in_profile ? field_of(r->out, trim(line)) : NULL;
    if (field && !credentials_take(field, trim(value)))
        r->is_too_long = true;
    return true;
}

/* The number of the first line that is none of such a file; 0: all are. */
static uint32_t read_lines(struct reading *r, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    uint32_t number = 1;
    bool is_line = true;
    while (is_line && getline(&line, &room, file) >= 0) {
        is_line = read_line(r, line);
        number += is_line;
    }
    if (line)
        explicit_bzero(line, room);
    free(line);
    return is_line ? 0 : number;
}

static void warn_of_readers(const char *path)
{
    if (mr_key_file_is_exposed(path))
        mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"path", .text = path}), "credentials_exposed",
                    "credentials %s can be read by other users of this machine, or changed: chmod 600 %s",
                    path, path);
}

static bool read_file(const char *path, struct ps_credentials *out, char *text)
{
    const char *profile = getenv("AWS_PROFILE");
    struct reading r = {.out = out, .profile = profile && *profile ? profile : "default"};
    FILE *file = fopen(path, "re");
    if (!file) {
        ps_text_io(text, "open", path, errno);
        return false;
    }
    warn_of_readers(path);
    const uint32_t line = read_lines(&r, file);
    (void)fclose(file);
    if (line != 0)
        (void)snprintf(text, PS_TEXT_BYTES,
                       "%.180s:%u: a line of a credentials file is [SECTION] or KEY = VALUE", path, line);
    else if (r.is_too_long)
        ps_text_path(text, path, "one of its values is too long");
    return line == 0 && !r.is_too_long;
}

static bool take_environment(char *out, const char *name, char *text)
{
    const char *value = getenv(name);
    if (!value || credentials_take(out, value))
        return true;
    (void)snprintf(text, PS_TEXT_BYTES, "%s: its value has more than %u bytes", name, PS_SECRET_BYTES - 1);
    return false;
}

/* AWS's own place for credentials, if there is such a file. */
static bool usual_file(char path[PS_PATH_BYTES])
{
    struct stat st;
    const char *named = getenv("AWS_SHARED_CREDENTIALS_FILE"), *home = getenv("HOME");
    if (named && *named)
        return (size_t)snprintf(path, PS_PATH_BYTES, "%s", named) < PS_PATH_BYTES;
    return home && (size_t)snprintf(path, PS_PATH_BYTES, "%s/.aws/credentials", home) < PS_PATH_BYTES &&
           stat(path, &st) == 0;
}

static bool read_environment(struct ps_credentials *out, char *text)
{
    char path[PS_PATH_BYTES];
    if (!take_environment(out->access_key, "AWS_ACCESS_KEY_ID", text) ||
        !take_environment(out->secret_key, "AWS_SECRET_ACCESS_KEY", text) ||
        !take_environment(out->session_token, "AWS_SESSION_TOKEN", text))
        return false;
    if (out->access_key[0] == '\0' && usual_file(path) && !read_file(path, out, text))
        return false;
    return take_environment(out->hdfs_token, "MILLRACE_HDFS_TOKEN", text);
}

bool ps_credentials_read(const char *file, struct ps_credentials *out, char *text)
{
    memset(out, 0, sizeof(*out));
    const bool is_read = file[0] != '\0' ? read_file(file, out, text) : read_environment(out, text);
    if (!is_read)
        explicit_bzero(out, sizeof(*out));
    return is_read;
}
