/* Which form a request gets. */
#include "dataplane/metrics/metrics_accept.h"
#include "tests/test.h"

TEST(the_form_is_what_the_header_prefers)
{
    static const struct {
        const char *accept;
        bool open;
    } cases[] = {
        {NULL, false},
        {"", false},
        {"*/*", false},
        {"text/plain", false},
        {"application/openmetrics-text", true},
        {"application/openmetrics-text-2", false},
        {"APPLICATION/OpenMetrics-Text; version=1.0.0", true},
        {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
         "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
         true},
        {"text/plain;q=0.9, application/openmetrics-text;q=0.5", false},
        {"application/openmetrics-text;q=0, */*", false},
        {"application/openmetrics-text ;version=1.0.0 ; q=0.5, text/html", true},
        {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false},
        {",,;;,=", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (mr_metrics_wants_open(cases[i].accept) != cases[i].open)
            fail_msg("\"%s\"", cases[i].accept);
}
