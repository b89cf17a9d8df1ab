#include "ps/core/marks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"

struct ps_marks {
    pthread_mutex_t lock;
    uint64_t last; /* number of the newest */
    struct kept {
        uint64_t at_ns;
        struct mr_mark mark;
    } kept[PS_MARKS_KEPT]; /* number n is in n % PS_MARKS_KEPT */
};

struct ps_marks *ps_marks_create(void)
{
    struct ps_marks *m = calloc(1, sizeof(*m));
    if (m != NULL)
        (void)pthread_mutex_init(&m->lock, NULL);
    return m;
}

void ps_marks_destroy(struct ps_marks *m)
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

void ps_marks_add(struct ps_marks *m, const char *event, const char *client, const char *text)
{
    if (m == NULL)
        return;
    pthread_mutex_lock(&m->lock);
    struct kept *kept = &m->kept[++m->last % PS_MARKS_KEPT];
    kept->at_ns = mr_clock_ns();
    kept->mark.sequence = m->last;
    copy_text(kept->mark.event, sizeof(kept->mark.event), event);
    copy_text(kept->mark.client, sizeof(kept->mark.client), client);
    copy_text(kept->mark.text, sizeof(kept->mark.text), text);
    pthread_mutex_unlock(&m->lock);
}

uint32_t ps_marks_read(struct ps_marks *m, uint64_t since, struct mr_mark *out, uint64_t *last,
                       uint64_t *missed)
{
    uint32_t count = 0;
    *last = *missed = 0;
    if (m == NULL)
        return 0;
    pthread_mutex_lock(&m->lock);
    const uint64_t now_ns = mr_clock_ns();
    const uint64_t oldest = m->last > PS_MARKS_KEPT ? m->last - PS_MARKS_KEPT + 1 : 1;
    if (since < oldest - 1) {
        *missed = oldest - 1 - since;
        since = oldest - 1;
    }
    for (uint64_t n = since + 1; since < m->last && n <= m->last; n++) {
        const struct kept *kept = &m->kept[n % PS_MARKS_KEPT];
        out[count] = kept->mark;
        out[count++].age_ns = now_ns - kept->at_ns;
    }
    *last = m->last;
    pthread_mutex_unlock(&m->lock);
    return count;
}
