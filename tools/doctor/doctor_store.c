#include "tools/doctor/doctor_store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/store/remote_store.h"

#define TRIES 2u /* of each request: somebody is waiting */

/* Keeps why a step failed, unless one before it has. */
static bool doctor_store_note(struct doctor_store *out, const char *step, int error)
{
    const char *why = error != 0 ? ps_store_explanation(-error) : NULL;
    if (error == 0 || out->failed)
        return error == 0;
    out->failed = step;
    (void)snprintf(out->why, sizeof(out->why), "%s", why ? why : strerror(-error));
    return false;
}

static void look_at_newest(const struct ps_remote *r, struct doctor_store *out)
{
    struct ps_manifest manifest;
    if (out->newest == 0)
        return;
    out->is_unreadable = ps_manifest_read(&r->store, r->directory, out->newest, &manifest, out->why) != MR_OK;
    if (!out->is_unreadable)
        ps_manifest_clear(&manifest);
}

static int write_and_read(const struct ps_store *s, const char *path)
{
    static const char text[] = "written by millrace doctor, which removes it";
    char back[sizeof(text)] = "";
    struct ps_store_file *file;
    uint64_t bytes = 0;
    int error = s->create(s->self, path, false, &file);
    if (error != 0)
        return error;
    error = ps_store_write_all(s, file, text, sizeof(text), 0);
    if (error == 0)
        error = s->sync(file);
    (void)s->close(file);
    if (error == 0)
        error = s->open(s->self, path, &file, &bytes);
    if (error != 0)
        return error;
    error = ps_store_read_all(s, file, back, sizeof(back), 0);
    (void)s->close(file);
    return error != 0 ? error : memcmp(text, back, sizeof(text)) == 0 ? 0 : -EBADMSG;
}

/* From what it has said with its answers. */
static void look_at_server(const struct ps_remote *r, struct doctor_store *out)
{
    char server[PS_HTTP_SERVER_BYTES], version[32] = "";
    out->has_clock = ps_http_server(r->http, server, &out->ahead_s);
    if (!out->is_s3 && !out->failed)
        (void)ps_webhdfs_version(r, version, sizeof(version));
    if (version[0] != '\0')
        (void)snprintf(out->server, sizeof(out->server), "Hadoop %s", version);
    else
        (void)snprintf(out->server, sizeof(out->server), "%s", server);
}

static void try_to_write(struct ps_remote *r, struct doctor_store *out)
{
    const struct ps_store *s = &r->store;
    char path[PS_PATH_BYTES], name[64];
    (void)snprintf(name, sizeof(name), ".millrace-doctor-%d", (int)getpid());
    const int made = s->make_directory(s->self, r->directory);
    if (!doctor_store_note(out, "make", made == -EEXIST ? 0 : made) ||
        !ps_path_join(r->directory, name, path))
        return;
    const bool is_written = doctor_store_note(out, "write", write_and_read(s, path));
    if (is_written && out->is_s3)
        out->has_condition = ps_s3_condition(r, path, &out->condition) == 0;
    const int removed = s->remove(s->self, path);
    if (is_written)
        (void)doctor_store_note(out, "delete", removed);
    if (made == 0 && !out->is_s3)
        (void)s->remove(s->self, r->directory); /* it was not there before */
}

void doctor_ask_store(const char *url, const char *credentials, struct doctor_store *out)
{
    const struct ps_remote_options options = {.credentials = credentials, .tries = TRIES};
    struct ps_remote *r;
    char why[PS_TEXT_BYTES];
    *out = (struct doctor_store){0};
    (void)snprintf(out->directory, sizeof(out->directory), "%.*s", (int)strcspn(url, "?"), url);
    if (ps_remote_open(url, &options, &r, why) != MR_OK) {
        const size_t bytes = strlen(out->directory);
        const bool is_named = strncmp(why, out->directory, bytes) == 0 && strncmp(why + bytes, ": ", 2) == 0;
        (void)snprintf(out->why, sizeof(out->why), "%s", why + (is_named ? bytes + 2 : 0));
        out->failed = "open";
        return;
    }
    out->is_s3 = r->url.kind == PS_STORE_S3;
    if (doctor_store_note(
            out, "list",
            ps_checkpoint_list_all(&r->store, r->directory, &out->newest, 1, &out->checkpoints))) {
        try_to_write(r, out);
        if (!out->failed)
            look_at_newest(r, out);
    }
    look_at_server(r, out);
    ps_remote_close(r);
}
