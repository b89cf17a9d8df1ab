/* Which capabilities a node keeps, and that all its threads lose the others. */
#include <linux/capability.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ps/server/privileges.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

#define BIT(capability) (UINT64_C(1) << (capability))
#define THREADS         4
#define OTHER_USER      65534

TEST(each_driver_keeps_what_its_stop_needs)
{
    static const struct {
        enum dp_driver driver;
        uint64_t needed;
    } drivers[] = {{DP_DRIVER_SOCKET, 0},
                   {DP_DRIVER_MEMIF, 0},
                   {DP_DRIVER_AF_PACKET, 0},
                   {DP_DRIVER_AF_XDP, BIT(CAP_NET_ADMIN)},
                   {DP_DRIVER_TAP, BIT(CAP_NET_ADMIN)},
                   {DP_DRIVER_PCI, BIT(CAP_NET_ADMIN) | BIT(CAP_NET_RAW)}};
    static struct ps_config config;
    ps_config_default(&config);
    for (size_t i = 0; i < sizeof(drivers) / sizeof(*drivers); i++)
        assert_int_equal(ps_privileges_needed(&config, drivers[i].driver),
                         drivers[i].needed | BIT(CAP_IPC_LOCK));
}

TEST(root_keeps_access_to_files_of_others, temporary_directory_setup, temporary_directory_teardown)
{
    static struct ps_config config;
    if (geteuid() != 0)
        skip();
    ps_config_default(&config);
    snprintf(config.checkpoint_directory, sizeof(config.checkpoint_directory), "%s", (const char *)*state);
    assert_int_equal(ps_privileges_needed(&config, DP_DRIVER_SOCKET), BIT(CAP_IPC_LOCK));
    assert_int_equal(chown(*state, OTHER_USER, OTHER_USER), 0);
    assert_int_equal(ps_privileges_needed(&config, DP_DRIVER_SOCKET),
                     BIT(CAP_IPC_LOCK) | BIT(CAP_DAC_OVERRIDE));
    assert_int_equal(chown(*state, 0, 0), 0);
}

/* ---- in a process of its own ---- */

static sem_t is_dropped;
static _Atomic uint32_t failed;

static uint64_t permitted(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    (void)syscall(SYS_capget, &header, data);
    return (uint64_t)data[1].permitted << 32 | data[0].permitted;
}

static void *wait_and_look(void *arg)
{
    (void)arg;
    while (sem_wait(&is_dropped) != 0)
        ;
    failed += (permitted() & ~BIT(CAP_IPC_LOCK)) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1;
    return NULL;
}

static int drop_with_threads(void)
{
    pthread_t threads[THREADS];
    sem_init(&is_dropped, 0, 0);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, wait_and_look, NULL) != 0)
            return 1;
    failed += !ps_privileges_drop(BIT(CAP_IPC_LOCK));
    for (int i = 0; i < THREADS; i++)
        sem_post(&is_dropped);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    failed += (permitted() & ~BIT(CAP_IPC_LOCK)) != 0;
    failed += !ps_privileges_drop(0) || permitted() != 0; /* fewer still */
    failed += !ps_privileges_drop(0);                     /* there are none left to drop */
    return (int)failed;
}

TEST(all_threads_lose_the_others)
{
    int status;
    if (permitted() == 0)
        skip();
    const pid_t child = fork();
    if (child == 0)
        _exit(drop_with_threads());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}
