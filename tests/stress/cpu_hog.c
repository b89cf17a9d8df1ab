/* Takes the CPUs away from everything else, as a busy host does to a virtual machine: on each CPU a real-time
 * thread that computes for 50 to 400 ms, then sleeps for as long. Tests that pass beside it wait for
 * conditions, not for time. scripts/test.sh --stress runs it.
 *
 * usage: cpu_hog SECONDS        ends after SECONDS, or with its parent; needs root (SCHED_FIFO)
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define HOG_MS_MIN  50
#define HOG_MS_MAX  400
#define HOG_RANK    10 /* of SCHED_FIFO: above all ordinary threads, below the kernel's own */
#define SECONDS_MAX 100000

struct hog {
    pthread_t thread;
    unsigned seed; /* of rand_r(), another for each CPU */
    int64_t end_ms;
};

static int64_t monotonic_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t random_ms(struct hog *hog)
{
    return HOG_MS_MIN + rand_r(&hog->seed) % (HOG_MS_MAX - HOG_MS_MIN + 1);
}

static void *hog_main(void *argument)
{
    struct hog *hog = argument;
    while (monotonic_ms() < hog->end_ms) {
        int64_t busy_until_ms = monotonic_ms() + random_ms(hog);
        while (monotonic_ms() < busy_until_ms) {
        }
        int64_t idle_ms = random_ms(hog);
        (void)nanosleep(&(struct timespec){.tv_sec = 0, .tv_nsec = idle_ms * 1000000}, NULL);
    }
    return NULL;
}

/* Starts a thread that is bound to `cpu`; returns 0 or an errno. */
static int hog_create(struct hog *hog, int cpu)
{
    pthread_attr_t attributes;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET((size_t)cpu, &cpus);
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return error;
    (void)pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    (void)pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
    (void)pthread_attr_setschedparam(&attributes, &(struct sched_param){.sched_priority = HOG_RANK});
    (void)pthread_attr_setaffinity_np(&attributes, sizeof cpus, &cpus);
    error = pthread_create(&hog->thread, &attributes, hog_main, hog);
    (void)pthread_attr_destroy(&attributes);
    return error;
}

int main(int argc, char **argv)
{
    char *rest = NULL;
    long seconds = argc == 2 ? strtol(argv[1], &rest, 10) : 0;
    if (seconds < 1 || seconds > SECONDS_MAX || *rest != '\0') {
        fprintf(stderr, "usage: cpu_hog SECONDS   from 1 to %d\n", SECONDS_MAX);
        return 2;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) {
        fprintf(stderr, "cpu_hog: sched_getaffinity: %s\n", strerror(errno));
        return 1;
    }
    static struct hog hogs[CPU_SETSIZE];
    int64_t end_ms = monotonic_ms() + seconds * 1000;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &cpus))
            continue;
        hogs[cpu] = (struct hog){.seed = (unsigned)cpu + 1, .end_ms = end_ms};
        int error = hog_create(&hogs[cpu], cpu);
        if (error != 0) {
            fprintf(stderr, "cpu_hog: a real-time thread on CPU %d: %s; run it as root\n", cpu,
                    strerror(error));
            return 1;
        }
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, &cpus))
            (void)pthread_join(hogs[cpu].thread, NULL);
    return 0;
}
