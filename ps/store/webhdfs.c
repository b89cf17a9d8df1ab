/* HDFS as a store, through WebHDFS: the NameNode answers for names, and sends reads and writes on to a
 * DataNode. HttpFS speaks the same, and does all by itself. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "ps/store/credentials.h"
#include "ps/store/remote_store.h"
#include "ps/store/webhdfs_json.h"

#define ANSWER_BYTES (4u << 20) /* of JSON: a page of a listing */
#define PLACE_BYTES  300u       /* "http://host:port" */
#define AWAY_MAX     8u
#define AWAY_S       60u
#define ASKS_MAX     8u /* for a DataNode that is not away */

struct webhdfs {
    char token[PS_SECRET_BYTES];
    pthread_mutex_t lock; /* of what follows */
    /* DataNodes that could not be reached. A NameNode goes on naming one that has died, for minutes, but not
     * each time. */
    struct {
        char place[PLACE_BYTES];
        uint64_t until_us;
    } away[AWAY_MAX];
    uint32_t next_away;
};

struct ps_store_file {
    struct ps_remote *remote;
    char path[PS_PATH_BYTES];
    struct ps_http_stream *stream; /* of a file that is being written */
    uint64_t written;
    int64_t written_ms; /* when it was complete */
    bool is_new, is_complete;
};

/* ---- requests ---- */

/* Who asks. False: there is no room. */
static bool append_user(const struct ps_remote *r, char url[PS_HTTP_URL_BYTES])
{
    const char *token = ((const struct webhdfs *)r->kind)->token, *user = r->url.user;
    const char *name = token[0] != '\0' ? "&delegation=" : "&user.name=";
    const char *value = token[0] != '\0' ? token : user;
    return value[0] == '\0' || (ps_store_url_append(url, PS_HTTP_URL_BYTES, name) &&
                                ps_store_url_escape(url, PS_HTTP_URL_BYTES, value, false));
}

/* The URL of an operation: op=... and further parameters; false: it is too long. */
static bool url_of(const struct ps_remote *r, const char *path, const char *op, char url[PS_HTTP_URL_BYTES])
{
    const char *name = path + r->url.root_bytes;
    (void)snprintf(url, PS_HTTP_URL_BYTES, "%s/webhdfs/v1", r->url.endpoint);
    return ps_store_url_escape(url, PS_HTTP_URL_BYTES, *name ? name : "/", true) &&
           ps_store_url_append(url, PS_HTTP_URL_BYTES, "?op=") &&
           ps_store_url_append(url, PS_HTTP_URL_BYTES, op) && append_user(r, url);
}

/* A request on a name; its JSON in *json, to be freed. */
static int webhdfs_ask(const struct ps_remote *r, const char *method, const char *path, const char *op,
                       char **json, size_t *bytes)
{
    char url[PS_HTTP_URL_BYTES];
    struct ps_http_answer answer;
    if (!url_of(r, path, op, url))
        return -ENAMETOOLONG;
    *json = malloc(ANSWER_BYTES);
    if (!*json)
        return -ENOMEM;
    const struct ps_http_request request = {
        .method = method, .url = url, .into = *json, .into_bytes = ANSWER_BYTES};
    const int error = ps_http_perform(r->http, &request, &answer);
    *bytes = answer.body_bytes;
    if (error != 0)
        free(*json);
    return error;
}

/* After an answer was read. */
static int end_answer(char *json, bool is_good)
{
    free(json);
    if (is_good)
        return 0;
    ps_store_explain(EPROTO, "this is no answer of WebHDFS; is it the NameNode's HTTP port?");
    return -EPROTO;
}

/* One that answers whether it was done. */
static int ask_whether(const struct ps_remote *r, const char *method, const char *path, const char *op,
                       bool *is_done)
{
    char *json;
    size_t bytes;
    const int error = webhdfs_ask(r, method, path, op, &json, &bytes);
    return error != 0 ? error : end_answer(json, webhdfs_json_boolean(json, bytes, is_done));
}

static int status_of(const struct ps_remote *r, const char *path, struct webhdfs_status *status)
{
    char *json;
    size_t bytes;
    const int error = webhdfs_ask(r, "GET", path, "GETFILESTATUS", &json, &bytes);
    return error != 0 ? error : end_answer(json, webhdfs_json_status(json, bytes, status));
}

/* HttpFS does not tell it, nor does a NameNode that lets nobody look. */
int ps_webhdfs_version(const struct ps_remote *r, char *version, size_t version_bytes)
{
    char url[PS_HTTP_URL_BYTES], json[WEBHDFS_JMX_BYTES];
    struct ps_http_answer answer;
    const struct ps_http_request request = {
        .method = "GET", .url = url, .into = json, .into_bytes = sizeof(json)};
    (void)snprintf(url, sizeof(url), "%s/jmx?get=Hadoop:service=NameNode,name=NameNodeInfo::SoftwareVersion",
                   r->url.endpoint);
    version[0] = '\0';
    const int error = ps_http_perform(r->http, &request, &answer);
    if (error == 0)
        (void)webhdfs_json_version(json, answer.body_bytes, version, version_bytes);
    return error;
}

static int exists(const struct ps_remote *r, const char *path, bool *is_there)
{
    struct webhdfs_status status;
    const int error = status_of(r, path, &status);
    *is_there = error == 0;
    return error == -ENOENT ? 0 : error;
}

/* ---- what errors mean ---- */

static const struct ps_http_meaning meanings[] = {
    {"SafeModeException", EROFS, true, "HDFS is in safe mode: see hdfs dfsadmin -safemode get"},
    {"StandbyException", EHOSTDOWN, true, "this NameNode is the standby: name the active one"},
    {"RetriableException", EAGAIN, true, "the NameNode is busy"},
    {"AccessControlException", EACCES, false, "give the user the right to write to this directory"},
    {"SecurityException", EACCES, false,
     "not let in: set user.name in the URL, a delegation token, or auth=negotiate with a Kerberos ticket"},
    {"InvalidToken", EACCES, false, "the delegation token has expired: get another one"},
    {"DSQuotaExceededException", EDQUOT, false, "the directory's space quota is used up"},
    {"NSQuotaExceededException", EDQUOT, false, "the directory's quota of names is used up"},
    {"FileNotFoundException", ENOENT, false, "there is no such file"},
    {"UnresolvedPathException", ELOOP, false, "a link of HDFS is in the path: name the directory itself"},
    {"FileAlreadyExistsException", EEXIST, false, "it is there already"},
};

static int explain(const struct ps_http_answer *answer, int error_number, bool *is_transient, char *text,
                   size_t text_bytes)
{
    char exception[WEBHDFS_WORD_BYTES], message[WEBHDFS_MESSAGE_BYTES];
    if (webhdfs_json_error(answer->error_body, exception, message)) {
        if (strstr(message, "InvalidToken") || strstr(message, "is expired")) /* a NameNode wraps it */
            (void)snprintf(exception, sizeof(exception), "InvalidToken");
        if (!ps_http_mean(meanings, sizeof(meanings) / sizeof(*meanings), exception, &error_number,
                          is_transient, text, text_bytes))
            (void)snprintf(text, text_bytes, "%s: %s", exception, message);
    } else if (error_number == ENOENT) { /* that nothing of that name is there, WebHDFS says in words */
        error_number = EPROTO;
        (void)snprintf(text, text_bytes,
                       "this is not WebHDFS (HTTP status 404); name the NameNode's HTTP port");
    } else if (answer->status == 401)
        (void)snprintf(text, text_bytes,
                       "not let in (401); use auth=negotiate with a Kerberos ticket, or a delegation token");
    return error_number;
}

/* ---- names ---- */

static int hdfs_make_directory(void *self, const char *path)
{
    struct ps_remote *r = self;
    bool is_there, is_done = false;
    int error = exists(r, path, &is_there);
    if (error != 0 || is_there)
        return error != 0 ? error : -EEXIST;
    error = ask_whether(r, "PUT", path, "MKDIRS", &is_done);
    return error != 0 || is_done ? error : -EIO;
}

/* HDFS would move a directory into one that has its new name already. A rename whose answer was lost is found
 * to be done when it is tried again. */
static int hdfs_rename(void *self, const char *from, const char *to)
{
    struct ps_remote *r = self;
    char op[PS_HTTP_URL_BYTES] = "RENAME&destination=";
    bool is_from, is_to, is_done = false;
    int error = exists(r, to, &is_to);
    if (error != 0 || is_to)
        return error != 0 ? error : -EEXIST;
    if (!ps_store_url_escape(op, sizeof(op), to + r->url.root_bytes, true))
        return -ENAMETOOLONG;
    error = ask_whether(r, "PUT", from, op, &is_done);
    if (error != 0 || is_done)
        return error;
    error = exists(r, from, &is_from);
    if (error == 0)
        error = exists(r, to, &is_to);
    return error != 0 ? error : is_to && !is_from ? 0 : is_from ? -EIO : -ENOENT;
}

static int hdfs_remove(void *self, const char *path)
{
    bool is_done = false;
    const int error = ask_whether(self, "DELETE", path, "DELETE&recursive=false", &is_done);
    return error != 0 ? error : is_done ? 0 : -ENOENT;
}

static int hdfs_facts(void *self, const char *path, uint64_t *file_bytes, int64_t *written_s)
{
    struct webhdfs_status status;
    const int error = status_of(self, path, &status);
    if (error == 0) {
        *file_bytes = status.bytes;
        *written_s = status.written_ms / 1000;
    }
    return error;
}

/* One page, after the name `last`, which becomes its last. */
static int list_page(struct ps_remote *r, const char *path, char last[WEBHDFS_NAME_BYTES],
                     void (*visit)(void *arg, const char *name), void *arg, bool *is_last)
{
    char op[PS_HTTP_URL_BYTES] = "LISTSTATUS_BATCH", *json;
    size_t bytes;
    if (last[0] != '\0' && (!ps_store_url_append(op, sizeof(op), "&startAfter=") ||
                            !ps_store_url_escape(op, sizeof(op), last, false)))
        return -ENAMETOOLONG;
    const int error = webhdfs_ask(r, "GET", path, op, &json, &bytes);
    return error != 0 ? error
                      : end_answer(json, webhdfs_json_listing(json, bytes, visit, arg, last, is_last));
}

static int hdfs_list(void *self, const char *path, void (*visit)(void *arg, const char *name), void *arg)
{
    char last[WEBHDFS_NAME_BYTES] = "";
    bool is_last = false;
    for (uint32_t i = 0; i < PS_REMOTE_PAGES_MAX; i++) {
        const int error = list_page(self, path, last, visit, arg, &is_last);
        if (error != 0 || is_last)
            return error;
    }
    return -EOVERFLOW;
}

/* ---- files ---- */

static struct ps_store_file *file_new(struct ps_remote *r, const char *path)
{
    struct ps_store_file *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    f->remote = r;
    (void)snprintf(f->path, sizeof(f->path), "%s", path);
    return f;
}

/* Scheme, host and port of a URL. */
static void place_of(const char *url, char place[PLACE_BYTES])
{
    const char *host = strstr(url, "://");
    host = host ? host + strlen("://") : url;
    (void)snprintf(place, PLACE_BYTES, "%.*s", (int)(host - url + (ptrdiff_t)strcspn(host, "/?")), url);
}

/* A DataNode that could not be reached: the NameNode calls it by the name that it has in its own network. */
static void explain_place(const char *url, int error)
{
    char place[PLACE_BYTES], why[160];
    const char *said = ps_store_explanation(-error);
    (void)snprintf(why, sizeof(why), "%.*s", said ? (int)strcspn(said, ";") : 0, said ? said : "");
    place_of(url, place);
    if (error == -EHOSTUNREACH)
        ps_store_explain(
            EHOSTUNREACH,
            "the NameNode leads to its DataNode %.100s, whose name does not resolve here: add it "
            "to /etc/hosts, set dfs.datanode.hostname there, or use HttpFS",
            place);
    else
        ps_store_explain(-error,
                         "the NameNode leads to its DataNode %.100s: %s; open that port, or use HttpFS",
                         place, why);
}

static bool is_away(const struct ps_remote *r, const char *url)
{
    struct webhdfs *w = r->kind;
    char place[PLACE_BYTES];
    const uint64_t now_us = mr_clock_us();
    bool is_found = false;
    place_of(url, place);
    pthread_mutex_lock(&w->lock);
    for (uint32_t i = 0; i < AWAY_MAX; i++)
        is_found = is_found || (w->away[i].until_us > now_us && strcmp(w->away[i].place, place) == 0);
    pthread_mutex_unlock(&w->lock);
    return is_found;
}

/* Whether it could be reached. */
static void note_place(const struct ps_remote *r, const char *url, bool is_reached)
{
    struct webhdfs *w = r->kind;
    char place[PLACE_BYTES];
    uint32_t i = 0;
    place_of(url, place);
    pthread_mutex_lock(&w->lock);
    while (i < AWAY_MAX && strcmp(w->away[i].place, place) != 0)
        i++;
    if (i == AWAY_MAX && !is_reached)
        i = w->next_away++ % AWAY_MAX;
    if (i < AWAY_MAX) {
        memcpy(w->away[i].place, place, sizeof(place));
        w->away[i].until_us = is_reached ? 0 : mr_clock_us() + AWAY_S * UINT64_C(1000000);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Asks the NameNode for a DataNode, again while it names one that is away; if it names no other, that one is
 * tried. answer->status is 307, and its URL answer->location; or the answer is the content, as HttpFS gives
 * it. */
static int find_place(const struct ps_remote *r, const struct ps_http_request *request, const char *path,
                      const char *op, struct ps_http_answer *answer)
{
    char url[PS_HTTP_URL_BYTES];
    struct ps_http_request asked = *request;
    if (!url_of(r, path, op, url))
        return -ENAMETOOLONG;
    asked.url = url;
    asked.asks_whither = true;
    int error = 0;
    for (uint32_t i = 0; i < ASKS_MAX; i++) {
        error = ps_http_perform(r->http, &asked, answer);
        if (error != 0 || answer->status != 307 || !is_away(r, answer->location))
            break;
    }
    if (error == 0 && answer->status == 307 && answer->location[0] == '\0') {
        ps_store_explain(EPROTO, "the NameNode names no DataNode; is it WebHDFS?");
        return -EPROTO;
    }
    return error;
}

static int open_place(const struct ps_remote *r, const char *path, struct ps_http_stream **stream)
{
    static const char header[] = "Content-Type: application/octet-stream";
    struct ps_http_answer answer;
    bool is_transient;
    int error = 0;
    for (uint32_t i = 0; i == 0 || ps_http_try_again(r->http, i); i++) {
        const struct ps_http_request request = {.method = "PUT"};
        error = find_place(r, &request, path, "CREATE&overwrite=true", &answer);
        if (error == 0 && answer.status != 307) {
            ps_store_explain(EPROTO, "the NameNode names no DataNode to write to; is it WebHDFS?");
            error = -EPROTO;
        }
        if (error != 0)
            return error;
        error = ps_http_stream_open(r->http, answer.location, header, &is_transient, stream);
        note_place(r, answer.location, error == 0 || !is_transient);
        if (error == 0 || !is_transient)
            return error;
        explain_place(answer.location, error);
    }
    return error;
}

static int hdfs_create(void *self, const char *path, bool direct, struct ps_store_file **file)
{
    (void)direct;
    struct ps_store_file *f = file_new(self, path);
    if (!f)
        return -ENOMEM;
    f->is_new = true;
    const int error = open_place(self, path, &f->stream);
    if (error == 0)
        *file = f;
    else
        free(f);
    return error;
}

static int hdfs_open(void *self, const char *path, struct ps_store_file **file, uint64_t *file_bytes)
{
    struct webhdfs_status status;
    const int error = status_of(self, path, &status);
    if (error == 0 && status.is_link) {
        ps_store_explain(ELOOP, "it is a link of HDFS: name the file itself");
        return -ELOOP;
    }
    if (error != 0 || status.is_directory)
        return error != 0 ? error : -EISDIR;
    *file_bytes = status.bytes;
    *file = file_new(self, path);
    return *file ? 0 : -ENOMEM;
}

static int64_t hdfs_write(struct ps_store_file *f, const void *data, size_t bytes, uint64_t offset)
{
    if (offset != f->written)
        return -ESPIPE;
    const int error = ps_http_stream_write(f->stream, data, bytes);
    f->written += error == 0 ? bytes : 0;
    return error != 0 ? error : (int64_t)bytes;
}

/* Reads what the NameNode's answer leads to, if it is not there already. */
static int read_place(const struct ps_remote *r, const struct ps_http_request *request,
                      struct ps_http_answer *answer)
{
    char url[PS_HTTP_URL_BYTES];
    struct ps_http_request led_to = *request;
    if (answer->status != 307)
        return 0;
    memcpy(url, answer->location, sizeof(url));
    led_to.url = url;
    led_to.follow = led_to.once = true;
    const int error = ps_http_perform(r->http, &led_to, answer);
    note_place(r, url, error == 0 || answer->status != 0);
    if (error != 0 && answer->status == 0 && answer->is_transient)
        explain_place(url, error);
    return error;
}

static int64_t hdfs_read(struct ps_store_file *f, void *data, size_t bytes, uint64_t offset)
{
    const struct ps_remote *r = f->remote;
    char op[96];
    struct ps_http_answer answer;
    int error = 0;
    (void)snprintf(op, sizeof(op), "OPEN&offset=%llu&length=%zu", (unsigned long long)offset, bytes);
    for (uint32_t i = 0; i == 0 || ps_http_try_again(r->http, i); i++) {
        const struct ps_http_request request = {.method = "GET", .into = data, .into_bytes = bytes};
        error = find_place(r, &request, f->path, op, &answer);
        if (error != 0)
            return error;
        error = read_place(r, &request, &answer);
        if (error == 0 || !answer.is_transient)
            break;
    }
    return error != 0 ? error : (int64_t)answer.body_bytes;
}

static int hdfs_sync(struct ps_store_file *f)
{
    struct webhdfs_status status;
    if (!f->is_new || f->is_complete)
        return 0;
    int error = ps_http_stream_finish(f->stream);
    if (error == 0)
        error = status_of(f->remote, f->path, &status);
    if (error == 0 && status.bytes != f->written) {
        ps_store_explain(EIO, "HDFS has %llu of its %llu bytes", (unsigned long long)status.bytes,
                         (unsigned long long)f->written);
        error = -EIO;
    }
    f->is_complete = error == 0;
    f->written_ms = error == 0 ? status.written_ms : 0;
    return error;
}

/* Length and time: HDFS changes a file by nothing but what changes these. What is written is there for good
 * only when all of it is. */
static int hdfs_mark(struct ps_store_file *f, struct ps_store_mark *mark)
{
    mark->bytes = f->is_complete ? f->written : 0;
    (void)snprintf(mark->text, sizeof(mark->text), "%lld", (long long)f->written_ms);
    return 0;
}

static int hdfs_is_marked(void *self, const char *path, const struct ps_store_mark *mark)
{
    struct webhdfs_status status;
    const int error = status_of(self, path, &status);
    if (error != 0)
        return error == -ENOENT ? -ESTALE : error;
    const bool is_same = status.bytes == mark->bytes && status.written_ms == strtoll(mark->text, NULL, 10);
    return is_same ? 0 : -ESTALE;
}

static int hdfs_resume(void *self, const char *path, struct ps_store_mark *mark, struct ps_store_file **file)
{
    mark->bytes = 0;
    return hdfs_create(self, path, false, file);
}

static int hdfs_close(struct ps_store_file *f)
{
    ps_http_stream_close(f->stream);
    free(f);
    return 0;
}

/* Writes PATH.next, with `writer` in between, and sets `next` to its name. */
static int write_next(struct ps_remote *r, const char *path, const char *writer, const void *data,
                      size_t bytes, char next[PS_PATH_BYTES])
{
    if ((size_t)snprintf(next, PS_PATH_BYTES, "%s%s" PS_STORE_NEXT, path, writer) >= PS_PATH_BYTES)
        return -ENAMETOOLONG;
    return ps_store_write_new(&r->store, next, data, bytes);
}

/* Ends a replacement that ended before its rename: the file is under its other name alone, which is about to
 * be written again. */
static int end_replacement(struct ps_remote *r, const char *path)
{
    char next[PS_PATH_BYTES];
    struct webhdfs_status status;
    bool is_there;
    int error = exists(r, path, &is_there);
    if (error != 0 || is_there)
        return error;
    if ((size_t)snprintf(next, sizeof(next), "%s" PS_STORE_NEXT, path) >= sizeof(next))
        return -ENAMETOOLONG;
    error = status_of(r, next, &status);
    if (error != 0)
        return error == -ENOENT ? 0 : error;
    return status.bytes > 0 ? hdfs_rename(r, next, path) : 0;
}

/* HttpFS knows no rename over a file that is there. */
static int hdfs_replace(void *self, const char *path, const void *data, size_t bytes)
{
    char next[PS_PATH_BYTES];
    int error = end_replacement(self, path);
    if (error == 0)
        error = write_next(self, path, "", data, bytes, next);
    if (error != 0)
        return error;
    error = hdfs_remove(self, path);
    return error == 0 || error == -ENOENT ? hdfs_rename(self, next, path) : error;
}

static int hdfs_put_new(void *self, const char *path, const void *data, size_t bytes)
{
    char next[PS_PATH_BYTES], writer[PS_STORE_WRITER_BYTES];
    ps_store_writer(writer);
    int error = write_next(self, path, writer, data, bytes, next);
    if (error == 0)
        error = hdfs_rename(self, next, path);
    if (error == -EEXIST)
        (void)hdfs_remove(self, next);
    return error;
}

/* ---- opening ---- */

enum mr_status ps_webhdfs_open(struct ps_remote *remote, const struct ps_remote_options *options,
                               const struct ps_credentials *credentials, char *text)
{
    struct webhdfs *w = calloc(1, sizeof(*w));
    const struct ps_http_options http = {.negotiate = remote->url.negotiate,
                                         .secure = ps_remote_is_secure(remote->url.endpoint),
                                         .ca = ps_remote_ca(remote),
                                         .explain = explain,
                                         .tries = options->tries,
                                         .pause_ms_max = options->pause_ms_max,
                                         .stop = options->stop};
    remote->kind = w;
    remote->http = w ? ps_http_create(&http) : NULL;
    if (!remote->http) {
        ps_text_path(text, remote->directory, "no memory");
        return MR_NO_MEMORY;
    }
    pthread_mutex_init(&w->lock, NULL);
    memcpy(w->token, credentials->hdfs_token, sizeof(w->token));
    struct ps_store *s = &remote->store;
    s->make_directory = hdfs_make_directory;
    s->create = hdfs_create;
    s->open = hdfs_open;
    s->write = hdfs_write;
    s->read = hdfs_read;
    s->sync = hdfs_sync;
    s->close = hdfs_close;
    s->mark = hdfs_mark;
    s->is_marked = hdfs_is_marked;
    s->resume = hdfs_resume;
    s->replace = hdfs_replace;
    s->put_new = hdfs_put_new;
    s->rename = hdfs_rename;
    s->list = hdfs_list;
    s->remove = hdfs_remove;
    s->facts = hdfs_facts;
    return MR_OK;
}

void ps_webhdfs_close(struct ps_remote *remote)
{
    struct webhdfs *w = remote->kind;
    if (!w)
        return;
    if (remote->http)
        pthread_mutex_destroy(&w->lock);
    explicit_bzero(w, sizeof(*w));
    free(w);
}
