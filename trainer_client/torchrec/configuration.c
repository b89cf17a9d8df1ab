#include "trainer_client/torchrec/configuration.h"

#include <stdio.h>
#include <string.h>

#define DEADLINE_MS 60000u
#define CONNECT_MS  10000u
#define MS_MAX      3600000u
#define REPLAY_MIB  64u
#define VALUE_BYTES TDE_PATH_BYTES
#define NAMES       "key_file, prefix, deadline_ms, connect_ms, dtype, replay, replay_mib, on_error"

/* Where in the configuration the parser is, and where its error goes. */
struct parser {
    struct tde_configuration *out;
    char *error;
    size_t error_bytes;
};

struct option {
    const char *name;
    bool (*take)(const struct parser *p, const struct option *option, const char *value);
    size_t offset;  /* in struct tde_configuration */
    uint32_t limit; /* largest number, or bytes of text */
};

static bool refuse(const struct parser *p, const char *name, const char *value, const char *wanted)
{
    (void)snprintf(p->error, p->error_bytes, "%s=%.100s: must be %s", name, value, wanted);
    return false;
}

static void *place(const struct parser *p, const struct option *option)
{
    return (uint8_t *)p->out + option->offset;
}

static bool take_text(const struct parser *p, const struct option *option, const char *value)
{
    if (strlen(value) >= option->limit)
        return refuse(p, option->name, value, "shorter");
    memcpy(place(p, option), value, strlen(value) + 1);
    return true;
}

static bool take_prefix(const struct parser *p, const struct option *option, const char *value)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:-";
    if (strspn(value, allowed) != strlen(value) || strlen(value) >= option->limit)
        return refuse(p, option->name, value, "at most 32 of A-Z a-z 0-9 _ . / : -");
    return take_text(p, option, value);
}

static bool take_number(const struct parser *p, const struct option *option, const char *value)
{
    uint64_t number = 0;
    size_t digits = strspn(value, "0123456789");
    for (size_t i = 0; i < digits && number <= option->limit; i++)
        number = 10 * number + (uint64_t)(value[i] - '0');
    if (digits == 0 || value[digits] != '\0' || number == 0 || number > option->limit) {
        char wanted[64];
        (void)snprintf(wanted, sizeof(wanted), "a whole number from 1 to %u", option->limit);
        return refuse(p, option->name, value, wanted);
    }
    *(uint32_t *)place(p, option) = (uint32_t)number;
    return true;
}

static bool take_dtype(const struct parser *p, const struct option *option, const char *value)
{
    static const enum mr_dtype dtypes[] = {MR_F32, MR_F16, MR_BF16};
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++)
        if (strcmp(value, mr_dtype_name(dtypes[i])) == 0) {
            *(enum mr_dtype *)place(p, option) = dtypes[i];
            return true;
        }
    return refuse(p, option->name, value, "f32, f16 or bf16");
}

static bool take_switch(const struct parser *p, const struct option *option, const char *value)
{
    bool is_on = strcmp(value, "on") == 0;
    if (!is_on && strcmp(value, "off") != 0)
        return refuse(p, option->name, value, "on or off");
    *(bool *)place(p, option) = is_on;
    return true;
}

static bool take_on_error(const struct parser *p, const struct option *option, const char *value)
{
    bool goes_on = strcmp(value, "continue") == 0;
    if (!goes_on && strcmp(value, "abort") != 0)
        return refuse(p, option->name, value, "abort or continue");
    *(bool *)place(p, option) = goes_on;
    return true;
}

#define AT(field) offsetof(struct tde_configuration, field)
static const struct option options[] = {
    {"key_file", take_text, AT(key_file), TDE_PATH_BYTES},
    {"prefix", take_prefix, AT(prefix), TDE_PREFIX_BYTES},
    {"deadline_ms", take_number, AT(deadline_ms), MS_MAX},
    {"connect_ms", take_number, AT(connect_ms), MS_MAX},
    {"dtype", take_dtype, AT(dtype), 0},
    {"replay", take_switch, AT(replay), 0},
    {"replay_mib", take_number, AT(replay_mib), 4095},
    {"on_error", take_on_error, AT(goes_on), 0},
};
#define OPTION_COUNT (sizeof(options) / sizeof(*options))

static int hex_of(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = c == '\0' ? NULL : strchr(digits, c);
    return at == NULL ? -1 : (int)((at - digits) % 16);
}

static bool is_control(int c)
{
    return c < 0x20 || c == 0x7f;
}

/* %XX becomes the byte. False: it is not hexadecimal, or a control character, or the text is too long. */
static bool unescape(const char *text, size_t bytes, char out[VALUE_BYTES])
{
    size_t length = 0;
    for (size_t i = 0; i < bytes; i++) {
        int c = (unsigned char)text[i];
        if (c == '%') {
            int high = i + 2 < bytes ? hex_of(text[i + 1]) : -1, low = high < 0 ? -1 : hex_of(text[i + 2]);
            if (low < 0 || is_control(c = 16 * high + low))
                return false;
            i += 2;
        }
        if (length == VALUE_BYTES - 1)
            return false;
        out[length++] = (char)c;
    }
    out[length] = '\0';
    return true;
}

static bool take_option(const struct parser *p, const char *text, size_t bytes, uint32_t *seen)
{
    const char *equals = memchr(text, '=', bytes);
    size_t name_bytes = equals == NULL ? bytes : (size_t)(equals - text);
    char value[VALUE_BYTES];
    for (uint32_t i = 0; i < OPTION_COUNT && equals != NULL; i++) {
        if (strlen(options[i].name) != name_bytes || memcmp(options[i].name, text, name_bytes) != 0)
            continue;
        if ((*seen >> i & 1) != 0) {
            (void)snprintf(p->error, p->error_bytes, "%s is given twice", options[i].name);
            return false;
        }
        *seen |= 1u << i;
        if (unescape(equals + 1, bytes - name_bytes - 1, value))
            return options[i].take(p, &options[i], value);
        (void)snprintf(p->error, p->error_bytes,
                       "%s: too long, or a %% without two hexadecimal digits of what can be printed",
                       options[i].name);
        return false;
    }
    (void)snprintf(p->error, p->error_bytes, "\"%.*s\" is no option; there are " NAMES ", each as NAME=VALUE",
                   (int)(bytes < 100 ? bytes : 100), text);
    return false;
}

/* Options between & or &&, as TorchRec's own plug-in for Redis has it. */
static bool take_options(const struct parser *p, const char *text)
{
    uint32_t seen = 0;
    while (*text != '\0') {
        size_t bytes = strcspn(text, "&");
        if (!take_option(p, text, bytes, &seen))
            return false;
        text += bytes;
        text += text[0] == '&' ? 1 + (text[1] == '&') : 0;
    }
    return true;
}

bool tde_configuration_parse(const char *text, struct tde_configuration *out, char *error, size_t error_bytes)
{
    struct tde_configuration c = {.deadline_ms = DEADLINE_MS,
                                  .connect_ms = CONNECT_MS,
                                  .dtype = MR_F32,
                                  .replay = true,
                                  .replay_mib = REPLAY_MIB};
    const struct parser p = {&c, error, error_bytes};
    size_t bytes = strcspn(text, "/?");
    for (const char *at = text; *at != '\0'; at++)
        if (is_control((unsigned char)*at)) {
            (void)snprintf(error, error_bytes, "byte %zu of the configuration is a control character",
                           (size_t)(at - text));
            return false;
        }
    if (bytes == 0) {
        (void)snprintf(error, error_bytes,
                       "it must begin with the server, as 10.0.0.1:7700, not with \"%.100s\"", text);
        return false;
    }
    if (bytes >= sizeof(c.server)) {
        (void)snprintf(error, error_bytes,
                       "the servers take %zu bytes, and up to %zu fit: some nodes of a cluster are enough",
                       bytes, sizeof(c.server) - 1);
        return false;
    }
    memcpy(c.server, text, bytes);
    text += bytes;
    text += *text == '/';
    if (*text != '\0' && *text != '?') {
        (void)snprintf(error, error_bytes,
                       "after the server there must be nothing or /?NAME=VALUE&NAME=VALUE, not \"%.100s\"",
                       text);
        return false;
    }
    if (*text == '?' && !take_options(&p, text + 1))
        return false;
    *out = c;
    return true;
}
