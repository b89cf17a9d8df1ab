#include "tests/unit/trainer_client/client_fixture.h"
#include "tests/unit/trainer_client/canned_answers.h"
#include "tests/test.h"

int client_set_up(void **state)
{
    static struct client_fixture x;
    x.node = live_node_start_new(2);
    atomic_store(&x.node->answer, canned_answer);
    const struct mr_client_options options = {.server = live_node_address(x.node)};
    char error[512] = "";
    if (mr_client_create(&options, &x.client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    *state = &x;
    return 0;
}

int client_tear_down(void **state)
{
    struct client_fixture *x = *state;
    mr_client_destroy(x->client);
    live_node_destroy(x->node);
    return 0;
}
