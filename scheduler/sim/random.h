/* SPDX-License-Identifier: Apache-2.0
 *
 * random - the simulator's random numbers: the same seed gives the same bytes.
 *
 * SplitMix64 (Steele, Lea, Flood 2014): 64 bits of state, one addition and a
 * mix per number. Good for arrivals and lengths, not for secrets.
 */
#ifndef SCHEDULER_SIM_RANDOM_H
#define SCHEDULER_SIM_RANDOM_H

#include <math.h>
#include <stdint.h>

struct random {
    uint64_t state;
};

static inline uint64_t random_u64(struct random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in (0, 1). */
static inline double random_uniform(struct random *random)
{
    return ((double)(random_u64(random) >> 11) + 0.5) * 0x1p-53;
}

static inline double random_exponential(struct random *random, double mean)
{
    return -mean * log(random_uniform(random));
}

/* Standard normal (Box and Muller 1958; the second number is not kept, so that a stream's position
 * does not depend on who drew before). */
static inline double random_normal(struct random *random)
{
    double radius = sqrt(-2 * log(random_uniform(random)));

    return radius * cos(6.283185307179586 * random_uniform(random));
}

#endif
