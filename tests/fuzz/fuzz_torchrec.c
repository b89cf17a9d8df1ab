/* What stands behind "millrace://" and names of tables, any bytes: an error of one line, or a configuration
 * within its limits; and names that the server takes. */
#include <string.h>
#include "tests/fuzz/fuzz_assert.h"
#include "trainer_client/torchrec/configuration.h"
#include "trainer_client/torchrec/table_name.h"

static void check_configuration(const char *text)
{
    struct tde_configuration c;
    char error[512] = "";
    if (!tde_configuration_parse(text, &c, error, sizeof(error))) {
        FUZZ_ASSERT(error[0] != '\0' && strchr(error, '\n') == NULL);
        return;
    }
    FUZZ_ASSERT(c.server[0] != '\0' && strnlen(c.server, sizeof(c.server)) < sizeof(c.server));
    FUZZ_ASSERT(strnlen(c.key_file, sizeof(c.key_file)) < sizeof(c.key_file));
    FUZZ_ASSERT(strnlen(c.prefix, sizeof(c.prefix)) < sizeof(c.prefix));
    FUZZ_ASSERT(c.deadline_ms >= 1 && c.deadline_ms <= 3600000 && c.connect_ms >= 1 &&
                c.connect_ms <= 3600000);
    FUZZ_ASSERT(c.replay_mib >= 1 && c.replay_mib <= 4095);
    FUZZ_ASSERT(c.dtype == MR_F32 || c.dtype == MR_F16 || c.dtype == MR_BF16);
}

static void check_name(const char *prefix, const char *table, int64_t column)
{
    char name[2][MR_NAME_BYTES];
    for (uint32_t i = 0; i < 2; i++) {
        tde_table_name(prefix, table, i == 1, column, name[i]);
        struct mr_feature f = mr_feature_table(name[i], 1);
        FUZZ_ASSERT(mr_feature_check(&f) == NULL);
    }
    FUZZ_ASSERT(strcmp(name[0], name[1]) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[4096];
    size_t length = bytes < sizeof(text) ? bytes : sizeof(text) - 1;
    if (length > 0)
        memcpy(text, data, length);
    text[length] = '\0';
    check_configuration(text);
    check_name("", text, (int64_t)bytes);
    check_name(text, text + length / 2, -(int64_t)bytes);
    return 0;
}
