/* Reading numbers and words out of the texts of /proc and /sys. Pure functions on strings. */
#ifndef TOOL_DOCTOR_PARSE_H
#define TOOL_DOCTOR_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first number on the line that begins with `field` ("HugePages_Free:"). False when there is no such line
 * or number. */
bool tool_field_u64(const char *text, const char *field, uint64_t *out);
/* The number after `field` in hexadecimal ("CapEff:"). */
bool tool_field_hex(const char *text, const char *field, uint64_t *out);
/* The soft limit in /proc/self/limits; UINT64_MAX for "unlimited". */
bool tool_limit(const char *limits, const char *name, uint64_t *out);
/* How many cpus or nodes a list like "0-3,8,10-11" names; 0 for an empty one. False when it is no list. */
bool tool_list_count(const char *list, uint32_t *out);
/* The choice in "always [madvise] never". */
bool tool_selected(const char *text, char *out, size_t out_bytes);
/* Whether the line that begins with `field` holds `word` as a whole. */
bool tool_line_has_word(const char *text, const char *field, const char *word);
/* "6.1.0-18-amd64" */
bool tool_release(const char *text, uint32_t *major, uint32_t *minor);
/* Whether a line of /proc/net/protocols begins with this protocol. */
bool tool_has_protocol(const char *protocols, const char *name);

#endif
