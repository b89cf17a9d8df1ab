/* What a node says of itself. */
#include <stdlib.h>
#include <string.h>
#include "node_fixture.h"
#include "tests/test.h"

TEST(a_node_tells_its_configuration_and_its_machine, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct node_reply *reply = node_call(n, 1, MR_OP_FACTS, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 1);
    char *text = strndup(reply->tensors[0].data, reply->tensors[0].bytes);
    assert_non_null(strstr(text, "\nmachine.kernel = Linux "));
    assert_non_null(strstr(text, "\nport.driver = "));
    assert_non_null(strstr(text, "\nconfig.cores.count = 3\n"));
    assert_non_null(strstr(text, "\nconfig.node.key_file = (empty)\n"));
    assert_int_equal(text[reply->tensors[0].bytes - 1], '\n');
    free(text);
}
