#include "rpc_processes.h"
#include "tests/integration/end_with_test.h"
#include "tests/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS_MAX = 8 };

void rpc_free_address(char text[32])
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(sa);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &bytes), 0);
    close(fd);
    snprintf(text, 32, "127.0.0.1:%u", ntohs(sa.sin_port));
}

struct mr_rpc *rpc_join(uint32_t rank, uint32_t world_size, const char *address,
                        struct mr_rpc_options *options)
{
    struct mr_rpc *rpc;
    char name[16], error[512];
    options->rendezvous = address;
    snprintf(name, sizeof(name), "w%u", rank);
    if (mr_rpc_init(name, rank, world_size, options, &rpc, error, sizeof(error)) != MR_OK) {
        fprintf(stderr, "%s\n", error);
        return NULL;
    }
    return rpc;
}

pid_t rpc_in_process(int (*run)(uint32_t rank, const char *address), uint32_t rank, const char *address)
{
    const pid_t test = getpid();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        end_with_test(test);
        _exit(run(rank, address));
    }
    return pid;
}

void rpc_expect_end(pid_t pid, int code)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

void rpc_expect_killed(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

void rpc_run_world(int (*run)(uint32_t rank, const char *address), uint32_t count, uint32_t killed)
{
    char address[32];
    pid_t pids[WORKERS_MAX];
    assert_true(count <= WORKERS_MAX);
    rpc_free_address(address);
    for (uint32_t rank = 0; rank < count; rank++)
        pids[rank] = rpc_in_process(run, rank, address);
    for (uint32_t rank = 0; rank < count; rank++)
        if (rank == killed)
            rpc_expect_killed(pids[rank]);
        else
            rpc_expect_end(pids[rank], 0);
}
