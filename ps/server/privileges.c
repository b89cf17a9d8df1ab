#include "ps/server/privileges.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/wire/base/log.h"
#include "ps/config/config_rules.h"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE              65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

#define BIT(capability) (UINT64_C(1) << (capability))
#define LOOK_NS         1000000 /* between two looks at the threads */
#define LOOKS           5000u
#define RESENT_LOOKS    100u /* a thread that was made meanwhile gets the signal, too */
#define DEAF_LOOKS      200u /* a thread that is just starting blocks all signals for a moment */

/* Rows and keys may belong to another user than root, who reads and writes them all the same. */
static bool has_foreign_owner(const char *path)
{
    struct stat st;
    return path[0] != '\0' && stat(path, &st) == 0 && st.st_uid != geteuid();
}

static bool has_foreign_files(const struct ps_config *config)
{
    bool is_foreign = has_foreign_owner(config->checkpoint_directory) ||
                      has_foreign_owner(config->checkpoint_serve) || has_foreign_owner(config->node_key_file);
    for (uint32_t i = 0; i < config->checkpoint_allow.count; i++)
        is_foreign = is_foreign || has_foreign_owner(config->checkpoint_allow.values[i]);
    for (uint32_t i = 0; i < config->node_key.count; i++) {
        enum mr_role role;
        is_foreign = is_foreign || has_foreign_owner(ps_role_file_parse(config->node_key.values[i], &role));
    }
    return is_foreign;
}

uint64_t ps_privileges_needed(const struct ps_config *config, enum dp_driver driver)
{
    uint64_t needed = BIT(CAP_IPC_LOCK); /* buffers that are registered with io_uring count as locked */
    if (driver == DP_DRIVER_AF_XDP || driver == DP_DRIVER_TAP || driver == DP_DRIVER_PCI)
        needed |= BIT(CAP_NET_ADMIN); /* takes the XDP program, or the interface's settings, back */
    if (driver == DP_DRIVER_PCI)
        needed |= BIT(CAP_NET_RAW); /* of NICs whose kernel driver stays: their flow rules */
    if (geteuid() == 0 && has_foreign_files(config))
        needed |= BIT(CAP_DAC_OVERRIDE);
    return needed;
}

/* ---- all threads: Linux keeps capabilities for each ---- */

static uint64_t drop_kept; /* what the handler leaves; set before the signal is sent */

static int capabilities_limit(uint64_t kept)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) != 0)
        return -1;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t word = (uint32_t)(kept >> (32 * i));
        data[i].permitted &= word;
        data[i].effective &= word;
        data[i].inheritable = 0; /* and with it the ambient ones */
    }
    return (int)syscall(SYS_capset, &header, data);
}

static void drop_in_thread(int signal_number)
{
    const int error_number = errno;
    (void)signal_number;
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void)capabilities_limit(drop_kept);
    errno = error_number;
}

struct thread_state {
    uint64_t permitted; /* capabilities */
    uint64_t blocked;   /* signals, from bit 0 on for 1 */
};

static struct thread_state thread_look(const char *thread)
{
    char path[64], line[128];
    struct thread_state state = {0};
    snprintf(path, sizeof(path), "/proc/self/task/%.16s/status", thread);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "SigBlk: %" SCNx64, &state.blocked);
        (void)sscanf(line, "CapPrm: %" SCNx64, &state.permitted);
    }
    if (file != NULL)
        (void)fclose(file);
    return state;
}

/* Threads with other capabilities than those that are kept. */
struct threads_left {
    uint32_t count;
    uint32_t deaf; /* of these: they block the signal, as a sanitizer's own thread does */
};

/* Counts them, and sends them the signal if `sends`. */
static struct threads_left threads_with_others(uint64_t kept, int signal_number, bool sends)
{
    struct threads_left left = {0};
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL)
        return (struct threads_left){.count = 1, .deaf = 1};
    for (struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
        const struct thread_state state =
            entry->d_name[0] != '.' ? thread_look(entry->d_name) : (struct thread_state){0};
        if ((state.permitted & ~kept) == 0)
            continue;
        left.count++;
        left.deaf += (state.blocked & BIT(signal_number - 1)) != 0;
        if (sends)
            (void)syscall(SYS_tgkill, getpid(), atoi(entry->d_name), signal_number);
    }
    closedir(tasks);
    return left;
}

static void log_kept(uint64_t before, uint64_t kept)
{
    static const struct {
        int capability;
        const char *name;
    } names[] = {{CAP_NET_ADMIN, "net_admin"},
                 {CAP_NET_RAW, "net_raw"},
                 {CAP_IPC_LOCK, "ipc_lock"},
                 {CAP_DAC_OVERRIDE, "dac_override (files of another user than root)"}};
    char text[128] = "";
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if ((before & kept & BIT(names[i].capability)) != 0)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", text[0] != '\0' ? ", " : "",
                     names[i].name);
    mr_log_info("capabilities_dropped", "the port is open: capabilities are dropped%s%s",
                text[0] != '\0' ? ", but for " : "", text);
}

bool ps_privileges_drop(uint64_t kept)
{
    const int signal_number = SIGRTMIN + 7;
    struct sigaction action = {.sa_handler = drop_in_thread, .sa_flags = SA_RESTART};
    char own[16];
    struct threads_left left = threads_with_others(kept, signal_number, false);
    if (left.count == 0)
        return true; /* an ordinary user's node has none */
    snprintf(own, sizeof(own), "%d", (int)getpid());
    const uint64_t before = thread_look(own).permitted;
    drop_kept = kept;
    sigemptyset(&action.sa_mask);
    if (sigaction(signal_number, &action, NULL) != 0)
        return false;
    for (uint32_t i = 0; i < LOOKS && left.count > 0; i++) {
        left = threads_with_others(kept, signal_number, i % RESENT_LOOKS == 0);
        if (left.count == left.deaf && i >= DEAF_LOOKS)
            break;
        if (left.count > 0)
            (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    action.sa_handler = SIG_IGN; /* one may be on its way: the default would end the process */
    (void)sigaction(signal_number, &action, NULL);
    if (left.count > 0)
        mr_log_warning("capabilities_kept", "%u threads keep their capabilities: they do not take a signal",
                       left.count);
    else
        log_kept(before, kept);
    return left.count == 0;
}

void ps_privileges_refuse_new_code(void)
{
    (void)prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0);
}
