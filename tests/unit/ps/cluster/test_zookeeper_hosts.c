/* Servers of ZooKeeper as its library resolves them, on machines whose interfaces have addresses of one
 * family. Each is a network namespace of the test's own, which takes root. */
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ps/cluster/zookeeper_hosts.h"
#include "tests/command.h"
#include "tests/test.h"

static char out[256], why[256];

/* A machine with these links and addresses, beside loopback. */
static void machine(const char *links)
{
    if (geteuid() != 0)
        skip();
    assert_int_equal(unshare(CLONE_NEWNET), 0);
    assert_int_equal(
        command_run("ip link set lo up && ip link add link0 type veth peer name link1 && %s", links), 0);
}

/* Whether the library finds an address of the host before the last colon. */
static bool library_finds(const char *server)
{
    const struct addrinfo hints = {
        .ai_socktype = SOCK_STREAM, .ai_protocol = IPPROTO_TCP, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *found;
    char host[128];
    (void)snprintf(host, sizeof(host), "%.*s", (int)(strrchr(server, ':') - server), server);
    if (getaddrinfo(host, "2181", &hints, &found) != 0)
        return false;
    freeaddrinfo(found);
    return true;
}

TEST(an_ipv4_address_beside_a_link_local_one)
{
    machine("ip addr add fe80::2/64 dev link0 nodad && ip link set link0 up && ip link set link1 up");
    assert_false(library_finds("127.0.0.1:2181"));
    assert_true(ps_zookeeper_hosts("127.0.0.1:2181,[::1]:2182", out, sizeof(out), why, sizeof(why)));
    assert_string_equal(out, "::ffff:127.0.0.1:2181,[::1]:2182");
    assert_string_equal(why, "");
    assert_true(library_finds("::ffff:127.0.0.1:2181"));
    assert_true(ps_zookeeper_hosts("localhost:2181", out, sizeof(out), why, sizeof(why)));
    assert_string_equal(out, "::ffff:127.0.0.1:2181");
}

TEST(an_ipv6_address_without_ipv6)
{
    machine(
        "sysctl -qw net.ipv6.conf.all.addr_gen_mode=1 net.ipv6.conf.link0.addr_gen_mode=1 "
        "net.ipv6.conf.link1.addr_gen_mode=1 && ip addr add 10.9.9.1/24 dev link0 && ip link set link0 up");
    assert_false(ps_zookeeper_hosts("10.9.9.2:2181,::1:2182", out, sizeof(out), why, sizeof(why)));
    assert_string_equal(out, "10.9.9.2:2181,::1:2182");
    assert_non_null(strstr(why, "::1 has an IPv6 address only, and no interface of this machine has one"));
}

TEST(names_that_nobody_knows)
{
    assert_false(ps_zookeeper_hosts("nowhere.invalid:2181", out, sizeof(out), why, sizeof(why)));
    assert_string_equal(out, "nowhere.invalid:2181");
    assert_non_null(strstr(why, "nowhere.invalid: "));
}
