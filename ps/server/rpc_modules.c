#include "ps/server/rpc_modules.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/log.h"

#define PATH_BYTES 1024

bool ps_rpc_module_split(const char *value, char *path, size_t path_bytes, const char **arguments)
{
    size_t length = strcspn(value, " \t");
    bool has_slash = memchr(value, '/', length) != NULL;
    int bytes = snprintf(path, path_bytes, "%s%.*s", has_slash ? "" : MR_MODULE_DIR "/", (int)length, value);
    *arguments = value + length + strspn(value + length, " \t");
    return bytes >= 0 && (size_t)bytes < path_bytes;
}

/* Writes the place of a module's line, the line, and what is wrong with it. */
__attribute__((format(printf, 5, 6))) static enum mr_status refuse(const struct ps_config *config,
                                                                   uint32_t index, char *error,
                                                                   size_t error_bytes, const char *format,
                                                                   ...)
{
    char place[PS_CONFIG_PLACE_BYTES];
    ps_config_place(config, config->rpc_module.lines[index], place, sizeof(place));
    int at = snprintf(error, error_bytes, "%s%srpc.module = %.120s: ", place, place[0] == '\0' ? "" : ": ",
                      config->rpc_module.values[index]);
    if (at < 0 || (size_t)at >= error_bytes)
        return MR_INVALID_ARGUMENT;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error + at, error_bytes - (size_t)at, format, arguments);
    va_end(arguments);
    return MR_INVALID_ARGUMENT;
}

/* Returns dlerror() without the path, which the line has already. */
static const char *why_not(const char *path)
{
    const char *why = dlerror();
    size_t bytes = strlen(path);
    if (why == NULL)
        return "unknown";
    return strncmp(why, path, bytes) == 0 && why[bytes] == ':'
               ? why + bytes + 1 + strspn(why + bytes + 1, " ")
               : why;
}

static enum mr_status load_one(struct ps_rpc_modules *modules, uint32_t index, char *error,
                               size_t error_bytes)
{
    const struct ps_config *config = modules->config;
    char path[PATH_BYTES];
    const char *arguments;
    if (!ps_rpc_module_split(config->rpc_module.values[index], path, sizeof(path), &arguments))
        return refuse(config, index, error, error_bytes, "the path is too long");
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
    void *init = dlsym(object, MR_MODULE_INIT_SYMBOL), *end = dlsym(object, MR_MODULE_EXIT_SYMBOL);
    memcpy(&modules->inits[index], &init, sizeof(init));
    memcpy(&modules->exits[index], &end, sizeof(end));
    if (init == NULL) {
        return refuse(config, index, error, error_bytes,
                      "it is no module: it has no function " MR_MODULE_INIT_SYMBOL " (see millrace_rpc.h)");
    }
    return MR_OK;
}

enum mr_status ps_rpc_modules_load(const struct ps_config *config, struct ps_rpc_modules *out, char *error,
                                   size_t error_bytes)
{
    enum mr_status status = MR_OK;
    *out = (struct ps_rpc_modules){.config = config};
    while (out->count < config->rpc_module.count && status == MR_OK) {
        status = load_one(out, out->count, error, error_bytes);
        out->count += status == MR_OK;
    }
    return status;
}

static void exit_first(const struct ps_rpc_modules *modules, uint32_t count, struct mr_rpc *rpc)
{
    for (uint32_t i = count; i-- > 0;)
        if (modules->exits[i] != NULL)
            modules->exits[i](rpc);
}

enum mr_status ps_rpc_modules_start(const struct ps_rpc_modules *modules, struct mr_rpc *rpc, char *error,
                                    size_t error_bytes)
{
    for (uint32_t i = 0; i < modules->count; i++) {
        char path[PATH_BYTES], why[256] = "";
        const char *arguments;
        (void)ps_rpc_module_split(modules->config->rpc_module.values[i], path, sizeof(path), &arguments);
        enum mr_status status = modules->inits[i](rpc, arguments, why, sizeof(why));
        if (status != MR_OK) {
            (void)refuse(modules->config, i, error, error_bytes,
                         "its start failed: %.200s; fix its arguments (\"%.80s\"), or take the line out",
                         why[0] != '\0' ? why : mr_status_text(status), arguments);
            exit_first(modules, i, rpc);
            return status;
        }
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"module", .text = path}), "module_started",
                    "module %s started", path);
    }
    return MR_OK;
}

void ps_rpc_modules_exit(const struct ps_rpc_modules *modules, struct mr_rpc *rpc)
{
    exit_first(modules, modules->count, rpc);
}
