#include "ps/log/log_disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/number.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/io/store.h"
#include "ps/log/log_format.h"

#define MEASURED 21u /* flushes */

/* By the numbers of linux/magic.h, and of file systems whose own headers have them. */
static const struct {
    unsigned long magic;
    enum ps_log_disk_kind kind;
    const char *name;
} file_systems[] = {
    {0x01021994, PS_LOG_DISK_MEMORY, "tmpfs"},     {0x858458f6, PS_LOG_DISK_MEMORY, "ramfs"},
    {0x958458f6, PS_LOG_DISK_MEMORY, "hugetlbfs"}, {0x6969, PS_LOG_DISK_NETWORK, "nfs"},
    {0xff534d42, PS_LOG_DISK_NETWORK, "cifs"},     {0xfe534d42, PS_LOG_DISK_NETWORK, "smb2"},
    {0x01021997, PS_LOG_DISK_NETWORK, "9p"},       {0x00c36400, PS_LOG_DISK_NETWORK, "ceph"},
    {0x0bd00bd0, PS_LOG_DISK_NETWORK, "lustre"},   {0x794c7630, PS_LOG_DISK_LAYER, "overlay"},
    {0xef53, PS_LOG_DISK_LOCAL, "ext4"},           {0x58465342, PS_LOG_DISK_LOCAL, "xfs"},
    {0x9123683e, PS_LOG_DISK_LOCAL, "btrfs"},      {0x2fc12fc1, PS_LOG_DISK_LOCAL, "zfs"},
    {0xf2f52010, PS_LOG_DISK_LOCAL, "f2fs"},
};

int ps_log_disk_look(const char *directory, struct ps_log_disk *out)
{
    struct statfs fs;
    *out = (struct ps_log_disk){.kind = PS_LOG_DISK_LOCAL};
    if (statfs(directory, &fs) != 0)
        return -errno;
    out->bytes = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
    out->free_bytes = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    for (uint32_t i = 0; i < sizeof(file_systems) / sizeof(*file_systems); i++) {
        if (file_systems[i].magic != ((unsigned long)fs.f_type & 0xffffffff))
            continue;
        out->kind = file_systems[i].kind;
        snprintf(out->name, sizeof(out->name), "%s", file_systems[i].name);
    }
    return 0;
}

/* As the log is written: blocks past the page cache, into room that is there. */
static int disk_time(const struct ps_store *store, struct ps_store_file *file, void *block,
                     uint32_t *flush_us)
{
    uint64_t took_us[MEASURED];
    int error = 0;
    for (uint32_t i = 0; i < MEASURED && error == 0; i++) /* the room */
        error = ps_store_write_all(store, file, block, PS_LOG_ALIGN, (uint64_t)i * PS_LOG_ALIGN);
    if (error == 0)
        error = store->sync(file);
    for (uint32_t i = 0; i < MEASURED && error == 0; i++) {
        const uint64_t begun_us = mr_clock_us();
        error = ps_store_write_all(store, file, block, PS_LOG_ALIGN, (uint64_t)i * PS_LOG_ALIGN);
        if (error == 0)
            error = fdatasync(store->descriptor(file)) == 0 ? 0 : -errno;
        took_us[i] = mr_clock_us() - begun_us;
    }
    if (error != 0)
        return error;
    qsort(took_us, MEASURED, sizeof(*took_us), mr_compare_u64);
    *flush_us = took_us[MEASURED / 2] > 0 ? (uint32_t)took_us[MEASURED / 2] : 1;
    return 0;
}

int ps_log_disk_measure(const char *directory, struct ps_log_disk *out)
{
    const struct ps_store *store = ps_store_local();
    char path[PS_PATH_BYTES], name[64];
    struct ps_store_file *file;
    int error = ps_log_disk_look(directory, out);
    snprintf(name, sizeof(name), ".millrace-doctor-%d", (int)getpid());
    if (error == 0 && !ps_path_join(directory, name, path))
        error = -ENAMETOOLONG;
    uint8_t *block = aligned_alloc(PS_LOG_ALIGN, PS_LOG_ALIGN);
    if (error == 0 && block == NULL)
        error = -ENOMEM;
    if (error == 0)
        error = store->create(store->self, path, true, &file);
    if (error != 0) {
        free(block);
        return error;
    }
    memset(block, 0x5a, PS_LOG_ALIGN);
    error = disk_time(store, file, block, &out->flush_us);
    if (ps_store_leave_direct(store, file, error))
        error = disk_time(store, file, block, &out->flush_us);
    (void)store->close(file);
    (void)store->remove(store->self, path);
    free(block);
    return error;
}

bool ps_log_disk_is_nearly_full(const struct ps_log_disk *disk)
{
    return disk->free_bytes < disk->bytes / 20 && disk->free_bytes < PS_LOG_DISK_LITTLE_BYTES;
}

const char *ps_log_disk_risk(const struct ps_log_disk *disk)
{
    switch (disk->kind) {
    case PS_LOG_DISK_MEMORY:
        return "which is memory: what was acknowledged is lost with the machine's power";
    case PS_LOG_DISK_NETWORK:
        return "which is on another machine: pushes wait for it, and stop when it is away";
    case PS_LOG_DISK_LAYER:
        return "which belongs to a container: what was acknowledged is lost when that is removed";
    default:
        return NULL;
    }
}
