/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/config.h"

#include <string.h>

#include "common/utf8.h"
#include "schemas/codec.h"

#define KEY(member) .offset = offsetof(struct worker_config, member)
/* Bounds of durations are in microseconds. */
#define MS 1000.0
#define S  1000000.0

/* No request could name it. */
static const char *refuse_model_name(const char *text)
{
    size_t size = strlen(text);
    bool good = size <= MODEL_ID_SIZE_MAX && utf8_valid(text, size);

    for (size_t i = 0; i < size; i++)
        good = good && (unsigned char)text[i] >= ' ' && text[i] != 0x7f;
    return good ? NULL : "at most 256 bytes of UTF-8 without control characters";
}

static const struct config_key keys[] = {
    CONFIG_COMMON_KEYS(struct worker_config, common),
    CONFIG_METRICS_KEYS(struct worker_config, common),

    {.name = "slot",
     .letter = 's',
     .type = CONFIG_INT,
     KEY(slot),
     .default_value = "0",
     .min = 0,
     .max = 100000,
     .help = "This worker's place: its partition of assignments and worker-events. The newest "
             "worker of a slot wins."},
    {.name = "model",
     .letter = 'm',
     .type = CONFIG_STRING,
     KEY(model),
     .default_value = "",
     .value_name = "DIR",
     .help = "Hugging Face model directory."},
    {.name = "model_name",
     .type = CONFIG_STRING,
     KEY(model_name),
     .refuse = refuse_model_name,
     .default_value = "",
     .help = "Name that requests address; the directory's own where empty."},
    {.name = "role",
     .type = CONFIG_CHOICE,
     KEY(role),
     .default_value = "both",
     .choices = "both|prefill|decode",
     .help = "Which phase runs here."},
    {.name = "numerics",
     .type = CONFIG_CHOICE,
     KEY(numerics),
     .default_value = "f32",
     .choices = "f32|bf16",
     .help = "Activations in f32 (exact), or rounded to bf16 before each product (fast)."},
    {.name = "backend",
     .type = CONFIG_STRING,
     KEY(backend),
     .default_value = "auto",
     .help = "Kernels; auto takes the best for this machine."},
    {.name = "threads",
     .type = CONFIG_INT,
     KEY(threads),
     .default_value = "0",
     .min = 0,
     .max = 1024,
     .help = "Of the model; 0: one per core."},
    {.name = "max_batch_size",
     .alias = "batch_processing.max_batch_size",
     .letter = 'b',
     .type = CONFIG_INT,
     KEY(max_batch_size),
     .default_value = "32",
     .min = 1,
     .max = 4096,
     .help = "Sequences in one step, at most; the scheduler chooses within it."},
    {.name = "kv_size",
     .type = CONFIG_SIZE,
     KEY(kv_size),
     .default_value = "0",
     .max = 1024 * 1073741824.0,
     .help = "KV cache; 0: max_batch_size whole contexts, at most a quarter of the memory."},
    {.name = "max_context",
     .type = CONFIG_INT,
     KEY(max_context),
     .default_value = "0",
     .min = 0,
     .max = 1 << 24,
     .help = "Tokens of one request, prompt and answer; 0: what the model allows."},
    {.name = "chunk_tokens",
     .type = CONFIG_INT,
     KEY(chunk_tokens),
     .default_value = "512",
     .min = 16,
     .max = 65536,
     .help = "Prompt tokens in one step, at most."},
    {.name = "step_time_target",
     .type = CONFIG_DURATION,
     KEY(step_time_us),
     .default_value = "50ms",
     .min = 1 * MS,
     .max = 60 * S,
     .help = "Step time that load 1 stands for."},
    {.name = "overlap",
     .type = CONFIG_BOOL,
     KEY(overlap),
     .default_value = "false",
     .help = "Cut steps into micro-batches that hide each other's communication."},
    {.name = "prefix_cache",
     .type = CONFIG_BOOL,
     KEY(prefix_cache),
     .default_value = "true",
     .help =
         "Keep the KV cache of what was computed while there is room; requests that begin alike "
         "begin there."},
    {.name = "prefix_cache_shared",
     .type = CONFIG_BOOL,
     KEY(prefix_cache_shared),
     .default_value = "false",
     .help =
         "Also between tenants. One could then learn by time and usage whether another has sent "
         "the same beginning."},
    {.name = "hardware",
     .type = CONFIG_STRING,
     KEY(hardware),
     .default_value = "",
     .help = "Hardware class for prices; cpu-<threads> where empty."},

    {.name = "lease",
     .type = CONFIG_DURATION,
     KEY(lease_us),
     .default_value = "3s",
     .min = 500 * MS,
     .max = 60 * S,
     .help = "As the scheduler has it: without a renewal for this long nothing is run or sent."},
    {.name = "lease_keep",
     .type = CONFIG_DURATION,
     KEY(keep_us),
     .default_value = "60s",
     .min = 0,
     .max = 3600 * S,
     .help = "How long requests and their KV cache outlive the lease."},
    {.name = "drain_timeout",
     .type = CONFIG_DURATION,
     KEY(drain_timeout_us),
     .default_value = "30s",
     .min = 0,
     .max = 3600 * S,
     .help = "After SIGTERM: time to finish what runs; the rest is given back."},

    {.name = "stream_tokens",
     .type = CONFIG_INT,
     KEY(stream_tokens),
     .default_value = "8",
     .min = 1,
     .max = 4096,
     .help = "A streamed answer is sent after so many tokens, or after stream-interval."},
    {.name = "stream_interval",
     .type = CONFIG_DURATION,
     KEY(stream_us),
     .default_value = "100ms",
     .min = 1 * MS,
     .max = 60 * S,
     .help = "And after this time, if there is anything new."},
    {.name = "progress_tokens",
     .type = CONFIG_INT,
     KEY(progress_tokens),
     .default_value = "64",
     .min = 1,
     .max = 65536,
     .help = "An answer that nobody streams is saved against a crash after so many tokens, or "
             "after progress-interval."},
    {.name = "progress_interval",
     .type = CONFIG_DURATION,
     KEY(progress_us),
     .default_value = "2s",
     .min = 10 * MS,
     .max = 600 * S,
     .help = "And after this time, if there is anything new."},
};

const struct config_program worker_program = {
    .name = "pelton-worker",
    .version = PELTON_VERSION,
    .synopsis = "--model DIR [--config FILE] [options]",
    .summary = "Runs a Mixture-of-Experts model: takes assignments from Kafka, answers them in "
               "one\ncontinuous batch, and sends tokens and results back.",
    .epilogue =
        "SIGTERM drains: what runs is finished or given back, then the slot is free.\n"
        "Exit codes: 0 stopped, 64 an option, 65 the model is broken, 66 there is no model, 69 a\n"
        "topic is missing or the metrics port taken, 70 the model or the client failed, 78\n"
        "configuration, also when a newer worker took the slot. Kafka is waited for.\n",
    .keys = keys,
    .keys_count = sizeof keys / sizeof *keys,
};

bool worker_config_check(const struct worker_config *config, struct err *err)
{
    if (config->role != ROLE_BOTH)
        return err_set(err, ERR_REJECT,
                       "role %s hands KV caches over through the external KV store, which this "
                       "version does not have; only role both runs",
                       config->role == ROLE_PREFILL ? "prefill" : "decode");
    if (config->model[0] == '\0')
        return err_set(err, ERR_REJECT, "model: the model directory is missing (--model DIR)");
    return true;
}
