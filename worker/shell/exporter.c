/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shell/exporter.h"

#include "common/check.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/metrics_http.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum gauge {
    RUNNING,
    WAITING,
    HELD,
    LEASE,
    KV_USED,
    KV_CAPACITY,
    LOAD,
    IMBALANCE,
    EXPERTS_USED,
    STEP_SECONDS,
    STEPS,
    PREFILL_TOKENS,
    DECODE_TOKENS,
    PREEMPTIONS,
    PREFIX_LOOKUP_TOKENS,
    PREFIX_HIT_TOKENS,
    PREFIX_PAGES,
    PREFIX_EVICTIONS,
    BUSY_SECONDS,
    DONE,
    FAILED,
    YIELDED,
    CHUNKS,
    GAUGE_COUNT
};

static const struct {
    const char *name;
    bool counter;
    const char *help;
} descriptions[GAUGE_COUNT] = {
    [RUNNING] = {"pelton_worker_running_sequences", false, "Sequences in the running batch."},
    [WAITING] = {"pelton_worker_waiting_sequences", false, "Sequences that wait for a row."},
    [HELD] = {"pelton_worker_requests_held", false, "Requests assigned and not finished."},
    [LEASE] = {"pelton_worker_lease", false, "1 while the worker may step and publish."},
    [KV_USED] = {"pelton_worker_kv_used_tokens", false,
                 "Tokens in pages of the KV cache that running sequences hold."},
    [KV_CAPACITY] = {"pelton_worker_kv_capacity_tokens", false, "Tokens the KV cache holds."},
    [LOAD] = {"pelton_worker_expert_load", false,
              "Load of the busiest expert: 0 idle, 1 as much as it can do in the target time."},
    [IMBALANCE] = {"pelton_worker_expert_imbalance", false,
                   "Tokens of a step's busiest expert over the mean, smoothed, mean over layers."},
    [EXPERTS_USED] = {"pelton_worker_experts_used", false,
                      "Experts of a layer with work in a step, smoothed, mean over layers."},
    [STEP_SECONDS] = {"pelton_worker_step_seconds", false, "Time of a step, smoothed."},
    [STEPS] = {"pelton_worker_steps_total", true, "Steps."},
    [PREFILL_TOKENS] = {"pelton_worker_prefill_tokens_total", true, "Prompt tokens computed."},
    [DECODE_TOKENS] = {"pelton_worker_decode_tokens_total", true, "Answer tokens computed."},
    [PREEMPTIONS] = {"pelton_worker_preemptions_total", true,
                     "Sequences put back because the KV cache was full."},
    [PREFIX_LOOKUP_TOKENS] = {"pelton_worker_prefix_lookup_tokens_total", true,
                              "Tokens that were looked for in the prefix cache."},
    [PREFIX_HIT_TOKENS] = {"pelton_worker_prefix_hit_tokens_total", true,
                           "Of them, found and not computed."},
    [PREFIX_PAGES] = {"pelton_worker_prefix_pages", false,
                      "Pages in the prefix cache, those in use included."},
    [PREFIX_EVICTIONS] = {"pelton_worker_prefix_evictions_total", true,
                          "Pages of the prefix cache that were reused for other tokens."},
    [BUSY_SECONDS] = {"pelton_worker_busy_seconds_total", true, "Time spent in steps."},
    [DONE] = {"pelton_worker_done_total", true, "Requests answered."},
    [FAILED] = {"pelton_worker_failed_total", true, "Requests refused or failed."},
    [YIELDED] = {"pelton_worker_yielded_total", true, "Requests given back unfinished."},
    [CHUNKS] = {"pelton_worker_token_chunks_total", true, "Token chunks sent."},
};

/* By expert layer. */
enum layer_metric { LAYER_LOAD, LAYER_BUSIEST, LAYER_DISTINCT, LAYER_IMBALANCE, LAYER_COUNT };

static const struct {
    const char *name;
    bool counter;
    const char *help;
} layer_descriptions[LAYER_COUNT] = {
    [LAYER_LOAD] = {"pelton_worker_layer_load", false, "The expert load by expert layer."},
    [LAYER_BUSIEST] = {"pelton_worker_expert_busiest_tokens_total", true,
                       "Tokens of each step's busiest expert."},
    [LAYER_DISTINCT] = {"pelton_worker_experts_used_total", true,
                        "Experts with work, summed over steps."},
    [LAYER_IMBALANCE] = {"pelton_worker_expert_imbalance_total", true,
                         "Tokens of the busiest expert over the mean, summed over steps."},
};

struct exporter {
    struct metrics *metrics;
    struct metrics_http *server;
    struct metric *gauges[GAUGE_COUNT];
    struct metric **layers; /* (layers_count, LAYER_COUNT) */
    uint32_t layers_count;
    _Atomic bool ready; /* relaxed: it stands alone */
};

static bool is_ready(void *context, char *reason, size_t reason_size)
{
    struct exporter *exporter = context;
    bool ready = atomic_load_explicit(&exporter->ready, memory_order_relaxed);

    snprintf(reason, reason_size, "%s", ready ? "leased" : "no lease from a scheduler");
    return ready;
}

static void add_metrics(struct exporter *exporter, const struct engine_info *info)
{
    for (int i = 0; i < GAUGE_COUNT; i++) {
        exporter->gauges[i] =
            descriptions[i].counter
                ? metrics_counter(exporter->metrics, descriptions[i].name, "", descriptions[i].help)
                : metrics_gauge(exporter->metrics, descriptions[i].name, "", descriptions[i].help);
    }
    metric_set(exporter->gauges[KV_CAPACITY], (double)info->kv_tokens);
    exporter->layers_count = info->expert_layers;
    exporter->layers = calloc(info->expert_layers + 1, LAYER_COUNT * sizeof(struct metric *));
    CHECK(exporter->layers != NULL);
    for (uint32_t i = 0; i < info->expert_layers; i++) {
        char label[32];

        snprintf(label, sizeof label, "layer=\"%u\"", i);
        for (int m = 0; m < LAYER_COUNT; m++)
            exporter->layers[i * LAYER_COUNT + (uint32_t)m] =
                layer_descriptions[m].counter
                    ? metrics_counter(exporter->metrics, layer_descriptions[m].name, label,
                                      layer_descriptions[m].help)
                    : metrics_gauge(exporter->metrics, layer_descriptions[m].name, label,
                                    layer_descriptions[m].help);
    }
}

bool exporter_open(struct exporter **exporter, const struct config_common *common,
                   const struct engine_info *info, struct err *err)
{
    struct exporter *made = calloc(1, sizeof *made);

    CHECK(made != NULL);
    made->metrics = metrics_open();
    add_metrics(made, info);
    if (common->metrics_port >= 0) {
        struct metrics_http_options options = {
            .address = common->metrics_address,
            .port = (uint16_t)common->metrics_port,
            .metrics = made->metrics,
            .ready = is_ready,
            .context = made,
        };

        if (!metrics_http_open(&made->server, &options, err)) {
            exporter_close(made);
            return false;
        }
        LOG_INFO("metrics", "address=%s port=%d", common->metrics_address,
                 (int)metrics_http_port(made->server));
    }
    *exporter = made;
    return true;
}

void exporter_close(struct exporter *exporter)
{
    if (exporter == NULL)
        return;
    metrics_http_close(exporter->server);
    metrics_close(exporter->metrics);
    free(exporter->layers);
    free(exporter);
}

static void set_layer(struct metric **layer, const struct board_stats *stats, uint32_t i)
{
    const struct expert_layer_sums *sums = &stats->layer_sums[i];

    metric_set(layer[LAYER_LOAD], (double)stats->layer_load[i]);
    metric_set(layer[LAYER_BUSIEST], (double)sums->busiest_tokens);
    metric_set(layer[LAYER_DISTINCT], (double)sums->distinct);
    metric_set(layer[LAYER_IMBALANCE], sums->imbalance);
}

void exporter_update(struct exporter *exporter, const struct exporter_values *values)
{
    const struct engine_stats *engine = &values->stats->engine;
    const double now[GAUGE_COUNT] = {
        [RUNNING] = engine->running,
        [WAITING] = engine->waiting,
        [HELD] = (double)values->held,
        [LEASE] = values->lease,
        [KV_USED] = (double)engine->kv_tokens_used,
        [KV_CAPACITY] = metric_value(exporter->gauges[KV_CAPACITY]),
        [LOAD] = engine->load,
        [IMBALANCE] = engine->imbalance,
        [EXPERTS_USED] = engine->experts_used,
        [STEP_SECONDS] = engine->step_us / 1e6,
        [STEPS] = (double)engine->steps,
        [PREFILL_TOKENS] = (double)engine->prefill_tokens,
        [DECODE_TOKENS] = (double)engine->decode_tokens,
        [PREEMPTIONS] = (double)engine->preemptions,
        [PREFIX_LOOKUP_TOKENS] = (double)engine->prefix_lookup_tokens,
        [PREFIX_HIT_TOKENS] = (double)engine->prefix_hit_tokens,
        [PREFIX_PAGES] = engine->prefix_pages,
        [PREFIX_EVICTIONS] = (double)engine->prefix_evictions,
        [BUSY_SECONDS] = (double)engine->busy_us / 1e6,
        [DONE] = (double)values->done,
        [FAILED] = (double)values->failed,
        [YIELDED] = (double)values->yielded,
        [CHUNKS] = (double)values->chunks,
    };

    for (int i = 0; i < GAUGE_COUNT; i++)
        metric_set(exporter->gauges[i], now[i]);
    for (uint32_t i = 0; i < exporter->layers_count; i++)
        set_layer(exporter->layers + i * LAYER_COUNT, values->stats, i);
    atomic_store_explicit(&exporter->ready, values->lease, memory_order_relaxed);
}
