/* Files with secrets that a node reads only when it starts. */
#include <stdio.h>
#include <unistd.h>
#include "ps/server/kept_files.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

TEST(what_has_changed_is_named, temporary_directory_setup, temporary_directory_teardown)
{
    static struct ps_config config;
    struct ps_kept_files files;
    ps_config_default(&config);
    ps_kept_files_note(&files, &config);
    assert_int_equal(ps_kept_files_warn(&files, &config), 0);

    snprintf(config.checkpoint_remote_credentials, sizeof(config.checkpoint_remote_credentials), "%s/s3",
             (const char *)*state);
    snprintf(config.cluster_credentials_file, sizeof(config.cluster_credentials_file), "%s/zookeeper",
             (const char *)*state);
    write_text(config.checkpoint_remote_credentials, "a");
    write_text(config.cluster_credentials_file, "b");
    ps_kept_files_note(&files, &config);
    assert_int_equal(ps_kept_files_warn(&files, &config), 0);
    write_text(config.checkpoint_remote_credentials, "longer");
    assert_int_equal(ps_kept_files_warn(&files, &config), 1);
    assert_int_equal(unlink(config.cluster_credentials_file), 0);
    assert_int_equal(ps_kept_files_warn(&files, &config), 2);
    write_text(config.cluster_credentials_file, "c"); /* another file, with the same length */
    assert_int_equal(ps_kept_files_warn(&files, &config), 2);
}
