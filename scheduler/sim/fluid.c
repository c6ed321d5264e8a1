/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/fluid.h"

#include <math.h>
#include <string.h>

enum {
    SUBSTEPS = 10, /* of a window: a batch fills and empties within it */
    STARTS_MAX = 64,
};

struct fluid {
    const struct run_config *config;
    const struct fluid_input *input;
    struct fluid_result *result;
    struct batch_size batch;
    int64_t batch_ms; /* when it was last updated */
    struct planner planner;
    struct predict predict;
    double in_system; /* requests waiting and running */
    double load;
    double step_us; /* of the last substep */
    double now_s;
    double window_tokens, window_left_s;
    uint32_t nodes;    /* serving */
    uint32_t starting; /* of all starts */
    /* From the first to serve to the last. Each keeps its own time: while the wish rises from
     * window to window, a common one would move on with it and nobody would ever arrive. */
    struct start {
        double serves_s;
        uint32_t nodes;
    } starts[STARTS_MAX];
    uint32_t starts_count;
    double in_system_area;
    double work_s; /* of all nodes, what their work needs at least */
};

static const struct trace_window *window_at(const struct fluid *fluid)
{
    size_t index = (size_t)(fluid->now_s / fluid->input->window_s);
    static const struct trace_window none = {0};

    return index < fluid->input->count ? &fluid->input->windows[index] : &none;
}

/* Lengths of what runs: those of the arrivals; the last ones known when nothing arrives. */
static struct trace_window lengths_at(const struct fluid *fluid)
{
    size_t index = (size_t)(fluid->now_s / fluid->input->window_s);

    if (index >= fluid->input->count)
        index = fluid->input->count - 1;
    while (index > 0 && fluid->input->windows[index].output < 1)
        index--;
    struct trace_window lengths = fluid->input->windows[index];
    lengths.output = fmax(lengths.output, 1);
    lengths.prompt = fmax(lengths.prompt, 1);
    return lengths;
}

struct flow {
    double rows;    /* decoding sequences of a node */
    double step_us; /* 0: idle */
    double load;
    double tokens_per_s;
    double work; /* the least time that its work needs, over the step's */
};

/* Rows beyond the first are shared out evenly; a node with less than one row idles in between. */
static struct flow node_flow(const struct fluid *fluid, const struct trace_window *lengths,
                             double rows)
{
    const struct run_config *config = fluid->config;
    const struct step_model *model = config->model;
    double context = trace_window_context(lengths);
    double whole = fmax(rows, 1);
    double prefill_rows = whole * lengths->prompt * (1 - config->cached_share) / lengths->output;
    double spread = 1 + model->expert_share * (fluid->input->imbalance - 1);
    double row_us = (model->decode_us * whole + model->prefill_us * prefill_rows) * spread;
    double rest_us = model->fixed_us + model->kv_us * whole * context;
    struct flow flow = {.rows = rows, .step_us = row_us + rest_us};

    flow.load = rows > 0 ? row_us / fmax(config->step_us_target - rest_us, 1) : 0;
    flow.tokens_per_s = fmin(rows, whole) * 1e6 / flow.step_us;
    const struct step_work work = {.decode_rows = whole,
                                   .prefill_rows = prefill_rows,
                                   .context_tokens = whole * context,
                                   .memory_tokens = whole * context};
    flow.work = step_model_work_us(model, &work) / flow.step_us;
    return flow;
}

static double rows_max(const struct fluid *fluid, const struct trace_window *lengths)
{
    const struct step_model *model = fluid->config->model;
    double context = trace_window_context(lengths);

    return fmin(fluid->batch.size, fmin(model->max_seqs, (double)model->kv_tokens / context));
}

static void advance(struct fluid *fluid, double step_s)
{
    const struct trace_window *window = window_at(fluid);
    const struct trace_window lengths = lengths_at(fluid);
    struct fluid_result *result = fluid->result;
    size_t hour = (size_t)(fluid->now_s / 3600);
    struct run_hour *hours = &result->hours[hour < RUN_HOURS_MAX ? hour : RUN_HOURS_MAX - 1];
    double nodes = fluid->nodes;
    double running = fmin(fluid->in_system, nodes * rows_max(fluid, &lengths));
    struct flow flow = node_flow(fluid, &lengths, nodes > 0 ? running / nodes : 0);
    double made = fmin(flow.tokens_per_s * nodes * step_s,
                       (fluid->in_system + window->rate * step_s) * lengths.output);
    double done = made / lengths.output;

    fluid->in_system_area += fluid->in_system * step_s;
    fluid->in_system = fmax(0, fluid->in_system + window->rate * step_s - done);
    fluid->window_tokens += window->rate * step_s * lengths.output;
    fluid->load += (1 - exp(-step_s)) * (flow.load - fluid->load);
    fluid->step_us = flow.step_us;
    result->requests += done;
    result->output_tokens += made;
    result->prompt_tokens += done * lengths.prompt;
    result->waiting_max = fmax(result->waiting_max, fluid->in_system - running);
    hours->prompt_tokens += (uint64_t)(window->rate * step_s * window->prompt);
    hours->output_tokens += (uint64_t)made;
    hours->node_hours += (nodes + fluid->starting) * step_s / 3600;
    double busy_s = fmin(flow.rows, 1) * nodes * step_s;
    hours->busy_hours += busy_s / 3600;
    result->busy_hours += busy_s / 3600;
    fluid->work_s += flow.work * busy_s;
    result->node_hours += (nodes + fluid->starting) * step_s / 3600;
    fluid->now_s += step_s;
}

/* What scheduler/capacity.h learns from the nodes' reports: the speed of one with the largest batch
 * that policy, memory and the step time wanted allow it. */
static double best_speed(const struct fluid *fluid, const struct trace_window *window)
{
    const struct run_config *config = fluid->config;
    const struct batch_signal signal = {.kv_tokens = config->model->kv_tokens,
                                        .kv_tokens_need = trace_window_context(window),
                                        .max_seqs = config->model->max_seqs};
    const struct step_lengths lengths = {.prompt = window->prompt * (1 - config->cached_share),
                                         .output = window->output,
                                         .context = trace_window_context(window)};
    struct step_model model = *config->model;
    int64_t target_us = config->capacity.step_us_target;

    model.max_seqs = batch_size_most(&config->policy, &signal);
    return step_model_speed(&model, &lengths, target_us > 0 ? (double)target_us : INFINITY);
}

/* A full list lets the newest two arrive together, at the later time. */
static void start_nodes(struct fluid *fluid, uint32_t nodes)
{
    double serves_s = fluid->now_s + (double)fluid->config->node_start_us / 1e6;

    if (fluid->starts_count < STARTS_MAX)
        fluid->starts[fluid->starts_count++] = (struct start){.nodes = 0};
    fluid->starts[fluid->starts_count - 1].serves_s = serves_s;
    fluid->starts[fluid->starts_count - 1].nodes += nodes;
    fluid->starting += nodes;
}

/* Those that started last are called off first. */
static void stop_nodes(struct fluid *fluid, uint32_t nodes)
{
    while (nodes > 0 && fluid->starts_count > 0) {
        struct start *last = &fluid->starts[fluid->starts_count - 1];
        uint32_t off = last->nodes < nodes ? last->nodes : nodes;
        last->nodes -= off;
        fluid->starting -= off;
        nodes -= off;
        fluid->starts_count -= last->nodes == 0;
    }
    fluid->nodes -= nodes;
}

static void serve_started(struct fluid *fluid)
{
    uint32_t served = 0;

    while (served < fluid->starts_count && fluid->starts[served].serves_s <= fluid->now_s) {
        fluid->nodes += fluid->starts[served].nodes;
        fluid->starting -= fluid->starts[served++].nodes;
    }
    fluid->starts_count -= served;
    memmove(fluid->starts, fluid->starts + served, fluid->starts_count * sizeof *fluid->starts);
}

static void plan(struct fluid *fluid)
{
    const struct run_config *config = fluid->config;
    const struct trace_window lengths = lengths_at(fluid);
    struct planner_decision decision;
    double running = fmin(fluid->in_system, fluid->nodes * rows_max(fluid, &lengths));

    predict_observe(&fluid->predict,
                    fluid->window_tokens * 1000 / (double)config->capacity.window_ms);
    fluid->window_tokens = 0;
    const struct planner_load load = {
        .outstanding_requests = (uint64_t)ceil(fluid->in_system),
        .waiting_tokens = (fluid->in_system - running) * lengths.output,
        .forecast_tokens_per_s = predict_forecast(&fluid->predict, config->capacity.windows_ahead),
        .speed_tokens_per_s = best_speed(fluid, &lengths),
        .workers = fluid->nodes + fluid->starting,
        .batch_most = (uint32_t)rows_max(fluid, &lengths)};
    planner_decide(&fluid->planner, &load, (int64_t)(fluid->now_s * 1000), &decision);
    const uint32_t asked = fluid->nodes + fluid->starting;
    if (decision.wanted > asked)
        start_nodes(fluid, decision.wanted - asked);
    else
        stop_nodes(fluid, asked - decision.wanted);
}

static void update_batch(struct fluid *fluid)
{
    const struct run_config *config = fluid->config;
    const struct trace_window lengths = lengths_at(fluid);
    int64_t now_ms = (int64_t)(fluid->now_s * 1000);
    double room = fluid->nodes * rows_max(fluid, &lengths);
    double running = fmin(fluid->in_system, room) / fmax(fluid->nodes, 1);
    const struct batch_signal signal = {
        .load = fluid->load,
        .pressure = room > 0 ? fmax(0, fluid->in_system - room) / room : 0,
        .step_us = fluid->step_us,
        .running = (uint32_t)running,
        .kv_tokens_used = (uint64_t)(running * trace_window_context(&lengths)),
        .kv_tokens = config->model->kv_tokens,
        .kv_tokens_need = trace_window_context(&lengths),
        .max_seqs = config->model->max_seqs};

    /* As many windows of the policy as have passed. */
    for (; fluid->batch_ms + config->policy.window_ms <= now_ms;
         fluid->batch_ms += config->policy.window_ms)
        batch_size_update(&fluid->batch, &config->policy, &signal,
                          fluid->batch_ms + config->policy.window_ms);
}

static void close_step(struct fluid *fluid, double step_s)
{
    const struct run_config *config = fluid->config;
    struct fluid_result *result = fluid->result;
    uint32_t count;

    serve_started(fluid);
    fluid->window_left_s -= step_s;
    if (config->scale && fluid->window_left_s <= 0) {
        plan(fluid);
        fluid->window_left_s += (double)config->capacity.window_ms / 1e3;
    }
    count = fluid->nodes + fluid->starting;
    result->nodes_min = count < result->nodes_min ? count : result->nodes_min;
    result->nodes_max = count > result->nodes_max ? count : result->nodes_max;
}

bool fluid_run(const struct run_config *config, const struct fluid_input *input, double step_s,
               struct fluid_result *result, struct err *err)
{
    struct fluid fluid = {.config = config, .input = input, .result = result};
    double end_s = (double)input->count * input->window_s;
    double limit_s = end_s + 86400;

    if (config->classic)
        return err_set(err, ERR_REJECT, "fluid mode: classic static batching has no steady flow");
    if (input->count == 0)
        return err_set(err, ERR_REJECT, "fluid mode: the trace has no windows");
    *result = (struct fluid_result){0};
    batch_size_init(&fluid.batch, &config->policy, 0);
    planner_init(&fluid.planner, &config->capacity.planner);
    predict_init(&fluid.predict, &config->capacity.predictor);
    fluid.nodes = config->scale ? config->capacity.planner.workers_min : config->nodes;
    fluid.window_left_s = (double)config->capacity.window_ms / 1e3;
    result->nodes_min = result->nodes_max = fluid.nodes;
    /* To the end of the input, and on until the backlog is gone. */
    while (fluid.now_s < end_s || (fluid.in_system >= 1 && fluid.now_s < limit_s)) {
        for (int i = 0; i < SUBSTEPS; i++) {
            advance(&fluid, step_s / SUBSTEPS);
            update_batch(&fluid);
        }
        close_step(&fluid, step_s);
    }
    result->duration_s = fluid.now_s;
    result->nodes_mean = result->node_hours * 3600 / fluid.now_s;
    result->latency_mean_s = result->requests > 0 ? fluid.in_system_area / result->requests : 0;
    result->utilisation = fluid.work_s / 3600 / result->node_hours;
    result->hours_count = (uint32_t)ceil(fluid.now_s / 3600);
    if (result->hours_count > RUN_HOURS_MAX)
        result->hours_count = RUN_HOURS_MAX;
    return true;
}

bool fluid_imbalance(const struct routing *routing, uint32_t rows, bool planned, double *imbalance,
                     struct err *err)
{
    struct routing_batch even;
    double gain;

    if (!routing_batch_init(&even, routing, err))
        return false;
    routing_batch_mix(&even, rows);
    routing_batch_observe(&even, 1);
    if (planned && !routing_batch_replan(&even, 1, &gain, err))
        return false;
    *imbalance = routing_batch_imbalance(&even, rows);
    return true;
}
