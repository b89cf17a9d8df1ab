/* What a format makes of samples, to be looked at before anything is trained on them: millrace-hub
 * --check-format.
 */
#ifndef HUB_CHECK_FORMAT_H
#define HUB_CHECK_FORMAT_H

#include <stdio.h>
#include "dataplane/wire/format/mr_status.h"
#include "trainer_client/hub/format/format.h"

/* Reads the files that `path` stands for (as in a plan; NULL: none), and writes how many samples they have,
 * the first broken lines, the first samples, and what the label, dense values and slots of the first 100,000
 * hold. Errors as of hub_sample_file_open(); `error` (HUB_ERROR_BYTES). */
enum mr_status hub_check_format(const struct hub_formats *formats, const struct hub_format *format,
                                const char *path, FILE *out, char *error);

#endif
