/* The descriptions of configs/formats/, as the build puts them in (embed_formats.py). */
#ifndef HUB_BUILT_IN_FORMATS_H
#define HUB_BUILT_IN_FORMATS_H

struct hub_built_in_format {
    const char *path; /* "configs/formats/criteo.ini", for messages */
    const char *text;
};
extern const struct hub_built_in_format hub_built_in_formats[]; /* ends with a text that is NULL */

#endif
