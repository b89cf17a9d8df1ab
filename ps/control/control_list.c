/* List: the features of the node, with their rows and bytes. */
#include <stdlib.h>
#include "ps/control/control_internal.h"

struct sizes {
    const struct ps_catalog *catalog;
    uint64_t *of_core[DP_CORES_MAX]; /* [features, MR_LIST_WORDS] */
};

static void size_on_core(struct ps_core *core, void *arg)
{
    struct sizes *s = arg;
    uint64_t *out = s->of_core[core->index];
    for (uint32_t i = 0; i < s->catalog->count; i++, out += MR_LIST_WORDS) {
        const struct ps_feature *f = ps_core_feature(core, s->catalog->ids[i]);
        if (f->table != NULL) {
            const struct ps_table_counters *c = ps_table_counters(f->table);
            out[MR_LIST_ROWS] = ps_table_rows_owned(f->table);
            out[MR_LIST_BYTES] = ps_table_index_bytes(f->table) + ps_table_row_bytes_total(f->table) +
                                 ps_table_filter_bytes(f->table);
            out[MR_LIST_REFUSED] = c->rows_refused;
            out[MR_LIST_WITHOUT_ROW] = c->gradients_without_row;
            out[MR_LIST_SKIPPED] = c->gradients_skipped;
        } else {
            out[MR_LIST_BYTES] = ps_feature_variable_bytes(f);
            out[MR_LIST_SKIPPED] = f->gradients_skipped;
        }
    }
}

static void control_list_answer(struct ps_control *c, struct ps_command *command,
                                const struct ps_catalog *catalog)
{
    struct sizes sizes = {.catalog = catalog};
    size_t words = (size_t)MR_LIST_WORDS * catalog->count;
    uint64_t starts[PS_STARTS_MAX][MR_LIST_START_WORDS];
    uint32_t *taken_back = malloc((MR_LIST_HISTORY_WORDS + catalog->count) * sizeof(*taken_back));
    uint64_t *all = calloc((words + 1) * (c->node->core_count + 1), sizeof(*all));
    if (all == NULL || taken_back == NULL) {
        ps_command_fail(command, MR_OUT_OF_MEMORY, "no memory left");
        free(all);
        free(taken_back);
        return;
    }
    for (uint32_t i = 0; i < c->node->core_count; i++)
        sizes.of_core[i] = all + (i + 1) * words;
    ps_node_each_core(c->node, size_on_core, &sizes);
    for (size_t i = 0; i < words * c->node->core_count; i++)
        all[i % words] += all[words + i];
    ps_command_answer(command, mr_tensor_2d(MR_U8, catalog->count, sizeof(struct mr_feature), NULL),
                      catalog->features);
    ps_command_answer(command, mr_tensor_1d(MR_U32, catalog->count, NULL), catalog->ids);
    ps_command_answer(command, mr_body_rows(MR_BODY_LIST, catalog->count, NULL), all);
    taken_back[MR_LIST_HISTORY_RESTORES] = c->history.restores;
    taken_back[MR_LIST_HISTORY_WHOLE] = c->history.whole;
    for (uint32_t i = 0; i < catalog->count; i++)
        taken_back[MR_LIST_HISTORY_WORDS + i] = ps_history_taken_back(&c->history, catalog->ids[i]);
    ps_command_answer(command, mr_tensor_1d(MR_U32, MR_LIST_HISTORY_WORDS + catalog->count, NULL),
                      taken_back);
    for (uint32_t i = 0; i < c->ancestry.count; i++) {
        starts[i][MR_LIST_START_ID] = c->ancestry.starts[i].id;
        starts[i][MR_LIST_START_FROM] = c->ancestry.starts[i].from;
    }
    ps_command_answer(command, mr_body_rows(MR_BODY_LIST_START, c->ancestry.count, NULL), starts);
    free(all);
    free(taken_back);
}

/* What the nodes of a cluster are still trying, nobody may use yet. */
void ps_control_list(struct ps_control *c, struct ps_command *command)
{
    command->status = ps_control_check_whole(c, command->text);
    if (command->status != MR_OK) /* no row is known, which is not the same as none */
        return;
    struct ps_catalog *final = c->cluster != NULL ? calloc(1, sizeof(*final)) : NULL;
    if (c->cluster != NULL && final == NULL) {
        ps_command_fail(command, MR_OUT_OF_MEMORY, "no memory left");
        return;
    }
    for (uint32_t i = 0; i < c->catalog.count && final != NULL; i++)
        if (ps_control_cluster_is_final(c, c->catalog.ids[i]))
            ps_catalog_add(final, c->catalog.ids[i], &c->catalog.features[i]);
    control_list_answer(c, command, final != NULL ? final : &c->catalog);
    free(final);
}
