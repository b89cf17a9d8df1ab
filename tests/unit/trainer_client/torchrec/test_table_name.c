#include <string.h>
#include "trainer_client/torchrec/table_name.h"
#include "tests/test.h"

static void expect(const char *prefix, const char *table, bool has_column, int64_t column, const char *name)
{
    char out[MR_NAME_BYTES];
    memset(out, 'x', sizeof(out));
    tde_table_name(prefix, table, has_column, column, out);
    assert_string_equal(out, name);
}

/* Made of the beginning and a digest; a name that the server takes. */
static void made(const char *table, int64_t column, const char *begins, char out[MR_NAME_BYTES])
{
    struct mr_feature f;
    tde_table_name("", table, true, column, out);
    f = mr_feature_table(out, 4);
    assert_null(mr_feature_check(&f));
    assert_memory_equal(out, begins, strlen(begins));
    assert_int_equal(out[strlen(out) - 17], '.');
}

TEST(test_names_say_prefix_table_and_column)
{
    expect("", "model.user_id", false, 0, "model.user_id");
    expect("", "model.user_id", true, 0, "model.user_id:c0");
    expect("ads/", "t", true, INT64_MIN, "ads/t:c-9223372036854775808");
    expect("", "12345678901234567890123456789012345678901234567890123456789012", false, 0,
           "12345678901234567890123456789012345678901234567890123456789012");
    expect("", "123456789012345678901234567890123456789012345678901234567890", true, 0,
           "123456789012345678901234567890123456789012345678901234567890:c0");
}

TEST(test_what_no_name_may_be_is_digested)
{
    char a[MR_NAME_BYTES], b[MR_NAME_BYTES], c[MR_NAME_BYTES];
    const char *longer = "module.sparse.embedding_bag_collection.t_user_history_category_of_items";
    made(longer, 0, "module.sparse.embedding_bag_collection.t_user_", a);
    made(longer, 1, "module.sparse.embedding_bag_collection.t_user_", b);
    assert_string_not_equal(a, b);
    made(longer, 0, "module.", c);
    assert_string_equal(a, c);
    made("user id", 0, "user_id:c0.", a);
    made("user\tid", 0, "user_id:c0.", b);
    assert_string_not_equal(a, b);
    made("\xc3\xa9", 0, "__:c0.", a);
    tde_table_name("", "", false, 0, a);
    assert_int_equal(strlen(a), 17);
}
