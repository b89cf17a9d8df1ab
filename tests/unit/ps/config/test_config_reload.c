/* What has changed between two readings of the configuration, and how it is shown. */
#include <stdio.h>
#include <string.h>
#include "ps/config/config_reload.h"
#include "tests/test.h"

static struct ps_config before, after;
static struct ps_config_keys_found found;

static int set_up(void **state)
{
    ps_config_default(&before);
    ps_config_default(&after);
    return 0;
}

static void config_reload_set(struct ps_config *config, const char *assignment)
{
    char error[PS_CONFIG_ERROR_BYTES];
    if (ps_config_set(config, assignment, error) != MR_OK)
        fail_msg("%s", error);
}

static void shows(uint32_t key, const char *text)
{
    char shown[PS_CONFIG_SHOWN_BYTES];
    ps_config_show(&after, key, shown);
    assert_string_equal(shown, text);
}

TEST(nothing_has_changed, set_up)
{
    ps_config_changed(&before, &after, &found);
    assert_int_equal(found.count, 0);
    config_reload_set(&before, "log.level=info"); /* the default, given on purpose */
    config_reload_set(&after, "checkpoint.keep=3");
    ps_config_changed(&before, &after, &found);
    assert_int_equal(found.count, 0);
}

/* Of every type one. */
TEST(changes_are_found_in_the_order_of_the_file, set_up)
{
    char names[256];
    config_reload_set(&after, "checkpoint.save_on_stop=no");
    config_reload_set(&after, "log.format=json");
    config_reload_set(&after, "port.mtu=1400");
    config_reload_set(&after, "checkpoint.allow=/a");
    config_reload_set(&after, "checkpoint.allow=/b");
    config_reload_set(&after, "node.name=other");
    ps_config_changed(&before, &after, &found);
    ps_config_join(&found, names, sizeof(names));
    assert_string_equal(names, "node.name, log.format, port.mtu, checkpoint.allow, checkpoint.save_on_stop");
    shows(PS_CONFIG_KEY_node_name, "other");
    shows(PS_CONFIG_KEY_log_format, "json");
    shows(PS_CONFIG_KEY_port_mtu, "1400");
    shows(PS_CONFIG_KEY_checkpoint_allow, "/a, /b");
    shows(PS_CONFIG_KEY_checkpoint_save_on_stop, "no");
    shows(PS_CONFIG_KEY_checkpoint_directory, "(empty)");
    shows(PS_CONFIG_KEY_log_level, "info");
}

TEST(lists_are_compared_by_their_values, set_up)
{
    config_reload_set(&before, "checkpoint.allow=/a");
    config_reload_set(&after, "checkpoint.allow=/a");
    after.checkpoint_allow.lines[0] = 77; /* it stands on another line of the file */
    ps_config_changed(&before, &after, &found);
    assert_int_equal(found.count, 0);
    config_reload_set(&after, "checkpoint.allow=/b");
    ps_config_changed(&before, &after, &found);
    assert_int_equal(found.count, 1);
}

TEST(one_key_is_taken, set_up)
{
    config_reload_set(&after, "checkpoint.keep=9");
    config_reload_set(&after, "checkpoint.every_s=7");
    ps_config_take(&before, &after, PS_CONFIG_KEY_checkpoint_keep);
    assert_int_equal(before.checkpoint_keep, 9);
    assert_int_equal(before.checkpoint_every_s, 600);
    ps_config_changed(&before, &after, &found);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.keys[0], PS_CONFIG_KEY_checkpoint_every_s);
}

TEST(a_list_of_names_is_cut, set_up)
{
    char names[24];
    config_reload_set(&after, "port.mtu=1400");
    config_reload_set(&after, "port.vlan=7");
    config_reload_set(&after, "cores.count=2");
    ps_config_changed(&before, &after, &found);
    ps_config_join(&found, names, sizeof(names));
    assert_string_equal(names, "port.vlan, port.mtu, co");
}

/* What is set up at start needs a restart; what is looked at again and again does not. */
TEST(keys_say_what_they_need, set_up)
{
    static const uint32_t reload[] = {PS_CONFIG_KEY_log_level,          PS_CONFIG_KEY_log_format,
                                      PS_CONFIG_KEY_log_journal,        PS_CONFIG_KEY_log_rate_per_s,
                                      PS_CONFIG_KEY_checkpoint_every_s, PS_CONFIG_KEY_checkpoint_keep,
                                      PS_CONFIG_KEY_node_key_file,      PS_CONFIG_KEY_node_key};
    static const uint32_t restart[] = {PS_CONFIG_KEY_port_mtu, PS_CONFIG_KEY_cores_count,
                                       PS_CONFIG_KEY_memory_limit_mib, PS_CONFIG_KEY_checkpoint_directory};
    for (uint32_t i = 0; i < sizeof(reload) / sizeof(*reload); i++)
        assert_true(ps_config_key_reloads(reload[i]));
    for (uint32_t i = 0; i < sizeof(restart) / sizeof(*restart); i++)
        assert_false(ps_config_key_reloads(restart[i]));
}
