#include "ps/config/config_rules.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPU_MAX 4096

bool ps_number_parse(const char *text, uint64_t *value)
{
    size_t length = strlen(text);
    if (length == 0 || length > 20 || strspn(text, "0123456789") != length)
        return false;
    errno = 0;
    unsigned long long parsed = strtoull(text, NULL, 10);
    if (errno != 0)
        return false;
    *value = parsed;
    return true;
}

const char *ps_rule_any(const char *text)
{
    return NULL;
}

const char *ps_rule_place(const char *text)
{
    static const char *const schemes[] = {"hdfs://", "webhdfs://", "swebhdfs://", "s3://"};
    if (strstr(text, "://") == NULL)
        return NULL;
    for (uint32_t i = 0; i < sizeof(schemes) / sizeof(*schemes); i++)
        if (strncmp(text, schemes[i], strlen(schemes[i])) == 0)
            return NULL;
    return "a directory of this machine, or a URL: hdfs://, webhdfs://, swebhdfs:// or s3://";
}

const char *ps_rule_checkpoint(const char *text)
{
    static const char *const prefixes[] = {"ckpt-", "CLUSTER-"};
    const char *allowed = "empty, or one checkpoint of a directory or URL, as DIR/CLUSTER-7 or DIR/ckpt-7";
    size_t bytes = strstr(text, "://") != NULL ? strcspn(text, "?") : strlen(text), digits = 0;
    if (text[0] == '\0')
        return NULL;
    if (ps_rule_place(text) != NULL)
        return ps_rule_place(text);
    while (bytes > 0 && text[bytes - 1] == '/')
        bytes--;
    while (digits < bytes && isdigit((unsigned char)text[bytes - 1 - digits]))
        digits++;
    for (uint32_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
        const size_t prefix = strlen(prefixes[i]);
        const size_t before = bytes >= digits + prefix ? bytes - digits - prefix : bytes;
        if (digits > 0 && text[bytes - digits] != '0' && before < bytes &&
            (before == 0 || text[before - 1] == '/') && strncmp(text + before, prefixes[i], prefix) == 0)
            return NULL;
    }
    return allowed;
}

const char *ps_rule_name(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_')
            return "letters, digits, - and _";
    return text[0] != '\0' ? NULL : "letters, digits, - and _";
}

const char *ps_rule_mac(const char *text)
{
    const char *allowed = "empty, or six bytes as 02:00:00:00:00:01";
    if (text[0] == '\0')
        return NULL;
    if (strlen(text) != 17)
        return allowed;
    for (int i = 0; i < 17; i++) {
        bool good = i % 3 == 2 ? text[i] == ':' : isxdigit((unsigned char)text[i]) != 0;
        if (!good)
            return allowed;
    }
    return NULL;
}

static bool is_zero(const uint8_t *bytes, uint32_t count)
{
    uint8_t any = 0;
    for (uint32_t i = 0; i < count; i++)
        any |= bytes[i];
    return any == 0;
}

/* "address/prefix length" of either family. 0.0.0.0 and :: are no address of a node. */
static bool is_prefixed_address(const char *text, int family, uint64_t prefix_max)
{
    char address[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    if (slash == NULL || (size_t)(slash - text) >= sizeof(address))
        return false;
    memcpy(address, text, (size_t)(slash - text));
    address[slash - text] = '\0';
    uint8_t bytes[sizeof(struct in6_addr)];
    uint64_t prefix;
    return inet_pton(family, address, bytes) == 1 && !is_zero(bytes, family == AF_INET ? 4 : 16) &&
           ps_number_parse(slash + 1, &prefix) && prefix <= prefix_max;
}

const char *ps_rule_ipv4(const char *text)
{
    bool good = text[0] == '\0' || is_prefixed_address(text, AF_INET, 32);
    return good ? NULL : "empty, or an address with its prefix length as 10.0.0.1/24";
}

const char *ps_rule_ipv6(const char *text)
{
    bool good = text[0] == '\0' || is_prefixed_address(text, AF_INET6, 128);
    return good ? NULL : "empty, or an address with its prefix length as fd00::1/64";
}

const char *ps_rule_ipv4_alone(const char *text)
{
    struct in_addr ip;
    return text[0] == '\0' || inet_pton(AF_INET, text, &ip) == 1 ? NULL
                                                                 : "empty, or an IPv4 address as 10.0.0.254";
}

const char *ps_rule_ipv6_alone(const char *text)
{
    struct in6_addr ip;
    return text[0] == '\0' || inet_pton(AF_INET6, text, &ip) == 1 ? NULL
                                                                  : "empty, or an IPv6 address as fd00::ff";
}

/* One "2" or "2-5" of a list, ended by ',' or '\0'; moves `*at` to its end. */
static bool parse_range(const char **at, uint64_t *first, uint64_t *last)
{
    char *end;
    if (!isdigit((unsigned char)**at))
        return false;
    *first = *last = strtoull(*at, &end, 10);
    if (*end == '-') {
        if (!isdigit((unsigned char)end[1]))
            return false;
        *last = strtoull(end + 1, &end, 10);
    }
    *at = end;
    return *first <= *last && *last < CPU_MAX && (*end == '\0' || *end == ',');
}

static bool cpus_have(const int *cpus, uint32_t count, int cpu)
{
    for (uint32_t i = 0; i < count; i++)
        if (cpus[i] == cpu)
            return true;
    return false;
}

int ps_cpus_parse(const char *text, int *cpus, uint32_t cpus_max)
{
    uint32_t count = 0;
    const char *at = text;
    while (*at != '\0') {
        uint64_t first, last;
        if (!parse_range(&at, &first, &last) || last - first >= cpus_max - count)
            return -1;
        for (uint64_t cpu = first; cpu <= last; cpu++) {
            if (cpus_have(cpus, count, (int)cpu))
                return -1;
            cpus[count++] = (int)cpu;
        }
        if (*at == ',' && *++at == '\0')
            return -1;
    }
    return (int)count;
}

const char *ps_rule_cpus(const char *text)
{
    int cpus[64];
    return ps_cpus_parse(text, cpus, 64) >= 0 ? NULL
                                              : "empty, or up to 64 CPU numbers, each once, as 2,3 or 2-5";
}

const char *ps_rule_restore(const char *text)
{
    uint64_t id;
    bool good =
        strcmp(text, "latest") == 0 || strcmp(text, "none") == 0 || (ps_number_parse(text, &id) && id > 0);
    return good ? NULL : "latest, none, or the number of a checkpoint";
}

const char *ps_role_file_parse(const char *text, enum mr_role *role)
{
    char name[16];
    size_t length = strcspn(text, ":");
    if (text[length] != ':' || text[length + 1] == '\0' || length >= sizeof(name))
        return NULL;
    memcpy(name, text, length);
    name[length] = '\0';
    return mr_role_parse(name, role) ? text + length + 1 : NULL;
}

const char *ps_rule_role_file(const char *text)
{
    enum mr_role role;
    return ps_role_file_parse(text, &role) != NULL ? NULL : "operator:FILE, trainer:FILE or read_only:FILE";
}

const char *ps_rule_cluster_name(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("-_.", *c) == NULL)
            return "letters, digits, -, _ and ., not first";
    return text[0] != '.' ? NULL : "letters, digits, -, _ and ., not first";
}

/* One HOST:PORT, which ends at `end`. The host is a name, an IPv4 address, or an IPv6 address in brackets. */
static bool is_host_port(const char *text, const char *end)
{
    char port[8];
    uint64_t number;
    size_t host = text[0] == '[' ? strcspn(text, "]") + 1 : strcspn(text, ":,");
    if (host < (text[0] == '[' ? 3u : 1u) || text + host >= end || text[host] != ':')
        return false;
    const char *digits = text + host + 1;
    if ((size_t)(end - digits) >= sizeof(port) || memchr(text, ' ', (size_t)(end - text)) != NULL)
        return false;
    memcpy(port, digits, (size_t)(end - digits));
    port[end - digits] = '\0';
    return ps_number_parse(port, &number) && number > 0 && number <= UINT16_MAX;
}

const char *ps_rule_host_port(const char *text)
{
    bool good = text[0] == '\0' || is_host_port(text, text + strlen(text));
    return good ? NULL : "empty, or a host with its port, as node1:7700";
}

/* 0.0.0.0 and [::] are all addresses of whoever calls them: nobody is reached there. */
const char *ps_rule_told_address(const char *text)
{
    const size_t bytes = text[0] == '[' ? strcspn(text + 1, "]") : strcspn(text, ":");
    const char *host = text + (text[0] == '[');
    char address[INET6_ADDRSTRLEN];
    uint8_t ip[16];
    if (ps_rule_host_port(text) != NULL)
        return ps_rule_host_port(text);
    (void)snprintf(address, sizeof(address), "%.*s", (int)(bytes < sizeof(address) ? bytes : 0), host);
    const int ip_bytes = inet_pton(AF_INET, address, ip) == 1    ? 4
                         : inet_pton(AF_INET6, address, ip) == 1 ? 16
                                                                 : 0;
    return ip_bytes > 0 && is_zero(ip, (uint32_t)ip_bytes)
               ? "empty, or an address that others reach, as node1:7700; 0.0.0.0 and [::] are none"
               : NULL;
}

const char *ps_rule_host_ports(const char *text)
{
    for (const char *at = text; text[0] != '\0';) {
        const char *end = at + strcspn(at, ",");
        if (!is_host_port(at, end))
            return "empty, or hosts with their ports, as zk1:2181,zk2:2181";
        if (*end == '\0')
            break;
        at = end + 1;
    }
    return NULL;
}
