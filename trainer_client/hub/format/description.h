/* What a description says, resolved: which columns a line has, and what becomes of them. Only for the files
 * that read descriptions (description.c, description_terms.c) and those that read lines by them
 * (delimited.c, libsvm.c).
 */
#ifndef HUB_DESCRIPTION_H
#define HUB_DESCRIPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "trainer_client/hub/format/field.h"
#include "trainer_client/hub/format/format.h"

#define HUB_COLUMNS_MAX        512u
#define HUB_COLUMN_NAME_BYTES  64u
#define HUB_TIME_PATTERN_BYTES 40u
#define HUB_PARTS_MAX          128u /* different ones, in all crosses */
#define HUB_CROSS_PARTS_MAX    8u
#define HUB_LABEL_TEXTS_MAX    16u
#define HUB_MISSING_MAX        16u
#define HUB_MISSING_BYTES      32u

enum hub_layout { HUB_DELIMITED, HUB_LIBSVM };
enum hub_header {
    HUB_HEADER_NONE,
    HUB_HEADER_NAMES,    /* the first line has the columns' names, in any order, among others */
    HUB_HEADER_OPTIONAL, /* a first line with just the columns' names is no sample */
};
enum hub_libsvm_values {
    HUB_VALUES_RANGES,   /* an index has a key for each range of values */
    HUB_VALUES_WEIGHTS,  /* an index has one key, with the value as its weight */
    HUB_VALUES_PRESENCE, /* an index has one key, whatever the value */
};

enum hub_column_type { HUB_TEXT, HUB_FLAG, HUB_INTEGER, HUB_NUMBER, HUB_TIME };

struct hub_column {
    char name[HUB_COLUMN_NAME_BYTES];
    enum hub_column_type type;
    bool may_be_empty;
    bool has_bounds;
    double low, high; /* of an integer or a number; of a text's bytes */
    bool has_class;
    uint64_t class[4]; /* bits: bytes that a text may have */
    char pattern[HUB_TIME_PATTERN_BYTES];
};

enum hub_label_kind {
    HUB_LABEL_COLUMN, /* the column's number itself */
    HUB_LABEL_LESS,
    HUB_LABEL_LESS_EQUAL,
    HUB_LABEL_MORE,
    HUB_LABEL_MORE_EQUAL,
    HUB_LABEL_EQUAL,
    HUB_LABEL_NOT_EQUAL,
    HUB_LABEL_IS,     /* one of `texts` */
    HUB_LABEL_SIGN,   /* libsvm: +1 or 1, and -1 or 0 */
    HUB_LABEL_NUMBER, /* libsvm: any number, of a class or for regression */
    HUB_LABEL_NONE,   /* lines have none */
};
struct hub_label {
    enum hub_label_kind kind;
    uint32_t column;
    double number;
    uint32_t text_count;
    char texts[HUB_LABEL_TEXTS_MAX][HUB_COLUMN_NAME_BYTES];
};

enum hub_transform { HUB_PLAIN, HUB_LOG, HUB_SCALE, HUB_CLIP };
struct hub_dense {
    char name[HUB_COLUMN_NAME_BYTES];
    enum hub_transform transform;
    uint32_t column;
    double a, b; /* scale: mean and deviation; clip: lowest and highest */
};

/* A piece of text that is made of a column. */
enum hub_part_kind {
    HUB_PART_TEXT,
    HUB_PART_HOUR,
    HUB_PART_WEEKDAY,
    HUB_PART_DAY,
    HUB_PART_MONTH,
    HUB_PART_RANGE
};
struct hub_part {
    enum hub_part_kind kind;
    uint32_t column;
};

enum hub_slot_kind {
    HUB_SLOT_TEXT,  /* the column's text */
    HUB_SLOT_PART,  /* one part */
    HUB_SLOT_CROSS, /* parts, each followed by '|' */
    HUB_SLOT_SPLIT, /* a key for each piece of the column between separators */
};
struct hub_slot {
    char name[HUB_COLUMN_NAME_BYTES];
    enum hub_slot_kind kind;
    uint32_t column; /* TEXT, SPLIT */
    char separator;  /* SPLIT */
    uint32_t part_count;
    uint16_t parts[HUB_CROSS_PARTS_MAX]; /* places in the description's parts */
};

struct hub_description {
    enum hub_layout layout;
    enum hub_header header;
    enum hub_libsvm_values values;
    char separator;
    char quote; /* '\0': none */
    bool trims; /* blanks around fields */
    uint32_t missing_count;
    char missing[HUB_MISSING_MAX]
                [HUB_MISSING_BYTES]; /* what is as good as nothing, where a field may be empty */
    uint32_t column_count, dense_count, slot_count, part_count, check_count;
    uint32_t field_count;                /* that a line has */
    uint16_t positions[HUB_COLUMNS_MAX]; /* of the columns' fields in a line, from 0 */
    uint16_t checks[HUB_COLUMNS_MAX];    /* columns that are looked into, whatever is made of them */
    struct hub_label label;
    struct hub_column columns[HUB_COLUMNS_MAX];
    struct hub_dense dense[HUB_DENSE_MAX];
    struct hub_part parts[HUB_PARTS_MAX];
    struct hub_slot slots[HUB_SLOTS_MAX];
};

/* As hub_format_parse(), for a description of that layout. */
enum hub_parse hub_delimited_parse(const struct hub_description *d, const char *text, size_t bytes,
                                   uint64_t line_number, struct hub_sample *sample, char *reason);
enum hub_parse hub_libsvm_parse(const struct hub_description *d, const char *line, size_t bytes,
                                uint64_t line_number, struct hub_sample *sample, char *reason);
/* Finds the columns in a file's first line, and sets their positions. False: `reason` says what is
 * missing. */
bool hub_delimited_bind(struct hub_description *d, const char *text, size_t bytes, char *reason);

/* Range of a value: narrow near zero and wider further out, 8 from 0 to 1, 8 more for each doubling of 1 +
 * |value|. Binary features have one, numbers some tens. */
int32_t hub_range_of(double value);

#endif
