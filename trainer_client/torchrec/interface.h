/* What TorchRec's dynamic embedding calls of a plug-in: a shared object with a variable and four functions,
 * loaded by torch.ops.tde.register_io(path). There is one instance per embedding table, made from what stands
 * after "millrace://" in the URL.
 *
 * A row of an embedding table is an id's values and the states of its optimizer: `states` blocks of the same
 * length, of which number 0 holds the values. With columns (a table that is sharded by column) an id has such
 * a row per column. Blocks are f32.
 */
#ifndef TDE_INTERFACE_H
#define TDE_INTERFACE_H

#include <stdint.h>

#define TDE_API __attribute__((visibility("default")))

struct tde_fetch {
    const char *table;
    uint32_t column_count; /* 0: not sharded by column */
    uint32_t id_count;
    const int64_t *columns; /* [column_count] */
    const int64_t *ids;     /* [id_count] */
    uint32_t state_count;
    void *context; /* of both functions below */
    /* Block `state` of place `id * max(column_count, 1) + column`; no data and 0 bytes when there is none. */
    void (*on_fetched)(void *context, uint32_t place, uint32_t state, void *data, uint32_t bytes);
    void (*on_all_fetched)(void *context);
};

struct tde_push {
    const char *table;
    uint32_t column_count;
    uint32_t id_count;
    const int64_t *columns;
    const int64_t *ids;
    uint32_t state_count;
    const uint32_t *states;  /* [state_count], the numbers of the blocks of each row */
    uint32_t offset_count;   /* id_count * max(column_count, 1) * state_count + 1 */
    const uint64_t *offsets; /* [offset_count], in bytes; of blocks by id, then column, then state */
    const void *data;
    void *context;
    void (*on_pushed)(void *context);
};

/* The scheme of URLs that this plug-in is for. */
extern TDE_API const char *IO_type;

/* NULL, and a line on stderr, when the configuration is wrong or the server does not answer. */
TDE_API void *IO_Initialize(const char *configuration);
/* Once all that was fetched and pushed has been reported. */
TDE_API void IO_Finalize(void *instance);
/* Tables, columns and ids are copied; the functions are called on a thread of the instance's. */
TDE_API void IO_Fetch(void *instance, struct tde_fetch fetch);
/* All is copied: TorchRec's PS::evict() lets go of the data before on_pushed is called, on a thread of the
 * instance's. */
TDE_API void IO_Push(void *instance, struct tde_push push);
/* IO_Fetch, as versions before torchrec/csrc/dynamic_embedding (TorchRec's contrib/dynamic_embedding) call
 * it. */
TDE_API void IO_Pull(void *instance, struct tde_fetch fetch);

#endif
