#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/test.h"
#include "tests/integration/dataplane/echo_fixture.h"

#define ARGUMENTS_MAX 24

const char *echo_fixture_server;

void echo_fixture_start(struct echo_fixture *f, const struct netns_options *options, const char *arguments)
{
    netns_create(&f->net, options);
    echo_fixture_spawn(f, arguments);
}

void echo_fixture_spawn(struct echo_fixture *f, const char *arguments)
{
    char copy[512], *argv[ARGUMENTS_MAX] = {(char *)echo_fixture_server}, *rest = NULL;
    int argc = 1;
    snprintf(copy, sizeof(copy), "%s", arguments);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL && argc + 1 < ARGUMENTS_MAX;
         word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    netns_spawn(&f->net, NETNS_SERVER, argv, &f->server);
    assert_true(netns_wait_line(&f->server, "ready", ECHO_READY_MS));
}

void echo_fixture_stop(struct echo_fixture *f, uint32_t cores)
{
    netns_leave(&f->net);
    kill(f->server.pid, SIGTERM);
    for (uint32_t i = 0; i < cores; i++) {
        assert_true(netns_wait_line(&f->server, "core=", ECHO_READY_MS));
        snprintf(f->counters[i], sizeof(f->counters[i]), "%s ", f->server.line);
    }
    assert_int_equal(netns_end(&f->server, 0), 0);
    netns_destroy(&f->net);
}

unsigned long long echo_fixture_counter(const struct echo_fixture *f, uint32_t core, const char *name)
{
    char key[64];
    snprintf(key, sizeof(key), " %s=", name);
    const char *found = strstr(f->counters[core], key);
    return found != NULL ? strtoull(found + strlen(key), NULL, 10) : 0;
}
