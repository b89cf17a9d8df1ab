/* Every layer, and the network of the MNIST example with its loss and three optimizer steps, next to what
 * torch makes of the same numbers: data/layers_torch.txt, which data/layers_torch.py writes.
 *
 * A number may be off by 1e-5 of the largest of its tensor, from torch in double precision and from torch in
 * single precision. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "layers_fixture.h"
#include "tests/test.h"

#define LAYERS_MAX 16u
#define BOUND      1e-5

struct torch_case {
    char name[32];
    uint32_t batch, steps, has_loss, layer_count;
    struct ps_shape sample;
    struct mr_feature learning;
    struct ps_layer layers[LAYERS_MAX];
};

static void read_layer(FILE *file, struct ps_layer *l)
{
    unsigned kind, no_bias;
    *l = (struct ps_layer){0};
    assert_int_equal(fscanf(file,
                            "layer %u %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32
                            " %" SCNu32 " %" SCNu32 " %u %a ",
                            &kind, &l->inputs, &l->outputs, &l->kernel[0], &l->kernel[1], &l->stride[0],
                            &l->stride[1], &l->pad[0], &l->pad[1], &no_bias, &l->probability),
                     11);
    l->kind = (enum ps_layer_kind)kind;
    l->no_bias = no_bias != 0;
}

static bool read_case(FILE *file, struct torch_case *c)
{
    const uint32_t one = 1;
    *c = (struct torch_case){.learning = mr_feature_variable("v", 1, &one)};
    if (fscanf(file,
               "case %31s %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32
               " %" SCNu32 " %a",
               c->name, &c->batch, &c->sample.rank, &c->sample.dims[0], &c->sample.dims[1],
               &c->sample.dims[2], &c->steps, &c->has_loss, &c->learning.optimizer,
               &c->learning.learning_rate) != 10)
        return false;
    for (uint32_t i = 0; i < MR_OPTIMIZER_ARGS; i++)
        assert_int_equal(fscanf(file, "%a", &c->learning.optimizer_args[i]), 1);
    assert_int_equal(fscanf(file, "%" SCNu32 " ", &c->layer_count), 1);
    assert_int_in_range(c->layer_count, 1, LAYERS_MAX);
    for (uint32_t i = 0; i < c->layer_count; i++)
        read_layer(file, &c->layers[i]);
    return true;
}

struct worst {
    double exact, torch; /* errors by the largest of the tensor */
    uint64_t numbers;
};

/* The next tensor of the file, which must be of that name and size, next to `ours`. */
static void compare(FILE *file, struct worst *w, const char *name, const float *ours, size_t count)
{
    char stored[64];
    size_t stored_count, every;
    double largest, exact, torch;
    assert_int_equal(fscanf(file, "tensor %63s %zu %zu %la ", stored, &stored_count, &every, &largest), 4);
    assert_string_equal(stored, name);
    assert_int_equal(stored_count, count);
    for (size_t i = 0; i < count; i += every, w->numbers++) {
        assert_int_equal(fscanf(file, "%la %la ", &exact, &torch), 2);
        double unit = fmax(largest, 1e-30), off = fabs((double)ours[i] - exact) / unit;
        double off_torch = fabs((double)ours[i] - torch) / unit;
        if (!(off <= BOUND) || !(off_torch <= BOUND))
            fail_msg("%s[%zu] is %g: double %g, torch %g, the largest is %g", name, i, (double)ours[i], exact,
                     torch, largest);
        w->exact = fmax(w->exact, off);
        w->torch = fmax(w->torch, off_torch);
    }
}

/* Sets output_gradient. */
static void lose(struct machine *m, FILE *file, struct worst *w, uint64_t step)
{
    char name[64];
    float loss;
    uint32_t classes = (uint32_t)(m->out_floats / m->batch), *labels = zeros(m->batch, sizeof(*labels));
    for (uint32_t i = 0; i < m->batch; i++)
        labels[i] = (uint32_t)(((double)drawn(DRAWN_LABEL + step, i) + 1) / 2 * classes);
    assert_int_equal(nll_loss(m->output, labels, m->batch, classes, &loss, m->output_gradient), MR_OK);
    snprintf(name, sizeof(name), "%" PRIu64 ".loss", step);
    compare(file, w, name, &loss, 1);
    free(labels);
}

static void run_step(struct machine *m, const struct torch_case *c, uint64_t step, FILE *file,
                     struct worst *w)
{
    char name[64];
    machine_draw_input(m, step);
    machine_forward(m, true, step);
    snprintf(name, sizeof(name), "%" PRIu64 ".output", step);
    compare(file, w, name, m->output, m->out_floats);
    if (c->has_loss)
        lose(m, file, w, step);
    else
        machine_draw_output_gradient(m, step);
    machine_backward(m);
    snprintf(name, sizeof(name), "%" PRIu64 ".input_gradient", step);
    compare(file, w, name, m->input_gradient, m->in_floats);
    for (uint32_t i = 0; i < ps_network_parameter_count(m->network); i++) {
        const struct ps_parameter_info *info = ps_network_parameter(m->network, i);
        snprintf(name, sizeof(name), "%" PRIu64 ".gradient.%" PRIu32, step, i);
        compare(file, w, name, m->gradients + info->first, info->shape.count);
    }
}

static void compare_values(struct machine *m, FILE *file, struct worst *w)
{
    char name[64];
    struct mr_parameter_version *v = parameters_hold(m->parameters);
    for (uint32_t i = 0; i < ps_network_parameter_count(m->network); i++) {
        const struct ps_parameter_info *info = ps_network_parameter(m->network, i);
        snprintf(name, sizeof(name), "values.%" PRIu32, i);
        compare(file, w, name, mr_version_values(v) + info->first, info->shape.count);
    }
    mr_version_release(v);
}

static void run_case(const struct torch_case *c, FILE *file)
{
    struct machine m;
    struct parameters_optimizer *optimizer = NULL;
    struct worst worst = {0};
    const char *what = "";
    machine_init(&m, c->layers, c->layer_count, &c->sample, c->batch);
    if (c->learning.optimizer != 0)
        assert_int_equal(parameters_optimizer_create(m.parameters, &c->learning, &optimizer, &what), MR_OK);
    for (uint64_t step = 1; step <= c->steps; step++) {
        uint32_t skipped = 0;
        run_step(&m, c, step, file, &worst);
        if (optimizer != NULL)
            assert_int_equal(parameters_step(optimizer, m.gradients, step, 0, &skipped), MR_OK);
        assert_int_equal(skipped, 0);
    }
    if (optimizer != NULL)
        compare_values(&m, file, &worst);
    printf("%-24s %5" PRIu64 " numbers: %.1e from double, %.1e from torch\n", c->name, worst.numbers,
           worst.exact, worst.torch);
    parameters_optimizer_destroy(optimizer);
    machine_free(&m);
}

TEST(test_as_torch)
{
    FILE *file = fopen(LAYERS_TORCH, "r");
    struct torch_case c;
    uint32_t cases = 0;
    assert_non_null(file);
    for (; read_case(file, &c); cases++)
        run_case(&c, file);
    assert_int_equal(cases, 25);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
}
