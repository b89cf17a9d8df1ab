/* What a store asks for to let us in: read from a file, else from the environment; it is never on a command
 * line, in a URL, in a message or in a log.
 *
 * The file is one of AWS's (~/.aws/credentials): sections of "key = value". Of the section that AWS_PROFILE
 * names, else [default], these count: aws_access_key_id, aws_secret_access_key, aws_session_token, and
 * hdfs_delegation_token. Without a file: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
 * MILLRACE_HDFS_TOKEN; and where these name no key, AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials.
 */
#ifndef PS_STORE_CREDENTIALS_H
#define PS_STORE_CREDENTIALS_H

#include <stdbool.h>

#define PS_SECRET_BYTES 2048u /* session tokens are long */

struct ps_credentials {
    char access_key[PS_SECRET_BYTES], secret_key[PS_SECRET_BYTES], session_token[PS_SECRET_BYTES];
    char hdfs_token[PS_SECRET_BYTES];
};

/* file: "": none is named. False: `text` (PS_TEXT_BYTES) says what is wrong with the file, and `*out` is
 * empty. Nothing found is no error. */
bool ps_credentials_read(const char *file, struct ps_credentials *out, char *text);

#endif
