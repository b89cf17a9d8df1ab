/* Functions that make, read, pass on and keep references, and a world of three workers that have them. */
#ifndef TEST_RREF_FUNCTIONS_H
#define TEST_RREF_FUNCTIONS_H

#include <stdatomic.h>
#include "net.h"

/* An object that tells when it is destroyed. */
struct counted {
    int64_t value;
    _Atomic uint32_t destroyed, used_late;
};

void destroy_counted(void *object);
void await_destroyed(struct counted *object, uint32_t times);

/* A function that passes the gate. Returns i64 1, or, if the gate has an object, a reference to it: struct
 * counted. */
enum mr_status pass_gate(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count);

/* mirror(...), mirror_inline(...): gives back what it gets; nothing(); fails();
 * make_object(i64 address): the struct counted there; add_to_object(ref, i64): its sum;
 * read(ref): the one value; read_inner(ref): what the reference refers to that the value is;
 * pass_around(ref): through all other workers, and back; keep(ref), read_kept(), drop(): holds it until then;
 * use(ref): a struct counted, on its owner, is not destroyed yet. */
int setup(void **state);
/* As drop(), for a worker that cannot be called. */
void forget_kept(void **state, uint32_t rank);
/* No worker that lives holds anything of another's, or has anything that another holds. */
void await_nothing_held(void **state);

#endif
