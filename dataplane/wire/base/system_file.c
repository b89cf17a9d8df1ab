#include "dataplane/wire/base/system_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 512u

const char *mr_system_read(const char *root, const char *path, char *text, size_t text_bytes)
{
    char full[PATH_BYTES];
    int n = snprintf(full, sizeof(full), "%s%s", root, path);
    int file = n < (int)sizeof(full) ? open(full, O_RDONLY | O_CLOEXEC) : -1;
    size_t got = 0;
    ssize_t part;
    while (file >= 0 && got < text_bytes - 1 && (part = read(file, text + got, text_bytes - 1 - got)) > 0)
        got += (size_t)part;
    text[got] = '\0';
    if (file >= 0)
        (void)close(file);
    return text;
}

const char *mr_system_read_line(const char *root, const char *path, char *line, size_t line_bytes)
{
    (void)mr_system_read(root, path, line, line_bytes);
    line[strcspn(line, "\n")] = '\0';
    return line;
}

const char *mr_system_field(const char *text, const char *field)
{
    const size_t bytes = strlen(field);
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        while (*line == '\n')
            line++;
        if (strncmp(line, field, bytes) == 0)
            return line + bytes;
    }
    return NULL;
}
