"""The fixtures themselves: a node that is started, killed and started again, and a hub beside it, by the bare
library."""
import millrace._library as library
from millrace._library import ffi, lib


def connect(address):
    name = ffi.new("char[]", address.encode())
    options = ffi.new(
        "struct mr_client_options *", {"server": name, "connect_ms": 60000, "deadline_ms": 60000}
    )
    client, error = ffi.new("struct mr_client **"), ffi.new("char[512]")
    status = lib.mr_client_create(options, client, error, 512)
    assert status == lib.MR_OK, library.text(error)
    return client[0]


def test_a_node_answers(node):
    client = connect(node.address)
    assert lib.mr_client_core_count(client) == node.cores
    assert lib.mr_echo(client, library.NULL, 0, library.NULL, 0, library.NULL) == lib.MR_OK
    lib.mr_client_destroy(client)


def test_a_node_is_killed_and_comes_back_with_other_cores(new_node):
    node = new_node(cores=1)
    client = connect(node.address)
    before = lib.mr_client_incarnation(client)
    node.kill()
    node.restart(cores=2)
    assert lib.mr_echo(client, library.NULL, 0, library.NULL, 0, library.NULL) == lib.MR_OK
    assert lib.mr_client_incarnation(client) != before
    assert lib.mr_client_core_count(client) == 2
    lib.mr_client_destroy(client)


def test_a_hub_feeds_a_node(new_node, new_hub):
    hub = new_hub(new_node())
    client = connect(hub.address)
    status = ffi.new("struct mr_hub_status *")
    assert lib.mr_hub_status(client, library.NULL, status) == lib.MR_OK
    assert status.batches_fed == 0
    lib.mr_client_destroy(client)
