#include <string.h>
#include "ps/config/config_table.h"

#define COLUMNS 100u

/* `text` as comment lines of at most COLUMNS bytes, broken between words. */
static void print_comment(FILE *out, const char *text)
{
    size_t column = 0;
    for (const char *word = text; *word != '\0';) {
        size_t length = strcspn(word, " ");
        if (column == 0 || column + 1 + length > COLUMNS) {
            fprintf(out, "%s#", column == 0 ? "" : "\n");
            column = 1;
        }
        fprintf(out, " %.*s", (int)length, word);
        column += 1 + length;
        word += length + strspn(word + length, " ");
    }
    fputc('\n', out);
}

static void print_key(FILE *out, const struct ps_config_key *key)
{
    char allowed[128];
    print_comment(out, key->help);
    if (key->type != PS_CONFIG_TYPE_TEXT && key->type != PS_CONFIG_TYPE_LIST) {
        ps_config_describe_allowed(key, allowed, sizeof(allowed));
        fprintf(out, "# Allowed: %s.\n", allowed);
    }
    fprintf(out, "%s =%s%s\n\n", key->name, key->value[0] != '\0' ? " " : "", key->value);
}

void ps_config_print(FILE *out)
{
    print_comment(
        out, "millraced configuration: every key, with its default. A key that is left out has its default; "
             "an unknown one is refused. millraced --check-config FILE checks a file, and --set "
             "section.key=value on the command line overrides it.");
    for (size_t s = 0; s < PS_CONFIG_SECTION_COUNT; s++) {
        fputc('\n', out);
        print_comment(out, ps_config_sections[s].help);
        fprintf(out, "[%s]\n", ps_config_sections[s].name);
        for (size_t k = 0; k < PS_CONFIG_KEY_COUNT; k++) {
            if (strcmp(ps_config_keys[k].section, ps_config_sections[s].name) == 0) {
                print_key(out, &ps_config_keys[k]);
            }
        }
    }
}
