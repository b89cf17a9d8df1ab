#include "tests/integration/dataplane/server_options.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum dp_driver parse_driver(const char *text)
{
    static const struct {
        const char *text;
        enum dp_driver driver;
    } drivers[] = {
        {"auto", DP_DRIVER_AUTO},     {"af_xdp", DP_DRIVER_AF_XDP}, {"af_packet", DP_DRIVER_AF_PACKET},
        {"tap", DP_DRIVER_TAP},       {"memif", DP_DRIVER_MEMIF},   {"pci", DP_DRIVER_PCI},
        {"socket", DP_DRIVER_SOCKET},
    };

    for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
        if (strcmp(text, drivers[i].text) == 0)
            return drivers[i].driver;
    fprintf(stderr, "unknown driver %s\n", text);
    exit(2);
}

static void set_fault(struct dp_config *config, uint32_t *rate, unsigned long number)
{
    config->fault.direction = DP_FAULT_BOTH;
    *rate = (uint32_t)number;
}

static bool set_option(struct dp_config *config, const char *key, const char *value)
{
    unsigned long number = strtoul(value, NULL, 10);
    if (strcmp(key, "--driver") == 0)
        config->driver = parse_driver(value);
    else if (strcmp(key, "--device") == 0)
        snprintf(config->device, sizeof(config->device), "%s", value);
    else if (strcmp(key, "--ipv4") == 0)
        snprintf(config->ipv4, sizeof(config->ipv4), "%s", value);
    else if (strcmp(key, "--ipv6") == 0)
        snprintf(config->ipv6, sizeof(config->ipv6), "%s", value);
    else if (strcmp(key, "--mac") == 0)
        snprintf(config->mac, sizeof(config->mac), "%s", value);
    else if (strcmp(key, "--vlan") == 0)
        config->vlan = (uint16_t)number;
    else if (strcmp(key, "--mtu") == 0)
        config->mtu = (uint16_t)number;
    else if (strcmp(key, "--cores") == 0)
        config->core_count = (uint32_t)number;
    else if (strcmp(key, "--port") == 0)
        config->udp_port = (uint16_t)number;
    else if (strcmp(key, "--memory-mib") == 0)
        config->hugepage_memory_mib = (uint32_t)number;
    else if (strcmp(key, "--hugepages") == 0)
        config->hugepages = atoi(value);
    else if (strcmp(key, "--fault-loss-ppm") == 0)
        set_fault(config, &config->fault.rates.loss_ppm, number);
    else if (strcmp(key, "--fault-corrupt-ppm") == 0)
        set_fault(config, &config->fault.rates.corrupt_ppm, number);
    else if (strcmp(key, "--idle-us") == 0) {
        config->poll_mode = DP_POLL_ADAPTIVE;
        config->adaptive_idle_us = (uint32_t)number;
    } else {
        return false;
    }
    return true;
}

int server_options_parse(int argc, char **argv, struct dp_config *config)
{
    int at = 1;
    dp_config_default(config);
    snprintf(config->file_prefix, sizeof(config->file_prefix), "millrace-test-%d", (int)getpid());
    snprintf(config->device, sizeof(config->device), "server0");
    snprintf(config->ipv4, sizeof(config->ipv4), "10.99.0.1/24");
    snprintf(config->ipv6, sizeof(config->ipv6), "fd99::1/64");
    config->hugepages = 0;
    while (at + 1 < argc && set_option(config, argv[at], argv[at + 1]))
        at += 2;
    return at;
}
