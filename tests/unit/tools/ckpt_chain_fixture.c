#include "tests/test.h"
#include "tests/unit/tools/ckpt_chain_fixture.h"

#include <string.h>

enum { RECORD = 250 };

uint32_t chain_model[CHAIN_LINKS_MAX + 1][CHAIN_TABLES + 1][CHAIN_KEYS];
static uint64_t random_state;

static uint32_t draw(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % n);
}

uint64_t chain_key(uint32_t i)
{
    return i * UINT64_C(0x9e3779b97f4a7c15);
}

float chain_value(uint32_t i, uint32_t link)
{
    return (float)(i + 10000 * link);
}

uint32_t chain_row_floats(uint32_t table)
{
    return table == 1 ? 2 : 6;
}

uint64_t chain_rows(uint32_t link, uint32_t table)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < CHAIN_KEYS; i++)
        rows += chain_model[link][table][i] != 0;
    return rows;
}

void chain_features(struct mr_feature features[3])
{
    features[0] = mr_feature_table("a", 2);
    features[1] = mr_feature_table("b", 5);
    features[2] = mr_feature_variable("v", 0, NULL);
    mr_feature_set_optimizer(&features[1], MR_OPT_ROWWISE_ADAGRAD);
}

static void write_table(struct ckpt_fixture_writer *w, uint32_t table, uint32_t link)
{
    static uint64_t keys[CHAIN_KEYS], gone[CHAIN_KEYS];
    static float rows[CHAIN_KEYS * 6];
    const uint32_t floats = chain_row_floats(table);
    uint32_t count = 0, gone_count = 0, *model = chain_model[link][table];
    memcpy(model, chain_model[link - 1][table], sizeof(chain_model[link][table]));
    for (uint32_t i = 0; i < CHAIN_KEYS; i++) {
        const uint32_t what = draw(10);
        if (link == 1 ? what < 7 : what < 3) {
            for (uint32_t f = 0; f < floats; f++)
                rows[count * floats + f] = chain_value(i, link);
            keys[count++] = chain_key(i);
            model[i] = link;
        } else if (link > 1 && what == 3 && model[i] != 0) {
            gone[gone_count++] = chain_key(i);
            model[i] = 0;
        }
    }
    for (uint32_t i = 0; i < count; i += RECORD)
        ckpt_fixture_rows(w, i / RECORD % 2, table, keys + i, rows + (size_t)i * floats, floats * 4,
                          count - i < RECORD ? count - i : RECORD);
    if (gone_count > 0)
        ckpt_fixture_gone(w, 1, table, gone, gone_count);
}

static void write_variable(struct ckpt_fixture_writer *w, uint32_t link)
{
    const float value = (float)link;
    const struct ps_record variable = {.kind = PS_RECORD_VARIABLE, .feature = 3, .count = 4, .bytes = 4};
    ckpt_fixture_record(w, 0, &variable, &value);
}

void chain_write_small(struct ckpt_fixture_writer *w, uint32_t link)
{
    write_variable(w, link);
    const uint64_t observations = link;
    struct ps_record piece = {
        .kind = PS_RECORD_OBSERVATIONS, .feature = 1, .count = 8, .offset = 7, .bytes = 8};
    ckpt_fixture_record(w, 1, &piece, &observations);
    piece.row_bytes = 64;
    if (link <= 2)
        ckpt_fixture_record(w, 1, &piece, &observations);
}

static void write_links(const char *directory, uint32_t links, bool with_filter)
{
    struct mr_feature features[3];
    chain_features(features);
    memset(chain_model, 0, sizeof(chain_model));
    random_state = 11;
    assert_true(links <= CHAIN_LINKS_MAX);
    for (uint32_t link = 1; link <= links; link++) {
        struct ckpt_fixture_writer w;
        const uint64_t id = CHAIN_FIRST + link - 1;
        ckpt_fixture_start(&w, directory, id, link == 1 ? 0 : id - 1, features, 3, 2);
        for (uint32_t table = 1; table <= CHAIN_TABLES; table++)
            write_table(&w, table, link);
        if (with_filter)
            chain_write_small(&w, link);
        else
            write_variable(&w, link);
        ckpt_fixture_publish(&w, 2);
    }
}

void chain_write(const char *directory, uint32_t links)
{
    write_links(directory, links, true);
}

void chain_write_for_node(const char *directory, uint32_t links)
{
    write_links(directory, links, false);
}
