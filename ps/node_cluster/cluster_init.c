#include "ps/node_cluster/cluster_init.h"

#include <stdlib.h>
#include <string.h>
#include "ps/control/control_internal.h"
#include "ps/store/store_url.h"

bool ps_cluster_init_create(struct ps_cluster_init *init, const char *path)
{
    *init = (struct ps_cluster_init){.id = 0};
    return path[0] == '\0' || ps_store_url_split(path, init->directory, sizeof(init->directory), &init->id);
}

static bool read_features(struct ps_cluster_init *init, struct ps_control *control, char *text)
{
    struct ps_catalog *features = calloc(1, sizeof(*features));
    if (features == NULL) {
        (void)snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory left");
        return false;
    }
    if (ps_control_read_features(control, init->directory, init->id, features, text) != MR_OK) {
        free(features);
        return false;
    }
    init->features = features;
    return true;
}

enum ps_cluster_init_state ps_cluster_init_look(struct ps_cluster_init *init, struct ps_control *control,
                                                char *text)
{
    char why[PS_RULES_TEXT_BYTES] = "";
    if (init->features == NULL && !read_features(init, control, text))
        return PS_INIT_FAILED;
    switch (ps_control_cluster_begin(control, init->features, why)) {
    case PS_CATALOG_MADE:
        return PS_INIT_READY;
    case PS_CATALOG_FAILED:
        (void)snprintf(text, PS_CONTROL_TEXT_BYTES, "%.200s", why);
        return PS_INIT_FAILED;
    case PS_CATALOG_WAITS:
    case PS_CATALOG_WRITES:
    default:
        return PS_INIT_WAITS;
    }
}

struct ps_restore_request ps_cluster_init_request(const struct ps_cluster_init *init, const bool *owns)
{
    return (struct ps_restore_request){.directory = init->directory,
                                       .is_own = true,
                                       .id = init->id,
                                       .goes_on = true,
                                       .owns = owns,
                                       .own_part = ""}; /* of its nodes this is none, whatever its name */
}

void ps_cluster_init_destroy(struct ps_cluster_init *init)
{
    free(init->features);
    init->features = NULL;
}
