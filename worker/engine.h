/* SPDX-License-Identifier: Apache-2.0
 *
 * engine - continuous batching over one model: sequences in, token ids out.
 *
 * A sequence is a prompt and how to sample after it. The engine admits waiting
 * sequences while rows and KV pages last, cuts prompts into chunks, runs one
 * ragged batch per step (decode rows and prefill chunks alike) and samples
 * where a sequence's last known token was fed. KV pages of running and finished
 * sequences serve those that begin alike (worker/prefix_cache.h). When pages run
 * out it preempts the youngest sequence and recomputes it later, as far as its
 * pages were reused. None of this changes an answer: numerics are batch-invariant and the sampler's
 * randomness depends on seed and position alone.
 *
 * It knows ids, not text: stop strings and detokenising are the caller's, who
 * looks at the tokens of a step and may finish a sequence before the next one.
 *
 * Threads: all functions belong to the one thread that owns the engine; it
 * works with the threads of its device inside a step. Memory: everything is
 * allocated in engine_open(); the arrays of a sequence live in a pool sized by
 * max_waiting and max_context.
 */
#ifndef WORKER_ENGINE_H
#define WORKER_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "worker/expert_load.h"  /* struct expert_layer_sums */
#include "worker/prefix_cache.h" /* struct prefix_salt */
#include "worker/sampler.h"      /* struct sampling */

enum engine_numerics { ENGINE_F32, ENGINE_BF16 };

struct engine_config {
    const char *model_dir; /* Hugging Face directory */
    const char *backend;   /* "auto"; kernels/backend.h has the names */
    enum engine_numerics numerics;
    uint32_t threads;        /* 0: one per core */
    uint32_t max_seqs;       /* sequences in one step, at most */
    uint32_t max_waiting;    /* sequences held beside the running ones */
    uint32_t max_context;    /* tokens of a sequence; 0: what the model allows */
    uint32_t chunk_tokens;   /* prefill tokens of one step, at most; 0: default 512 */
    uint32_t step_us_target; /* what load 1 means (worker/expert_load.h); 0: 50 ms */
    bool prefix_cache;       /* sequences begin with the KV pages that others left behind
                              * (worker/prefix_cache.h); changes no answer */
    bool overlap;   /* cut steps into micro-batches that hide each other's communication; costs a
                     * little on one rank, changes no answer (worker/pipeline.h) */
    size_t kv_size; /* bytes of KV cache; 0: enough for max_seqs sequences of max_context, at most
                       25 % of RAM */
};

/* Fixed facts about an open engine; strings live as long as it does. */
struct engine_info {
    const char *model_name;  /* base name of the directory, or config's _name_or_path */
    const char *revision;    /* hex: 16 characters of a SHA-256 over config.json and the weights'
                                headers and sizes */
    const char *numerics_id; /* e.g. "cpu-avx512/f32": equal ids say the same tokens */
    const char *precision;   /* "f32", "bf16" */
    uint32_t vocab_size;
    uint32_t max_context;
    uint32_t max_seqs;
    uint64_t kv_tokens; /* capacity */
    uint32_t expert_layers;
    uint32_t experts;       /* per layer */
    uint32_t profile_count; /* numbers in a sequence's expert profile; 0: no experts */
    const int32_t *eos_ids;
    size_t eos_count;
};

struct engine_request {
    uint64_t tag;          /* the caller's name for it, unique among those held */
    const int32_t *prompt; /* copied */
    uint32_t prompt_count; /* at least 1 */
    const int32_t *prefix; /* answer ids that are already decided (teacher-forced), copied */
    uint32_t prefix_count; /* less than max_tokens */
    uint32_t max_tokens; /* answer ids, prefix included; prompt_count + max_tokens <= max_context */
    bool ignore_eos;
    bool urgent;             /* begins before waiting ones that are not */
    struct prefix_salt salt; /* it shares KV pages with requests of the same salt only */
    struct sampling sampling;
};

enum engine_finish {
    ENGINE_RUNNING,
    ENGINE_EOS,
    ENGINE_LENGTH,
    ENGINE_FAILED, /* no logit was a number: the model cannot go on from here; id is -1 */
};

/* One answer id. Forced prefix ids are not reported: the caller has them. */
struct engine_token {
    uint64_t tag;
    int32_t id;
    uint32_t index;            /* among the answer's ids, prefix included */
    enum engine_finish finish; /* not RUNNING: its last; engine_remove() gives its usage */
};

struct engine_usage {
    uint32_t prompt_tokens; /* all of the prompt */
    uint32_t cached_tokens; /* of them, taken from the prefix cache when it began; what it left
                             * there itself before it was preempted does not count */
    uint32_t output_tokens;
    int64_t prefill_us; /* its share of step time: by rows it had in each step */
    int64_t decode_us;
    int64_t queue_us; /* submit to first step */
    int64_t run_us;   /* first step to last */
};

struct engine_stats {
    uint32_t running;
    uint32_t waiting;
    uint64_t kv_tokens_used; /* in pages that running sequences hold, shared ones counted once;
                              * what only the prefix cache holds is free for whoever comes */
    int64_t steps;
    int64_t prefill_tokens;
    int64_t decode_tokens;
    int64_t preemptions;
    int64_t prefix_lookup_tokens; /* known to sequences when they were admitted, each time */
    int64_t prefix_hit_tokens;    /* of them, not computed: the prefix cache had them */
    int64_t prefix_evictions;     /* cached pages that were reused for other tokens */
    uint32_t prefix_pages;        /* in the cache now, used or not */
    int64_t busy_us;              /* inside steps */
    double step_us;               /* EWMA */
    double load;                  /* largest of layer_load */
    const float
        *layer_load; /* (expert_layers): EWMA of the busiest expert's tokens in a step over
                      * what it can do within the target step time; valid until the next call */
    const uint64_t *expert_tokens;              /* (expert_layers, experts): totals */
    const struct expert_layer_sums *layer_sums; /* (expert_layers): over all steps */
    double imbalance;    /* EWMA: busiest expert's tokens over the mean, mean over layers */
    double experts_used; /* EWMA: experts with work in a step, mean over layers */
};

struct engine;

/* Maps the weights and allocates everything. REJECT with file, tensor and reason when the directory
 * is not a model it can run, FATAL where this machine or the model cannot give what config asks. */
bool engine_open(struct engine **engine, const struct engine_config *config, struct err *err);
void engine_close(struct engine *engine);
void engine_info(const struct engine *engine, struct engine_info *info);

/* RETRY when max_seqs + max_waiting sequences are held already, finished ones included; REJECT
 * names the limit that is broken (empty prompt, ids outside the vocabulary, too long). */
bool engine_submit(struct engine *engine, const struct engine_request *request, struct err *err);

/* Forget a sequence, whether finished, running or waiting, and say what it used. False: no such
 * tag. */
bool engine_remove(struct engine *engine, uint64_t tag, struct engine_usage *usage);

/* Which experts the sequence's tokens chose so far, prompt and answer: (profile_count) by counted
 * layer and expert (worker/expert_profile.h). Only tokens that ran for it count: not those whose KV
 * the prefix cache had. False: no such tag, or none of it has run yet. */
bool engine_profile(const struct engine *engine, uint64_t tag, int32_t *profile);

/* Sequences allowed in one step from now on, clamped to 1..max_seqs. Running ones stay. */
void engine_batch_size(struct engine *engine, uint32_t batch_size);

/* Sequences of a micro-batch at most, from now on, where steps overlap; 0: as at the start, 16. */
void engine_micro_batch_size(struct engine *engine, uint32_t micro_batch_size);

/* Is there anything for a step to do? */
bool engine_has_work(const struct engine *engine);

/* One step. tokens: (at least max_seqs) filled with count answer ids; a finished sequence waits for
 * engine_remove(). An error is FATAL (the device failed). */
bool engine_step(struct engine *engine, struct engine_token *tokens, size_t *count,
                 struct err *err);

/* The logits (vocab_size) from which token i of the last step was chosen; until the next call. */
const float *engine_logits(const struct engine *engine, size_t i);

void engine_stats(const struct engine *engine, struct engine_stats *stats);

#endif
