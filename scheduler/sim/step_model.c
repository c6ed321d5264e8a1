/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/step_model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TERMS = 4, SAMPLES_MIN = 8, ROUNDS = 6 };

/* h800-node. Published for DeepSeek-V3/R1 on H800: 14.8 k output tokens/s and 73.7 k input tokens/s
 * a node, 56.3 % of input from the cache, 20-22 tokens/s a request, 4,989 tokens of context. So
 * about 700 sequences a node, a step of 47 ms, and 31 us for a prefilled token. Of the 47 ms, the
 * latent cache (70 KB a token in bf16 over 8 x 3.35 TB/s at half efficiency) takes 18, the weights
 * of a node's experts and attention 12, and the rest is rows: 24 us each. All that was measured
 * with the imbalance that experts have after EPLB; here that is 1.09 for an even mix in batches of
 * 700 and makes rows 5 % dearer, so 22.8 and 29.4 us are the costs without it. KV capacity: 8 x 80
 * GB less weights, 75 % of what remains.
 *
 * h100-node. Median fit over bloom-176b, h100-80gb, tensor_parallel 8 of splitwise-sim's
 * perf_model.csv: 35.4 ms fixed, 0.42 ms a row, 0.16 ms a prefilled token. */
static const struct step_model presets[] = {
    {"h800-node", 12000, 22.8, 29.4, 0.0052, 0.6, 4000000, 4096, 4096, 16},
    {"h100-node", 35400, 420, 160, 0.02, 0, 400000, 256, 2048, 24},
};

bool step_model_preset(const char *name, struct step_model *model)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(name, presets[i].name) == 0) {
            *model = presets[i];
            return true;
        }
    return false;
}

const char *step_model_names(void)
{
    return "h800-node, h100-node";
}

double step_model_us(const struct step_model *model, const struct step_shape *shape)
{
    double rows = model->decode_us * shape->decode_rows + model->prefill_us * shape->prefill_rows;

    return model->fixed_us + rows * (1 + model->expert_share * (shape->imbalance - 1)) +
           model->kv_us * (double)shape->kv_tokens;
}

double step_model_work_us(const struct step_model *model, const struct step_work *work)
{
    double filled =
        fmax(work->decode_rows / model->max_seqs, work->memory_tokens / (double)model->kv_tokens);

    return fmin(filled, 1) * model->fixed_us + model->decode_us * work->decode_rows +
           model->prefill_us * work->prefill_rows + model->kv_us * work->context_tokens;
}

double step_model_speed(const struct step_model *model, const struct step_lengths *lengths,
                        double us_target)
{
    double row_us = model->decode_us + model->prefill_us * lengths->prompt / lengths->output +
                    model->kv_us * lengths->context;
    double rows = fmax(1, (us_target - model->fixed_us) / row_us);

    rows = fmin(rows, fmin(model->max_seqs, (double)model->kv_tokens / lengths->context));
    return rows * 1e6 / (model->fixed_us + rows * row_us);
}

/* Numbers of the file in its order; the two sizes are whole. */
struct field {
    const char *name;
    double *real;
    uint64_t *wide;
    uint32_t *narrow;
};

enum { FIELDS = 9 };

static void list_fields(struct step_model *model, struct field fields[FIELDS])
{
    const struct field all[FIELDS] = {
        {"fixed_us", &model->fixed_us, NULL, NULL},
        {"decode_us", &model->decode_us, NULL, NULL},
        {"prefill_us", &model->prefill_us, NULL, NULL},
        {"kv_us", &model->kv_us, NULL, NULL},
        {"expert_share", &model->expert_share, NULL, NULL},
        {"usd_per_hour", &model->usd_per_hour, NULL, NULL},
        {"kv_tokens", NULL, &model->kv_tokens, NULL},
        {"max_seqs", NULL, NULL, &model->max_seqs},
        {"chunk_tokens", NULL, NULL, &model->chunk_tokens},
    };

    memcpy(fields, all, sizeof all);
}

static bool set_field(struct field fields[FIELDS], const char *key, double value, uint32_t *seen)
{
    for (int i = 0; i < FIELDS; i++) {
        if (strcmp(fields[i].name, key) != 0)
            continue;
        bool whole = fields[i].wide || fields[i].narrow;
        if (value < 0 || (*seen & 1u << i) || (whole && (value < 1 || value > 1e15)) ||
            (fields[i].narrow && value > UINT32_MAX))
            return false;
        *seen |= 1u << i;
        if (fields[i].real)
            *fields[i].real = value;
        else if (fields[i].wide)
            *fields[i].wide = (uint64_t)value;
        else
            *fields[i].narrow = (uint32_t)value;
        return true;
    }
    return false;
}

bool step_model_read(struct step_model *model, const char *path, struct err *err)
{
    struct field fields[FIELDS];
    FILE *file = fopen(path, "r");
    char line[200], key[64];
    double value;
    uint32_t seen = 0;
    bool ok = true;

    if (!file)
        return err_set(err, ERR_REJECT, "step model %s: %s", path, strerror(errno));
    *model = (struct step_model){0};
    list_fields(model, fields);
    snprintf(model->name, sizeof model->name, "fitted");
    for (unsigned number = 1; ok && fgets(line, sizeof line, file); number++) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (sscanf(line, "%63[a-z_]=%lf", key, &value) != 2 || !isfinite(value) ||
            !set_field(fields, key, value, &seen))
            ok = err_set(err, ERR_REJECT,
                         "step model %s, line %u: expected one of its keys once, as key=number",
                         path, number);
    }
    if (ok && seen != (1u << FIELDS) - 1)
        ok = err_set(err, ERR_REJECT, "step model %s: a key is missing (first: %s)", path,
                     fields[__builtin_ctz(~seen)].name);
    fclose(file);
    return ok;
}

bool step_model_write(const struct step_model *model, const char *path, struct err *err)
{
    struct step_model copy = *model;
    struct field fields[FIELDS];
    FILE *file = fopen(path, "w");

    if (!file)
        return err_set(err, ERR_REJECT, "step model %s: %s", path, strerror(errno));
    list_fields(&copy, fields);
    for (int i = 0; i < FIELDS; i++)
        fprintf(file, "%s=%.9g\n", fields[i].name,
                fields[i].real   ? *fields[i].real
                : fields[i].wide ? (double)*fields[i].wide
                                 : (double)*fields[i].narrow);
    if (fclose(file) != 0)
        return err_set(err, ERR_REJECT, "step model %s: %s", path, strerror(errno));
    return true;
}

/* Solve the normal equations of the terms in mask; false when they are singular. */
static bool solve(double a[TERMS][TERMS], const double b[TERMS], unsigned mask, double x[TERMS])
{
    double m[TERMS][TERMS + 1];
    int index[TERMS], n = 0;

    for (int i = 0; i < TERMS; i++)
        if (mask & 1u << i)
            index[n++] = i;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++)
            m[i][j] = a[index[i]][index[j]];
        m[i][n] = b[index[i]];
    }
    for (int k = 0; k < n; k++) {
        if (m[k][k] <= 1e-9 * a[index[k]][index[k]])
            return false;
        for (int i = 0; i < n; i++) {
            double factor = m[i][k] / m[k][k];
            for (int j = k; i != k && j <= n; j++)
                m[i][j] -= factor * m[k][j];
        }
    }
    memset(x, 0, TERMS * sizeof *x);
    for (int k = 0; k < n; k++)
        x[index[k]] = m[k][n] / m[k][k];
    return true;
}

/* The terms of a sample over its weight, so that the fit is of relative errors. */
static void terms_of(const struct step_model *model, const struct step_sample *sample,
                     double weight_us, double terms[TERMS])
{
    double spread = 1 + model->expert_share * (sample->shape.imbalance - 1);

    terms[0] = 1 / weight_us;
    terms[1] = sample->shape.decode_rows * spread / weight_us;
    terms[2] = sample->shape.prefill_rows * spread / weight_us;
    terms[3] = (double)sample->shape.kv_tokens / weight_us;
}

static double squared_error(double a[TERMS][TERMS], const double b[TERMS], const double x[TERMS],
                            double squares)
{
    double error = squares;

    for (int i = 0; i < TERMS; i++) {
        error -= 2 * b[i] * x[i];
        for (int j = 0; j < TERMS; j++)
            error += x[i] * a[i][j] * x[j];
    }
    return error;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static bool median_error(const struct step_model *model, const struct step_sample *samples,
                         size_t count, double *error, struct err *err)
{
    double *errors = calloc(count, sizeof *errors);

    if (!errors)
        return err_set(err, ERR_FATAL, "step model: out of memory for %zu samples", count);
    for (size_t s = 0; s < count; s++)
        errors[s] = fabs(step_model_us(model, &samples[s].shape) - samples[s].us) / samples[s].us;
    qsort(errors, count, sizeof *errors, ascending);
    *error = errors[count / 2];
    free(errors);
    return true;
}

/* One least-squares fit, errors relative to what the model says now; at first, when it says
 * nothing, to the samples themselves. */
static bool fit_once(struct step_model *model, const struct step_sample *samples, size_t count,
                     bool first)
{
    double a[TERMS][TERMS] = {{0}}, b[TERMS] = {0}, x[TERMS], best[TERMS] = {0};
    double best_error = INFINITY, squares = 0;

    for (size_t s = 0; s < count; s++) {
        double terms[TERMS];
        double weight_us = first ? samples[s].us : step_model_us(model, &samples[s].shape);
        double target = samples[s].us / weight_us;
        terms_of(model, &samples[s], weight_us, terms);
        squares += target * target;
        for (int i = 0; i < TERMS; i++) {
            b[i] += terms[i] * target;
            for (int j = 0; j < TERMS; j++)
                a[i][j] += terms[i] * terms[j];
        }
    }
    /* Four terms: the non-negative optimum is one of fifteen subsets, so try them all. */
    for (unsigned mask = 1; mask < 1u << TERMS; mask++) {
        if (!solve(a, b, mask, x) || x[0] < 0 || x[1] < 0 || x[2] < 0 || x[3] < 0)
            continue;
        double e = squared_error(a, b, x, squares);
        if (e < best_error) {
            best_error = e;
            memcpy(best, x, sizeof best);
        }
    }
    if (!isfinite(best_error))
        return false;
    model->fixed_us = best[0];
    model->decode_us = best[1];
    model->prefill_us = best[2];
    model->kv_us = best[3];
    return true;
}

bool step_model_fit(struct step_model *model, const struct step_sample *samples, size_t count,
                    double *error, struct err *err)
{
    bool ok = true;

    if (count < SAMPLES_MIN)
        return err_set(err, ERR_REJECT, "step model: %zu samples, at least %d are needed", count,
                       SAMPLES_MIN);
    /* Errors relative to the samples favour fast ones: a job of noisy steps came out 8 % too short.
     * Relative to the model they do not; it settles after a few rounds. */
    for (int round = 0; ok && round < ROUNDS; round++)
        ok = fit_once(model, samples, count, round == 0);
    if (!ok)
        return err_set(err, ERR_REJECT, "step model: no non-negative fit of these samples");
    return median_error(model, samples, count, error, err);
}
