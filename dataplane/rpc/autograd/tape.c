#include "dataplane/rpc/autograd/tape.h"

#include <stdlib.h>
#include <string.h>

void mr_tape_init(struct mr_tape *tape, _Atomic uint32_t *numbers)
{
    *tape = (struct mr_tape){.numbers = numbers};
}

void mr_tape_fini(struct mr_tape *tape)
{
    for (uint32_t i = 0; i < tape->value_count; i++)
        free(tape->values[i].gradient);
    free(tape->values);
    free(tape->nodes);
    free(tape->links);
    free(tape->ready);
    free(tape->stack);
    *tape = (struct mr_tape){.numbers = tape->numbers};
}

/* ---- recording ---- */

/* Makes room for `more` entries beyond `count`. */
static bool reserve(void **array, uint32_t *room, uint32_t count, uint32_t more, size_t bytes)
{
    uint32_t wanted = *room == 0 ? 16 : *room;
    while (wanted - count < more)
        wanted *= 2;
    if (wanted == *room)
        return true;
    void *grown = realloc(*array, wanted * bytes);

    if (grown == NULL)
        return false;
    *array = grown;
    *room = wanted;
    return true;
}

static bool reserve_all(struct mr_tape *tape, const struct mr_tape_entry *entry)
{
    return reserve((void **)&tape->values, &tape->value_room, tape->value_count, entry->output_count,
                   sizeof(*tape->values)) &&
           reserve((void **)&tape->nodes, &tape->node_room, tape->node_count, 1, sizeof(*tape->nodes)) &&
           reserve((void **)&tape->links, &tape->link_room, tape->link_count,
                   entry->input_count + entry->output_count, sizeof(*tape->links));
}

/* Returns the first of `count` numbers in a row, none of which is 0. */
static uint32_t take_numbers(struct mr_tape *tape, uint32_t count)
{
    uint32_t before;
    do {
        before = atomic_fetch_add_explicit(tape->numbers, count, memory_order_relaxed);
    } while (before + count < before);
    return before + 1;
}

static bool is_differentiable(const struct mr_value *value, const struct mr_tape_entry *entry)
{
    return value->kind == MR_VALUE_TENSOR && mr_gradient_is_of(value->tensor.dtype) &&
           (!entry->only_numbered || value->gradient != 0);
}

static uint32_t add_value(struct mr_tape *tape, const struct mr_value *value, uint32_t number)
{
    uint32_t at = tape->value_count++;
    tape->values[at] =
        (struct mr_tape_value){.number = number, .node = tape->node_count, .shape = value->tensor};
    tape->values[at].shape.data = NULL;
    return at;
}

enum mr_status mr_tape_add(struct mr_tape *tape, const struct mr_tape_entry *entry, uint32_t *node)
{
    if (!reserve_all(tape, entry))
        return MR_NO_MEMORY;
    uint32_t first_link = tape->link_count;
    uint32_t number = entry->output_count == 0 ? 0 : take_numbers(tape, entry->output_count);

    for (uint32_t i = 0; i < entry->input_count; i++)
        tape->links[tape->link_count++] = mr_tape_find(tape, entry->inputs[i].gradient);
    for (uint32_t i = 0; i < entry->output_count; i++) {
        struct mr_value *output = &entry->outputs[i];
        bool counts = is_differentiable(output, entry);
        tape->links[tape->link_count++] = counts ? add_value(tape, output, number + i) : MR_TAPE_NONE;
        output->gradient = counts ? number + i : 0;
    }
    tape->nodes[tape->node_count] = (struct mr_tape_node){.kind = entry->kind,
                                                          .of = entry->of,
                                                          .first_link = first_link,
                                                          .input_count = entry->input_count,
                                                          .output_count = entry->output_count,
                                                          .is_leaf = entry->is_leaf,
                                                          .is_retained = entry->is_retained};
    *node = tape->node_count++;
    return MR_OK;
}

uint32_t mr_tape_find(const struct mr_tape *tape, uint32_t number)
{
    uint32_t low = 0, high = tape->value_count;
    if (number == 0 || high == 0)
        return MR_TAPE_NONE;
    uint32_t first = tape->values[0].number; /* numbers rise from here, and may pass 0 */

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (tape->values[middle].number - first < number - first)
            low = middle + 1;
        else
            high = middle;
    }
    return low < tape->value_count && tape->values[low].number == number ? low : MR_TAPE_NONE;
}

const uint32_t *mr_tape_inputs(const struct mr_tape *tape, uint32_t node)
{
    return tape->links + tape->nodes[node].first_link;
}

const uint32_t *mr_tape_outputs(const struct mr_tape *tape, uint32_t node)
{
    return tape->links + tape->nodes[node].first_link + tape->nodes[node].input_count;
}

/* ---- a pass ---- */

void mr_tape_begin_pass(struct mr_tape *tape, bool retain)
{
    for (uint32_t i = 0; i < tape->value_count; i++)
        if (!tape->nodes[tape->values[i].node].is_leaf)
            free(mr_tape_take(tape, i));
    tape->pass++;
    tape->retain = retain;
    tape->ready_count = 0;
}

/* The heap and the stack hold each node once at most. */
static bool reserve_work(struct mr_tape *tape)
{
    uint32_t ready_room = tape->work_room, stack_room = tape->work_room;
    if (tape->work_room >= tape->node_count)
        return true;
    if (!reserve((void **)&tape->ready, &ready_room, 0, tape->node_count, sizeof(*tape->ready)) ||
        !reserve((void **)&tape->stack, &stack_room, 0, tape->node_count, sizeof(*tape->stack)))
        return false; /* one may be larger than work_room says */
    tape->work_room = ready_room;
    return true;
}

/* Counts one more contribution. Returns whether it is the first. */
static bool count_one(struct mr_tape *tape, uint32_t node)
{
    struct mr_tape_node *n = &tape->nodes[node];
    if (n->pass == tape->pass) {
        n->pending++;
        return false;
    }
    n->pass = tape->pass;
    n->pending = 1;
    return true;
}

enum mr_status mr_tape_reach(struct mr_tape *tape, uint32_t node, void (*reached)(void *self, uint32_t node),
                             void *self, uint32_t *gone)
{
    uint32_t depth = 0;
    if (!reserve_work(tape))
        return MR_NO_MEMORY;
    if (count_one(tape, node))
        tape->stack[depth++] = node;
    while (depth > 0) {
        uint32_t at = tape->stack[--depth];
        const uint32_t *inputs = mr_tape_inputs(tape, at);
        if (tape->nodes[at].is_gone) {
            *gone = at;
            return MR_INVALID_ARGUMENT;
        }
        reached(self, at);
        for (uint32_t i = 0; i < tape->nodes[at].input_count; i++)
            if (inputs[i] != MR_TAPE_NONE && count_one(tape, tape->values[inputs[i]].node))
                tape->stack[depth++] = tape->values[inputs[i]].node;
    }
    return MR_OK;
}

/* The node has all its contributions: a pass that does not retain it uses it up. */
static void complete(struct mr_tape *tape, struct mr_tape_node *n)
{
    if (!tape->retain && !n->is_leaf && !n->is_retained)
        n->is_gone = true;
}

bool mr_tape_enter(struct mr_tape *tape, uint32_t node)
{
    struct mr_tape_node *n = &tape->nodes[node];
    if (n->pass != tape->pass || n->pending != 1 || n->output_count != 0)
        return false;
    n->pending = 0;
    complete(tape, n);
    return true;
}

void *mr_tape_put(struct mr_tape *tape, uint32_t value, void *sum)
{
    struct mr_tape_value *v = &tape->values[value];
    void *there = v->gradient;
    v->gradient = there == NULL ? sum : NULL;
    return there;
}

static void push_ready(struct mr_tape *tape, uint32_t node)
{
    uint32_t *heap = tape->ready, at = tape->ready_count++;
    for (; at > 0 && heap[(at - 1) / 2] < node; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = node;
}

static uint32_t pop_ready(struct mr_tape *tape)
{
    uint32_t *heap = tape->ready, first = heap[0], last = heap[--tape->ready_count], at = 0;
    for (;;) {
        uint32_t child = at * 2 + 1;
        if (child + 1 < tape->ready_count && heap[child + 1] > heap[child])
            child++;
        if (child >= tape->ready_count || heap[child] <= last)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return first;
}

void mr_tape_arrived(struct mr_tape *tape, uint32_t value)
{
    uint32_t node = tape->values[value].node;
    struct mr_tape_node *n = &tape->nodes[node];
    if (--n->pending == 0 && !n->is_leaf)
        push_ready(tape, node);
}

uint32_t mr_tape_next(struct mr_tape *tape)
{
    if (tape->ready_count == 0)
        return MR_TAPE_NONE;
    uint32_t node = pop_ready(tape);

    complete(tape, &tape->nodes[node]);
    return node;
}

void *mr_tape_take(struct mr_tape *tape, uint32_t value)
{
    void *sum = tape->values[value].gradient;
    tape->values[value].gradient = NULL;
    return sum;
}

/* ---- gradients ---- */

void *mr_gradient_copy(const struct mr_tensor *gradient)
{
    void *copy = malloc(gradient->bytes == 0 ? 1 : gradient->bytes);
    if (copy != NULL && gradient->bytes != 0)
        memcpy(copy, gradient->data, gradient->bytes);
    return copy;
}

static void add_f32(float *restrict sum, const float *restrict other, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        sum[i] += other[i];
}

static void add_f64(double *restrict sum, const double *restrict other, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        sum[i] += other[i];
}

void mr_gradient_add(const struct mr_tensor *shape, void *sum, const void *other)
{
    if (shape->dtype == MR_F64)
        add_f64(sum, other, shape->bytes / sizeof(double));
    else
        add_f32(sum, other, shape->bytes / sizeof(float));
}

bool mr_gradient_same_shape(const struct mr_tensor *a, const struct mr_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}
