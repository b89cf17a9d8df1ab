#include "dataplane/dpdk/port_lock.h"
#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <xxhash.h>
#include "dataplane/dpdk/netdev.h"
#include "dataplane/dpdk/pci_device.h"
#include "dataplane/dpdk/port.h"

#define NAME_BYTES                                                                                           \
    (sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1) /* after the NUL that makes it abstract */
#define KEY_BYTES    40u
#define PREFIX_BYTES 64u
#define LINE_BYTES   512u

/* Links in the path of a memif socket's directory lead to one place; the socket itself need not be there. */
static void canonical_path(const char *path, char *out, size_t out_bytes)
{
    char directory[PATH_MAX], resolved[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    snprintf(directory, sizeof(directory), "%.*s/", slash != NULL ? (int)(slash - path) : 1,
             slash != NULL ? path : ".");
    if (realpath(directory, resolved) == NULL)
        snprintf(resolved, sizeof(resolved), "%s", directory);
    snprintf(out, out_bytes, "%s/%s", resolved, name);
}

/* What the device is called in the lock's name: the interface's first name, as it may have others, or a hash
 * of what may be long. */
static void device_key(const struct dp_config *config, char *out, size_t out_bytes)
{
    char text[PATH_MAX + sizeof(config->device)], interface[IF_NAMESIZE];
    enum dp_driver driver = dp_port_choose_bus(config);
    if (driver != DP_DRIVER_PCI && driver != DP_DRIVER_MEMIF) {
        unsigned index = if_nametoindex(config->device);
        bool named = index != 0 && if_indextoname(index, interface) != NULL;
        snprintf(out, out_bytes, "%.32s", named ? interface : config->device);
        return;
    }
    snprintf(text, sizeof(text), "%s", config->device);
    if (driver == DP_DRIVER_MEMIF)
        canonical_path(config->device, text, sizeof(text));
    else
        (void)dp_pci_name(config->device, text);
    snprintf(out, out_bytes, "%016llx", (unsigned long long)XXH3_64bits(text, strlen(text)));
}

/* A socket bound to the abstract name, or -errno. */
static int take_name(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strnlen(name, NAME_BYTES);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    memcpy(address.sun_path + 1, name, bytes);
    if (bind(fd, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes)) == 0)
        return fd;
    int result = -errno;
    close(fd);
    return result;
}

/* The holder's label, "PID/NODE", from the kernel's list of sockets; false when it cannot be read or holds
 * none. */
static bool find_label(const char *prefix, char *label, size_t label_bytes)
{
    FILE *file = fopen("/proc/thread-self/net/unix", "re");
    char line[LINE_BYTES], wanted[LINE_BYTES];
    bool found = false;
    if (file == NULL)
        return false;
    snprintf(wanted, sizeof(wanted), " @%s", prefix);
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        const char *at = strstr(line, wanted);
        if (at == NULL)
            continue;
        at += strlen(wanted);
        snprintf(label, label_bytes, "%.*s", (int)strcspn(at, "\n"), at);
        found = true;
    }
    fclose(file);
    return found;
}

static void describe_holder(const char *device, const char *prefix, char error[DP_ERROR_BYTES])
{
    char label[NAME_BYTES + 1] = "";
    int pid, name_at = 0;
    if (find_label(prefix, label, sizeof(label)) && sscanf(label, "%d/%n", &pid, &name_at) == 1 &&
        name_at > 0)
        snprintf(
            error, DP_ERROR_BYTES,
            "port: %s is in use by the node \"%s\", process %d; stop that one first, or give this node a "
            "device of its own with port.device",
            device, label + name_at, pid);
    else
        snprintf(error, DP_ERROR_BYTES,
                 "port: %s is in use by another node; stop that one first, or give this node a device of its "
                 "own with port.device",
                 device);
}

bool dp_port_lock(struct dp_port_lock *lock, const struct dp_config *config, char error[DP_ERROR_BYTES])
{
    char key[KEY_BYTES], name[PREFIX_BYTES], prefix[PREFIX_BYTES], label[NAME_BYTES + 1];
    *lock = (struct dp_port_lock){.device = -1, .label = -1};
    /* A socket's address has one owner anyway; a memif's client does not own it. */
    if (config->driver == DP_DRIVER_SOCKET || (config->driver == DP_DRIVER_MEMIF && config->memif_client))
        return true;
    device_key(config, key, sizeof(key));
    snprintf(name, sizeof(name), "millrace/port/%s", key);
    snprintf(prefix, sizeof(prefix), "millrace/held/%s/", key);
    lock->device = take_name(name);
    if (lock->device == -EADDRINUSE) {
        describe_holder(config->device, prefix, error);
        return false;
    }
    if (lock->device < 0) {
        snprintf(error, DP_ERROR_BYTES, "port: %s cannot be locked: %s", config->device,
                 strerror(-lock->device));
        return false;
    }
    snprintf(label, sizeof(label), "%s%d/%.31s", prefix, (int)getpid(), config->file_prefix);
    lock->label = take_name(label); /* without it others learn only that somebody is there */
    return true;
}

void dp_port_unlock(struct dp_port_lock *lock)
{
    if (lock->label >= 0)
        close(lock->label);
    if (lock->device >= 0)
        close(lock->device);
    *lock = (struct dp_port_lock){.device = -1, .label = -1};
}
