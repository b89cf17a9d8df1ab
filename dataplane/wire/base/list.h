/* Intrusive, circular, doubly linked lists. A head is a link that belongs to no element; a link that is in no
 * list points to itself, so that removing it twice does no harm. */
#ifndef MR_LIST_H
#define MR_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct mr_link {
    struct mr_link *next, *prev;
};

#define MR_CONTAINER(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline void mr_list_init(struct mr_link *link)
{
    link->next = link;
    link->prev = link;
}

/* Returns whether a head has no elements, or an element is in no list. */
static inline bool mr_list_empty(const struct mr_link *link)
{
    return link->next == link;
}

static inline void mr_list_append(struct mr_link *head, struct mr_link *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void mr_list_prepend(struct mr_link *head, struct mr_link *link)
{
    mr_list_append(head->next, link);
}

static inline void mr_list_remove(struct mr_link *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    mr_list_init(link);
}

/* Moves all elements of `from` to the end of `to`. */
static inline void mr_list_splice(struct mr_link *to, struct mr_link *from)
{
    if (mr_list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    mr_list_init(from);
}

#endif
