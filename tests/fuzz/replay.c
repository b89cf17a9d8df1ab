/* Stands in for a fuzzing engine: runs a fuzzer's entry on the files and directories (not their
 * subdirectories) named as arguments, as a plain test of the inputs kept so far. Finding nothing to run is a
 * failure. */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define INPUT_BYTES_MAX (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static bool run_file(const char *path)
{
    bool done = false;
    uint8_t *data = NULL;
    FILE *file = fopen(path, "rb");
    uint8_t *room = malloc(INPUT_BYTES_MAX);
    if (file == NULL || room == NULL)
        goto out;
    size_t bytes = fread(room, 1, INPUT_BYTES_MAX, file);
    if (ferror(file))
        goto out;
    /* A block of exactly that size, so that AddressSanitizer sees every byte read beyond it. */
    data = malloc(bytes + (bytes == 0));
    if (data == NULL)
        goto out;
    for (size_t i = 0; i < bytes; i++)
        data[i] = room[i];
    (void)LLVMFuzzerTestOneInput(data, bytes);
    done = true;
out:
    if (!done)
        fprintf(stderr, "replay: cannot read %s\n", path);
    free(data);
    free(room);
    if (file != NULL)
        fclose(file);
    return done;
}

/* Number of inputs run; -1 when one could not be read. */
static long run_directory(const char *path)
{
    long count = 0;
    DIR *directory = opendir(path);
    if (directory == NULL) {
        fprintf(stderr, "replay: cannot open %s\n", path);
        return -1;
    }
    for (const struct dirent *entry; count >= 0 && (entry = readdir(directory)) != NULL;) {
        char *name = NULL;
        if (entry->d_name[0] == '.')
            continue;
        if (asprintf(&name, "%s/%s", path, entry->d_name) < 0 || !run_file(name))
            count = -1;
        else
            count++;
        free(name);
    }
    closedir(directory);
    return count;
}

int main(int argc, char **argv)
{
    long total = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        bool directory = stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode);
        long count = directory ? run_directory(argv[i]) : run_file(argv[i]) ? 1 : -1;
        if (count < 0)
            return 1;
        total += count;
    }
    printf("replay: %ld inputs\n", total);
    return total > 0 ? 0 : 1;
}
