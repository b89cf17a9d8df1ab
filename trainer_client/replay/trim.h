/* The pushes that were trimmed from a replay buffer, because they were on disk or because there was no room:
 * up to which number, of which steps, and whether the server can lack any of them. Pure. One thread at a
 * time. */
#ifndef MRC_TRIM_H
#define MRC_TRIM_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"

#define MRC_TRAIL_NOTES 64u

struct mrc_loss {
    uint64_t pushes;    /* 0: nothing was lost */
    uint64_t from_step; /* the steps of the pushes in doubt are in this range */
    uint64_t to_step;
    enum mr_status refused; /* why the server refused them; MR_OK: they had been given up */
};

/* Numbers and steps of some of the trimmed pushes; the more there are, the more rarely they are
 * noted. */
struct mrc_trail {
    uint64_t numbers[MRC_TRAIL_NOTES], steps[MRC_TRAIL_NOTES];
    uint32_t count;
    uint64_t skip, skipped; /* every skip-th is noted */
};

struct mrc_trim {
    uint64_t to; /* the highest number; 0: nothing was trimmed */
    uint64_t to_step;
    uint64_t given_up_to; /* the highest number that was given up and, as far as is known, is not on disk */
    uint32_t restores;    /* struct mrc_push.restores of the newest */
    /* the server was restarted from a checkpoint that may lack what another one had */
    bool is_suspect;
    struct mrc_trail trail;
};

/* Initializes it: nothing was trimmed. */
void mrc_trim_init(struct mrc_trim *trim);
/* Notes a trimmed push. Numbers rise; lower ones are ignored. */
void mrc_trim_add(struct mrc_trim *trim, uint64_t number, uint64_t step, uint32_t restores);
/* Notes that all pushes up to this number are on disk. */
void mrc_trim_saved(struct mrc_trim *trim, uint64_t number);
/* Notes that the server was restarted, and may lack what was on disk. */
void mrc_trim_suspect(struct mrc_trim *trim);
/* Handles the floor of a restarted server, which has all pushes up to `floor`. Returns what it lacks,
 * once. */
struct mrc_loss mrc_trim_compare(struct mrc_trim *trim, uint64_t floor);
/* Notes that everything was restored by call, for the `whole`-th time: what was trimmed before that is
 * no loss. */
void mrc_trim_restored(struct mrc_trim *trim, uint32_t whole);
/* Adds one to the other, of the same stream. `from` is then empty. */
void mrc_trim_move(struct mrc_trim *to, struct mrc_trim *from);

#endif
