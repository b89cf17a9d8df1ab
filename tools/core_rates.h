/* What top shows: a core's counters and state at two times, and the rates between them. Pure. */
#ifndef TOOL_CORE_RATES_H
#define TOOL_CORE_RATES_H

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include "millrace_observe.h"

struct tool_core_sample {
    uint64_t time_us;
    uint64_t calls, keys, rx_packets, rx_bytes, tx_packets, tx_bytes; /* since the server's start */
    struct mr_core_state state;
    /* of the node's checkpoints, which core 0 tells: as counters of the same names */
    uint64_t running_id, running_bytes, running_bytes_total, saves_queued;
    uint64_t waiting_step, trainers_held, trainers_awaited;
    /* of the copies of these in a store: counters "remote.*" of core 0 */
    uint64_t remote_state, remote_last_id, remote_behind, remote_behind_s, remote_bytes, remote_failed,
        remote_bytes_kept, remote_bytes_again, remote_status;
    /* of the copies of a cluster's node: counters "cluster.*" of core 0 */
    uint64_t copies_lag_bytes, copies_lag_us, partitions_backed_up, partitions_uncopied;
    /* of the checkpoints that were read again: counters "scrub.*" of core 0 */
    uint64_t scrub_rounds, scrub_last_s, scrub_damaged, scrub_damaged_id;
};

struct tool_core_rates {
    double calls_per_s, keys_per_s, rx_packets_per_s, rx_bytes_per_s, tx_packets_per_s, tx_bytes_per_s;
};

/* A visitor for mr_stats(): picks what the sample (arg) holds out of a core's counters. Counters of all
 * tables add up. */
void tool_core_sample_counter(void *arg, const char *name, uint64_t value);
/* Zero between samples of different incarnations (counters began again) or of the same time. */
struct tool_core_rates tool_core_rates(const struct tool_core_sample *before,
                                       const struct tool_core_sample *now);

/* What the node's checkpoints are about, by core 0's samples: "checkpoint 7: 12.0 of 400.0 MiB, 250.0 MiB/s
 * now; 1 save queued; a cut waits for step 40, where 1 of 2 trainers are". False: about nothing. */
bool tool_checkpoint_line(const struct tool_core_sample *before, const struct tool_core_sample *now,
                          char *out, size_t out_bytes);
json_t *tool_checkpoint_json(const struct tool_core_sample *before, const struct tool_core_sample *now);

/* What the copies in the store are about, by core 0's samples: "store: 2 checkpoints behind, for 40 s; 52.1
 * MiB/s now". False: there is no store. */
bool tool_remote_line(const struct tool_core_sample *before, const struct tool_core_sample *now, char *out,
                      size_t out_bytes);
json_t *tool_remote_json(const struct tool_core_sample *before, const struct tool_core_sample *now);

/* What reading the checkpoints on the disk again has found, by core 0's sample: "damaged on the disk: 2
 * checkpoints, the newest of all, 7, among them (see the log)". False: nothing. */
bool tool_scrub_line(const struct tool_core_sample *now, char *out, size_t out_bytes);
json_t *tool_scrub_json(const struct tool_core_sample *now);

/* What is wrong with the copies of what a node owns, by core 0's sample: "its backups are 12.0 MiB behind, by
 * 0.4 s; 683 partitions have no backup in sync". False: nothing. */
bool tool_copies_line(const struct tool_core_sample *now, char *out, size_t out_bytes);
json_t *tool_copies_json(const struct tool_core_sample *now);

/* What was asked of all cores and not done, since the server's start: "549728 rows refused at a limit; 20
 * gradients without a row, since the start". False: nothing. */
bool tool_drop_stats_line(const struct tool_core_sample *cores, uint32_t core_count, char *out,
                          size_t out_bytes);

/* "serving", "saving", ... */
const char *tool_node_state_name(uint32_t state);
/* One line, and the heading that fits it. */
extern const char tool_core_heading[];
void tool_core_line(const struct tool_core_sample *now, const struct tool_core_rates *rates, char *out,
                    size_t out_bytes);
json_t *tool_core_json(const struct tool_core_sample *now, const struct tool_core_rates *rates);
/* 1234567 -> "1.23M"; at most 7 characters. */
void tool_short_number(double value, char out[16]);

#endif
