#include "ps/core/annotations.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"

struct ps_annotations {
    pthread_mutex_t lock;
    uint64_t last; /* number of the newest */
    struct kept {
        uint64_t at_ns;
        struct mr_annotation annotation;
    } kept[PS_ANNOTATIONS_KEPT]; /* number n is in n % PS_ANNOTATIONS_KEPT */
};

struct ps_annotations *ps_annotations_create(void)
{
    struct ps_annotations *m = calloc(1, sizeof(*m));
    if (m != NULL)
        (void)pthread_mutex_init(&m->lock, NULL);
    return m;
}

void ps_annotations_destroy(struct ps_annotations *m)
{
    if (m == NULL)
        return;
    (void)pthread_mutex_destroy(&m->lock);
    free(m);
}

/* The rest of `to` is zero. */
static void copy_text(char *to, size_t room, const char *text)
{
    size_t bytes = strnlen(text, room);
    if (bytes == room) { /* not within a character of UTF-8 */
        bytes = room - 1;
        while (bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80)
            bytes--;
    }
    memset(to, 0, room);
    memcpy(to, text, bytes);
}

void ps_annotations_add(struct ps_annotations *m, const char *event, const char *client, const char *text)
{
    if (m == NULL)
        return;
    pthread_mutex_lock(&m->lock);
    struct kept *kept = &m->kept[++m->last % PS_ANNOTATIONS_KEPT];
    kept->at_ns = mr_clock_ns();
    kept->annotation.sequence = m->last;
    copy_text(kept->annotation.event, sizeof(kept->annotation.event), event);
    copy_text(kept->annotation.client, sizeof(kept->annotation.client), client);
    copy_text(kept->annotation.text, sizeof(kept->annotation.text), text);
    pthread_mutex_unlock(&m->lock);
}

uint32_t ps_annotations_read(struct ps_annotations *m, uint64_t since, struct mr_annotation *out,
                             uint64_t *last, uint64_t *missed)
{
    uint32_t count = 0;
    *last = *missed = 0;
    if (m == NULL)
        return 0;
    pthread_mutex_lock(&m->lock);
    const uint64_t now_ns = mr_clock_ns();
    const uint64_t oldest = m->last > PS_ANNOTATIONS_KEPT ? m->last - PS_ANNOTATIONS_KEPT + 1 : 1;
    if (since < oldest - 1) {
        *missed = oldest - 1 - since;
        since = oldest - 1;
    }
    for (uint64_t n = since + 1; since < m->last && n <= m->last; n++) {
        const struct kept *kept = &m->kept[n % PS_ANNOTATIONS_KEPT];
        out[count] = kept->annotation;
        out[count++].age_ns = now_ns - kept->at_ns;
    }
    *last = m->last;
    pthread_mutex_unlock(&m->lock);
    return count;
}
