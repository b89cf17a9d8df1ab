#include "dataplane/wire/format/capability.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define BITS 64u

/* Defined by build_version.c, which is linked into programs and the client library, not into tests. */
extern const char *const mr_build_version __attribute__((weak));

const char *mr_version_text(void)
{
    return &mr_build_version != NULL ? mr_build_version : MR_VERSION;
}

struct mr_peer_version mr_version_own(void)
{
    struct mr_peer_version own = {.capabilities = MR_CAPABILITIES};
    (void)snprintf(own.text, sizeof(own.text), "%s", mr_version_text());
    return own;
}

void mr_version_name(const struct mr_peer_version *peer, char text[MR_VERSION_TEXT_BYTES])
{
    size_t n = strnlen(peer->text, MR_VERSION_TEXT_BYTES - 1);
    for (size_t i = 0; i < n; i++)
        text[i] =
            isalnum((unsigned char)peer->text[i]) || (peer->text[i] != '\0' && strchr(".+-~_", peer->text[i]))
                ? peer->text[i]
                : '?';
    text[n] = '\0';
    if (n == 0)
        (void)snprintf(text, MR_VERSION_TEXT_BYTES, "before 0.3.0");
}

static const char *const names[BITS] = {
#define NAME(name, bit, text, since, change) [bit] = (text),
    MR_CAPABILITY_LIST(NAME)
#undef NAME
};

const char *mr_capability_name(uint32_t bit)
{
    return bit < BITS ? names[bit] : NULL;
}

uint64_t mr_capability_named(const char *name)
{
    for (uint32_t bit = 0; bit < BITS; bit++)
        if (names[bit] != NULL && strcmp(names[bit], name) == 0)
            return UINT64_C(1) << bit;
    return 0;
}

void mr_capability_text(uint64_t set, char *text, size_t bytes)
{
    size_t at = 0;
    (void)snprintf(text, bytes, "none");
    for (uint32_t bit = 0; bit < BITS && at < bytes; bit++) {
        if ((set >> bit & 1) == 0)
            continue;
        const char *separator = at > 0 ? ", " : "";
        const int n = names[bit] != NULL ? snprintf(text + at, bytes - at, "%s%s", separator, names[bit])
                                         : snprintf(text + at, bytes - at, "%sbit %u", separator, bit);
        at += n > 0 ? (size_t)n : 0;
    }
}

uint64_t mr_feature_needs(const struct mr_feature *f)
{
    const bool is_adam = f->optimizer == MR_OPT_ADAM || f->optimizer == MR_OPT_ADAMW;
    uint64_t needs = 0;
    if (is_adam && f->optimizer_args[3] != 0.0f)
        needs |= MR_CAN(ADAM_STEP);
    if (mr_feature_is_dense(f))
        needs |= MR_CAN(DENSE);
    return needs;
}
