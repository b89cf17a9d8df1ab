/* Prints the names and numbers of the protocol as Lua, and then the dissector that uses them: so they are
 * always those of the headers.
 *
 * usage: dissector_names DISSECTOR.LUA > millrace.lua */
#include <stdio.h>
#include <stdlib.h>

#include "dataplane/wire/format/message.h"
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/mr_tensor.h"
#include "dataplane/wire/format/op.h"
#include "dataplane/wire/format/packet.h"

struct name {
    const char *symbol, *text;
    unsigned value;
};

#define END                                                                                                  \
    {                                                                                                        \
        NULL, NULL, 0                                                                                        \
    }

static const struct name types[] = {
#define TYPE(name, value) {#name, #name, (value)},
    MR_PACKET_TYPE_LIST(TYPE)
#undef TYPE
        END};
static const struct name ops[] = {
#define MR_OP(NAME, name, value, repeatable, role, served, request, reply) {#NAME, #name, (value)},
#include "dataplane/wire/format/ops.def"
    END};
static const struct name statuses[] = {
#define STATUS(name, value, text) {#name, #name, (value)},
    MR_STATUS_LIST(STATUS)
#undef STATUS
        END};
static const struct name dtypes[] = {
#define DTYPE(name, value, bytes, text) {#name, text, (value)},
    MR_DTYPE_LIST(DTYPE)
#undef DTYPE
        END};

static void print_names(const char *what, const struct name *names)
{
    (void)printf("local %s_names = {\n", what);
    for (const struct name *n = names; n->symbol != NULL; n++)
        (void)printf("    [%u] = \"%s\",\n", n->value, n->text);
    (void)printf("}\nlocal %s_of = {\n", what);
    for (const struct name *n = names; n->symbol != NULL; n++)
        (void)printf("    %s = %u,\n", n->symbol, n->value);
    (void)printf("}\n");
}

static int dissector_names_copy(const char *path)
{
    char bytes[4096];
    size_t count;
    FILE *in = fopen(path, "r");
    if (in == NULL) {
        perror(path);
        return EXIT_FAILURE;
    }
    while ((count = fread(bytes, 1, sizeof(bytes), in)) > 0)
        (void)fwrite(bytes, 1, count, stdout);
    const int failed = ferror(in);
    (void)fclose(in);
    return failed || fflush(stdout) != 0 || ferror(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: dissector_names DISSECTOR.LUA > millrace.lua\n");
        return EXIT_FAILURE;
    }
    (void)printf("-- Millrace %s: made from the headers and tools/capture/dissector.lua\n\n", MR_VERSION);
    (void)printf("local magic, protocol_version, header_bytes = %u, %u, %u\n", MR_MAGIC, MR_PROTOCOL_VERSION,
                 MR_HEADER_BYTES);
    print_names("type", types);
    print_names("op", ops);
    print_names("status", statuses);
    print_names("dtype", dtypes);
    return dissector_names_copy(argv[1]);
}
