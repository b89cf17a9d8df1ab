#include "trainer_client/call/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "dataplane/wire/session/key_file.h"
#include "trainer_client/call/client.h"
#include "dataplane/wire/base/clock.h"

#define IN_VAIN_US                                                                                           \
    1000000u /* a silence of this length may be due to keys; also how often the file is then checked */

/* Reads what identifies the file's current state. False: the file is not there now. */
static bool keys_look(const struct mrc_keys *keys, struct timespec *time, ino_t *inode)
{
    struct stat st;
    if (stat(keys->path, &st) != 0)
        return false;
    *time = st.st_mtim;
    *inode = st.st_ino;
    return true;
}

enum mr_status mrc_keys_open(struct mrc_keys *keys, const char *path, uint8_t key[MR_PSK_BYTES], char *error,
                             size_t error_bytes)
{
    keys->path = strdup(path);
    if (keys->path == NULL) {
        snprintf(error, error_bytes, "no memory for the name of the key file");
        return MR_NO_MEMORY;
    }
    /* Checked before it is read: a change in between is found later. */
    (void)keys_look(keys, &keys->time, &keys->inode);
    return mr_key_file_read(path, key, error, error_bytes);
}

void mrc_keys_close(struct mrc_keys *keys)
{
    free(keys->path);
    keys->path = NULL;
}

/* Returns since when this link's core has been silent in spite of a handshake; UINT64_MAX: it is not
 * silent. */
static uint64_t silent_since_us(const struct mrc_link *link)
{
    struct mr_client_session_info info;
    if (link->session == NULL)
        return UINT64_MAX;
    mr_client_session_info(link->session, &info);
    if (info.up)
        return UINT64_MAX;
    return info.silent_since_us > link->opened_us ? info.silent_since_us : link->opened_us;
}

uint64_t mrc_keys_next_us(const struct mr_client *client)
{
    uint64_t since_us = UINT64_MAX;
    if (client->keys.path == NULL)
        return UINT64_MAX;
    for (uint32_t i = 0; i < client->link_count; i++) {
        uint64_t link_us = silent_since_us(client->links[i]);
        since_us = link_us < since_us ? link_us : since_us;
    }
    if (since_us == UINT64_MAX)
        return UINT64_MAX;
    return since_us + IN_VAIN_US > client->keys.check_us ? since_us + IN_VAIN_US : client->keys.check_us;
}

static void go_over(struct mr_client *client, const uint8_t key[1][MR_PSK_BYTES], uint64_t now_us)
{
    memcpy(client->link_config.psk, key[0], MR_PSK_BYTES);
    for (uint32_t i = 0; i < client->link_count; i++) {
        mr_endpoint_set_keys(client->links[i]->ep, key, 1, now_us);
        client->links[i]->unsent = true;
    }
}

void mrc_keys_poll(struct mr_client *client)
{
    struct mrc_keys *keys = &client->keys;
    uint64_t now_us = mr_clock_us();
    uint8_t key[1][MR_PSK_BYTES];
    struct timespec time;
    char error[256];
    ino_t inode;
    if (mrc_keys_next_us(client) > now_us)
        return;
    keys->check_us = now_us + IN_VAIN_US;
    if (!keys_look(keys, &time, &inode) ||
        (time.tv_sec == keys->time.tv_sec && time.tv_nsec == keys->time.tv_nsec && inode == keys->inode))
        return;
    /* Half written, or wrong: the old key stays, and the file is checked again later. */
    if (mr_key_file_read(keys->path, key[0], error, sizeof(error)) != MR_OK)
        return;
    keys->time = time;
    keys->inode = inode;
    if (memcmp(key[0], client->link_config.psk, MR_PSK_BYTES) != 0)
        go_over(client, key, now_us);
    explicit_bzero(key, sizeof(key));
}
