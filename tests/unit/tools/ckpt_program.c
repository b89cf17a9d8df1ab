#include "tests/unit/tools/ckpt_program.h"

#include <stdio.h>
#include <string.h>
#include "tests/command.h"
#include "tests/test.h"

const char *ckpt_program;
char ckpt_output_text[CKPT_OUTPUT_BYTES];

int ckpt_run(const char *format, ...)
{
    char arguments[1200];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(arguments, sizeof(arguments), format, list);
    va_end(list);
    return command_output(ckpt_output_text, sizeof(ckpt_output_text), "exec 2>&1 </dev/null; %s ckpt %s",
                          ckpt_program, arguments);
}

void ckpt_expect(const char *says)
{
    if (!strstr(ckpt_output_text, says))
        fail_msg("\"%s\" is not in:\n%s", says, ckpt_output_text);
}

json_t *ckpt_json(void)
{
    json_error_t error;
    json_t *value = json_loads(ckpt_output_text, 0, &error);
    if (!value)
        fail_msg("%s: %s", error.text, ckpt_output_text);
    return value;
}

int64_t ckpt_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("no number \"%s\" in: %s", key, ckpt_output_text);
    return json_integer_value(value);
}

const char *ckpt_word(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        fail_msg("no text \"%s\" in: %s", key, ckpt_output_text);
    return json_string_value(value);
}

const json_t *ckpt_feature(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(ckpt_word(json_array_get(list, i), "name"), name) == 0)
            return json_array_get(list, i);
    fail_msg("no feature %s in: %s", name, ckpt_output_text);
    return NULL;
}
