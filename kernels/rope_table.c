/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "common/check.h"
#include "kernels/rope.h"

static const double two_pi = 6.283185307179586;

static double mscale_of(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* The index of the pair that turns n_rotations times within the original context. */
static double correction_dim(const struct rope_config *config, double n_rotations)
{
    return config->dim * log(config->original_max_position_embeddings / (n_rotations * two_pi)) /
           (2 * log(config->theta));
}

/* 1 for pairs that turn often (kept), 0 for those that turn seldom (interpolated). */
static float extrapolation_share(const struct rope_config *config, uint32_t pair)
{
    double low = floor(correction_dim(config, config->beta_fast));
    double high = ceil(correction_dim(config, config->beta_slow));

    low = low > 0 ? low : 0;
    high = high < config->dim - 1 ? high : config->dim - 1;
    if (low == high)
        high += 0.001; /* as transformers does, against the division by zero */

    float ramp = ((float)pair - (float)low) / (float)(high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return 1 - ramp;
}

static float inv_freq(const struct rope_config *config, uint32_t pair)
{
    const float exponent = (float)(2 * pair) / (float)config->dim;
    const float freq = (float)pow(config->theta, exponent);

    if (!config->yarn)
        return 1 / freq;

    const float share = extrapolation_share(config, pair);
    return 1 / ((float)config->factor * freq) * (1 - share) + 1 / freq * share;
}

double rope_attention_factor(const struct rope_config *config)
{
    if (!config->yarn)
        return 1;
    if (config->attention_factor > 0)
        return config->attention_factor;
    if (config->mscale > 0 && config->mscale_all_dim > 0)
        return mscale_of(config->factor, config->mscale) /
               mscale_of(config->factor, config->mscale_all_dim);
    return mscale_of(config->factor, 1);
}

double rope_softmax_factor(const struct rope_config *config)
{
    if (!config->yarn || config->mscale_all_dim <= 0)
        return 1;

    const double mscale = mscale_of(config->factor, config->mscale_all_dim);
    return mscale * mscale;
}

void rope_table_build(const struct rope_config *config, uint32_t n_positions, float *table)
{
    const uint32_t n_pairs = config->dim / 2;
    const float factor = (float)rope_attention_factor(config);

    CHECK(config->dim % 2 == 0);
    for (uint32_t pair = 0; pair < n_pairs; pair++) {
        const float freq = inv_freq(config, pair);
        for (uint32_t position = 0; position < n_positions; position++) {
            float *row = table + (size_t)position * config->dim;
            const float angle = (float)position * freq;
            row[pair] = (float)cos(angle) * factor;
            row[n_pairs + pair] = (float)sin(angle) * factor;
        }
    }
}
