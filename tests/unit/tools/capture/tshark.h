/* How tests run tshark. Wireshark 4.4 runs no Lua for root, and is not told that it is root in a user
 * namespace. */
#ifndef TESTS_UNIT_TOOLS_CAPTURE_TSHARK_H
#define TESTS_UNIT_TOOLS_CAPTURE_TSHARK_H

#include <unistd.h>

/* The beginning of a shell command. */
static inline const char *tshark_command(void)
{
    return geteuid() == 0 ? "unshare --user tshark -n" : "tshark -n";
}

#endif
