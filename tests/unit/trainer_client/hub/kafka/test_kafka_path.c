/* Paths of plans over topics, and what a hub without librdkafka says of them. */
#include <string.h>
#include "trainer_client/hub/kafka/kafka_path.h"
#include "trainer_client/hub/kafka/kafka_topic.h"
#include "trainer_client/hub/samples/sample_file.h"
#include "tests/test.h"

static char error_text[HUB_ERROR_BYTES];

TEST(paths_name_a_topic)
{
    struct hub_kafka_path path;
    assert_true(hub_kafka_path_is("kafka:clicks"));
    assert_false(hub_kafka_path_is("/data/kafka:clicks"));
    assert_false(hub_kafka_path_is("-"));
    assert_int_equal(hub_kafka_path_parse("kafka:ads.Clicks_2-a", &path, error_text), MR_OK);
    assert_string_equal(path.topic, "ads.Clicks_2-a");
    assert_int_equal(path.messages, 0);
    assert_int_equal(hub_kafka_path_parse("kafka:clicks?messages=65536", &path, error_text), MR_OK);
    assert_string_equal(path.topic, "clicks");
    assert_int_equal(path.messages, 65536);
}

TEST(what_is_no_topic_is_refused)
{
    static char long_name[300] = "kafka:";
    memset(long_name + 6, 'x', 250);
    static const struct {
        const char *path, *says;
    } cases[] = {
        {"kafka:", "a topic's name has 1 to 249"},
        {long_name, "a topic's name has 1 to 249"},
        {"kafka://broker/topic", "brokers are the hub's (--kafka HOST:PORT,...)"},
        {"kafka:a/b", "what follows the topic is not known"},
        {"kafka:a?from=latest", "what follows the topic is not known"},
        {"kafka:a?messages=", "messages is not a number from 1 to 65536"},
        {"kafka:a?messages=0", "messages is not a number from 1 to 65536"},
        {"kafka:a?messages=65537", "messages is not a number from 1 to 65536"},
        {"kafka:a?messages=100000000000000000000", "messages is not a number from 1 to 65536"},
        {"kafka:a?messages=8x", "messages is not a number from 1 to 65536"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hub_kafka_path path;
        assert_int_equal(hub_kafka_path_parse(cases[i].path, &path, error_text), MR_INVALID_ARGUMENT);
        if (strstr(error_text, cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].path, error_text);
    }
}

/* This test is linked with no_kafka.c. */
TEST(without_librdkafka_there_are_no_topics)
{
    struct hub_kafka_topic *topic = NULL;
    const struct hub_kafka_options options = {.topic = "clicks"};
    assert_int_equal(hub_kafka_open(&options, &topic, error_text), MR_UNSUPPORTED);
    assert_non_null(strstr(error_text, "kafka:clicks: this hub was built without librdkafka"));
    assert_null(topic);
    hub_kafka_close(NULL);
}
