/* Saves that begin by themselves. */
#include <stdio.h>
#include "ps/control/control_internal.h"

void ps_control_schedule_start(struct ps_control *c)
{
    const struct ps_config *config = c->node->config;
    ps_save_schedule_start(&c->saves.schedule, config->checkpoint_every_steps,
                           config->checkpoint_every_s * 1000000, ps_control_step(c), dp_now_us());
    c->saves.changes_saved = ps_control_changes(c);
}

void ps_automatic_begin(struct ps_control *c, uint64_t step, bool at_step)
{
    struct ps_save_request request = {.is_automatic = true, .step = step};
    char text[PS_CONTROL_TEXT_BYTES];
    uint64_t id;
    snprintf(request.directory, sizeof(request.directory), "%s", c->node->config->checkpoint_directory);
    ps_save_schedule_began(&c->saves.schedule, ps_control_step(c), dp_now_us()); /* also if it fails */
    ps_control_note_save(c, &request, PS_SAVE_WRITING);
    enum mr_status status = ps_control_cut(c, &request, step, at_step, &id, text);
    if (status != MR_OK) {
        ps_control_save_failed(c, request.number, status, text);
    } else {
        ps_control_add_counter(&c->node->checkpoint_counters.saves_automatic, 1);
    }
}

/* Without trainers to wait for: as soon as it is due. */
void ps_automatic_at_once(struct ps_control *c)
{
    struct ps_save_schedule *schedule = &c->saves.schedule;
    uint64_t step = ps_control_step(c), now_us = dp_now_us();
    if (!ps_save_schedule_step_is_due(schedule, step) && !ps_save_schedule_time_is_due(schedule, now_us)) {
        return;
    }
    if (ps_control_changes(c) == c->saves.changes_saved) {
        ps_save_schedule_began(schedule, step, now_us);
        return;
    }
    ps_automatic_begin(c, step, false);
}

/* The step of the next automatic cut: the next multiple, or, when the time has come, the step training is
 * at. */
bool ps_automatic_next_step(struct ps_control *c, uint64_t *step)
{
    struct ps_save_schedule *schedule = &c->saves.schedule;
    uint64_t present = ps_control_step(c), now_us = dp_now_us();
    if (ps_save_schedule_time_is_due(schedule, now_us)) {
        if (present != 0 && ps_control_changes(c) != c->saves.changes_saved) {
            *step = present;
            return true;
        }
        schedule->next_us = now_us + schedule->every_us; /* nothing is new */
    }
    if (schedule->every_steps == 0) {
        return false;
    }
    if (ps_save_schedule_step_is_due(schedule, present)) {
        ps_save_schedule_began(schedule, present, schedule->next_us - schedule->every_us);
    }
    *step = schedule->next_step;
    return true;
}
