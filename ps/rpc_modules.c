#include "ps/rpc_modules.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "ps/log.h"

#define PATH_BYTES 1024

bool ps_rpc_module_split(const char *value, char *path, size_t path_bytes, const char **arguments)
{
    size_t length = strcspn(value, " \t");
    bool has_slash = memchr(value, '/', length) != NULL;
    int bytes = snprintf(path, path_bytes, "%s%.*s", has_slash ? "" : MR_MODULE_DIR "/", (int)length, value);
    *arguments = value + length + strspn(value + length, " \t");
    return bytes >= 0 && (size_t)bytes < path_bytes;
}

/* Where a module's line stands, its path, and what is the matter with it. */
__attribute__((format(printf, 5, 6))) static enum mr_status refuse(const struct ps_config *config,
                                                                   uint32_t index, char *error,
                                                                   size_t error_bytes, const char *format,
                                                                   ...)
{
    char place[PS_CONFIG_PLACE_BYTES];
    ps_config_place(config, config->rpc_module.lines[index], place, sizeof(place));
    int at = snprintf(error, error_bytes, "%s%srpc.module = %.120s: ", place, place[0] == '\0' ? "" : ": ",
                      config->rpc_module.values[index]);
    if (at < 0 || (size_t)at >= error_bytes) {
        return MR_INVALID_ARGUMENT;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error + at, error_bytes - (size_t)at, format, arguments);
    va_end(arguments);
    return MR_INVALID_ARGUMENT;
}

/* dlerror() without the path, which stands before it already. */
static const char *why_not(const char *path)
{
    const char *why = dlerror();
    size_t bytes = strlen(path);
    if (why == NULL) {
        return "unknown";
    }
    return strncmp(why, path, bytes) == 0 && why[bytes] == ':'
               ? why + bytes + 1 + strspn(why + bytes + 1, " ")
               : why;
}

static void note_exit(void *object, struct ps_rpc_modules *modules)
{
    void *symbol = dlsym(object, MR_MODULE_EXIT_SYMBOL);
    if (symbol != NULL) {
        memcpy(&modules->exits[modules->count++], &symbol, sizeof(symbol));
    }
}

static enum mr_status load_one(const struct ps_config *config, uint32_t index, struct mr_rpc *rpc,
                               struct ps_rpc_modules *modules, char *error, size_t error_bytes)
{
    char path[PATH_BYTES], why[256] = "";
    const char *arguments;
    if (!ps_rpc_module_split(config->rpc_module.values[index], path, sizeof(path), &arguments)) {
        return refuse(config, index, error, error_bytes, "the path is too long");
    }
    if (access(path, R_OK) != 0) {
        return refuse(config, index, error, error_bytes,
                      "there is no such file that can be read (%.200s): name a shared object", path);
    }
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        return refuse(
            config, index, error, error_bytes,
            "it cannot be loaded: %.200s; build it as a shared object against this version's millrace_rpc.h",
            why_not(path));
    }
    mr_module_init init = NULL;
    void *symbol = dlsym(object, MR_MODULE_INIT_SYMBOL);
    memcpy(&init, &symbol, sizeof(symbol));
    if (init == NULL) {
        return refuse(config, index, error, error_bytes,
                      "it is no module: it has no function " MR_MODULE_INIT_SYMBOL " (see millrace_rpc.h)");
    }
    enum mr_status status = init(rpc, arguments, why, sizeof(why));
    if (status == MR_OK) {
        note_exit(object, modules);
        ps_log("module %s loaded", path);
        return MR_OK;
    }
    (void)refuse(config, index, error, error_bytes,
                 "its start failed: %.200s; mend its arguments (\"%.80s\"), or take the line out",
                 why[0] != '\0' ? why : mr_status_text(status), arguments);
    return status;
}

enum mr_status ps_rpc_modules_load(const struct ps_config *config, struct mr_rpc *rpc,
                                   struct ps_rpc_modules *modules, char *error, size_t error_bytes)
{
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < config->rpc_module.count && status == MR_OK; i++) {
        status = load_one(config, i, rpc, modules, error, error_bytes);
    }
    return status;
}

void ps_rpc_modules_exit(struct ps_rpc_modules *modules, struct mr_rpc *rpc)
{
    while (modules->count > 0) {
        modules->exits[--modules->count](rpc);
    }
}
