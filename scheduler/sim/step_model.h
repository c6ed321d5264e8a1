/* SPDX-License-Identifier: Apache-2.0
 *
 * step_model - how long one step of a worker takes.
 *
 * A step reads all weights it needs (fixed), computes its rows, and reads the
 * latent cache of its decoding sequences:
 *
 *   us = fixed + rows(decode, prefill) * (1 + expert_share * (imbalance - 1)) + kv * kv_tokens
 *
 * imbalance is busiest over mean expert load of the step: experts run at the
 * pace of the busiest rank, so that part of the row costs (expert_share) grows
 * with it. A roofline sits behind each number: fixed is weight bytes over
 * memory bandwidth and launches, prefill flops over peak, decode flops plus
 * dispatch and combine, kv latent bytes over bandwidth. The presets say where
 * theirs come from; step_model_fit() takes them from measured steps.
 */
#ifndef SCHEDULER_SIM_STEP_MODEL_H
#define SCHEDULER_SIM_STEP_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct step_shape {
    uint32_t decode_rows;
    uint32_t prefill_rows;
    uint64_t kv_tokens; /* context of the decoding sequences, added up */
    double imbalance;   /* at least 1 */
};

struct step_model {
    char name[32];
    double fixed_us;
    double decode_us;      /* per row */
    double prefill_us;     /* per row */
    double kv_us;          /* per token of context */
    double expert_share;   /* of the row costs, 0 to 1 */
    uint64_t kv_tokens;    /* capacity of one node */
    uint32_t max_seqs;     /* rows its buffers hold */
    uint32_t chunk_tokens; /* prefill rows of one step, at most */
    double usd_per_hour;   /* of one node */
};

/* "h800-node": a DeepSeek-V3-class model on eight H800; "h100-node": bloom-176b on eight H100,
 * fitted to the public performance table of splitwise-sim. False: no such name. */
bool step_model_preset(const char *name, struct step_model *model);
const char *step_model_names(void); /* for --help: "h800-node, h100-node" */

/* A YAML-free key=value file as pelton-sim --fit writes it, one per line. REJECT with line and key.
 */
bool step_model_read(struct step_model *model, const char *path, struct err *err);
bool step_model_write(const struct step_model *model, const char *path, struct err *err);

double step_model_us(const struct step_model *model, const struct step_shape *shape);

/* What a step did that had to be done: padding and what is computed again are left out. */
struct step_work {
    double decode_rows, prefill_rows;
    double context_tokens; /* read for the decode rows */
    double memory_tokens;  /* held: less than the context where sequences share it */
};

/* The least time that this work takes of a node: with experts loaded evenly, and in batches as full
 * as buffers and memory allow, so that of the fixed time it is charged the share that it fills.
 * Never more than step_model_us() of the step that did it. */
double step_model_work_us(const struct step_model *model, const struct step_work *work);

/* Of the requests that a node answers, in the mean. */
struct step_lengths {
    double prompt;  /* tokens to compute: those in a cache left out */
    double output;  /* at least 1 */
    double context; /* of a running sequence */
};

/* The best rate (output tokens/s) of a node whose step still meets the target. */
double step_model_speed(const struct step_model *model, const struct step_lengths *lengths,
                        double us_target);

struct step_sample {
    struct step_shape shape;
    double us;
};

/* Least squares with non-negative terms over fixed, decode, prefill and kv; the rest of the model
 * stays. Relative errors count, so that small steps are not drowned by large ones. REJECT for
 * fewer than 8 samples or when no non-negative fit exists. *error: median |fit - us| / us. */
bool step_model_fit(struct step_model *model, const struct step_sample *samples, size_t count,
                    double *error, struct err *err);

#endif
