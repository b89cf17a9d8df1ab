#include "trainer_client/hub/sample.h"

#include <string.h>

static const struct hub_format *const formats[] = {&hub_format_libsvm, &hub_format_criteo,
                                                   &hub_format_flights};

const struct hub_format *hub_format_find(const char *name)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
    return NULL;
}

const struct hub_format *hub_format_at(uint32_t i)
{
    return i < sizeof(formats) / sizeof(formats[0]) ? formats[i] : NULL;
}

const char *hub_format_names(void)
{
    return "libsvm, criteo, flights";
}
