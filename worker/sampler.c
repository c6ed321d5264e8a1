/* SPDX-License-Identifier: Apache-2.0
 *
 * Only what is needed gets sorted: candidates form a heap and the best are
 * taken from it until top_k or top_p is met, because a full sort of 129,280
 * ids takes longer than a decode step of a small model.
 */
#include "worker/sampler.h"

#include <math.h>

void sampler_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {key[0], key[1]};

    for (int round = 0; round < 10; round++) {
        uint64_t left = (uint64_t)0xD2511F53u * c[0];
        uint64_t right = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(right >> 32) ^ c[1] ^ k[0], (uint32_t)right,
                            (uint32_t)(left >> 32) ^ c[3] ^ k[1], (uint32_t)left};

        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

/* In [0, 1), 53 random bits. */
static double uniform(uint64_t seed, uint64_t position)
{
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t random[4];

    sampler_philox(counter, key, random);
    return (double)(((uint64_t)random[0] << 21) ^ (random[1] >> 11)) * 0x1p-53;
}

uint64_t sampler_seed(const void *request_id, size_t size)
{
    const unsigned char *bytes = request_id;
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a; Philox does the mixing */

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001B3u;
    return hash;
}

static bool before(struct sampler_candidate a, struct sampler_candidate b)
{
    return a.weight > b.weight || (!(a.weight < b.weight) && a.id < b.id);
}

/* heap[parent] comes before heap[child], for all pairs but those of `at`. */
static void sift_down(struct sampler_candidate *heap, size_t n, size_t at)
{
    struct sampler_candidate moved = heap[at];

    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= n)
            break;
        if (child + 1 < n && before(heap[child + 1], heap[child]))
            child++;
        if (!before(heap[child], moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* The first of the largest numbers above -inf; -1: there is none. Most batch jobs ask for no more,
 * and this thread is the only one that works meanwhile. */
static int32_t greedy(const float *logits, size_t n_vocab)
{
    float best = -INFINITY;
    int32_t found = -1;

    for (size_t id = 0; id < n_vocab; id++) {
        if (logits[id] > best) {
            best = logits[id];
            found = (int32_t)id;
        }
    }
    return found;
}

/* The numbers above -inf, in the order of their ids, weighed against the largest. */
static size_t collect(const float *logits, size_t n_vocab, double largest, double temperature,
                      struct sampler_candidate *out)
{
    size_t n = 0;

    for (size_t id = 0; id < n_vocab; id++)
        if (logits[id] > -INFINITY)
            out[n++] = (struct sampler_candidate){exp(((double)logits[id] - largest) / temperature),
                                                  (int32_t)id};
    return n;
}

/* Move the best of a heap to its end, behind the n - 1 others. */
static struct sampler_candidate pop(struct sampler_candidate *heap, size_t n)
{
    struct sampler_candidate best = heap[0];

    heap[0] = heap[n - 1];
    sift_down(heap, n - 1, 0);
    heap[n - 1] = best;
    return best;
}

/* Leave the candidates that top_k and top_p allow at the end of list (n), the
 * best one last; gives how many. */
static size_t keep_best(const struct sampling *sampling, struct sampler_candidate *list, size_t n)
{
    size_t n_top = sampling->top_k > 0 && sampling->top_k < n ? sampling->top_k : n;
    size_t n_popped = 0, n_kept = 0;
    double total = 0.0, sum = 0.0;

    for (size_t i = 0; i < n && n_top == n; i++)
        total += list[i].weight;
    for (size_t i = n / 2; i-- > 0;)
        sift_down(list, n, i);
    while (n_top < n && n_popped < n_top) {
        total += pop(list, n - n_popped).weight;
        n_popped++;
    }
    while (n_kept < n_top && (n_kept == 0 || sum < (double)sampling->top_p * total)) {
        if (n_kept == n_popped) {
            pop(list, n - n_popped);
            n_popped++;
        }
        n_kept++;
        sum += list[n - n_kept].weight;
    }
    return n_kept;
}

static int32_t draw(const struct sampler_candidate *list, size_t n, double random)
{
    double total = 0.0, sum = 0.0;

    for (size_t i = 0; i < n; i++)
        total += list[i].weight;
    for (size_t i = 0; i < n; i++) {
        sum += list[i].weight;
        if (random * total < sum)
            return list[i].id;
    }
    return list[n - 1].id; /* random * total was rounded up to total */
}

bool sampler_choose(const struct sampling *sampling, uint64_t position, const float *logits,
                    size_t n_vocab, struct sampler_candidate *scratch, int32_t *id, struct err *err)
{
    const int32_t best = greedy(logits, n_vocab);
    size_t n;

    if (best < 0)
        return err_set(err, ERR_REJECT, "position %llu: the model gave no logit that is a number",
                       (unsigned long long)position);
    *id = best;
    if (sampling->temperature <= 0.0f || isinf(logits[best]))
        return true;
    n = collect(logits, n_vocab, (double)logits[best], (double)sampling->temperature, scratch);
    if (sampling->top_k > 0 || sampling->top_p < 1.0f) {
        size_t n_kept = keep_best(sampling, scratch, n);

        scratch += n - n_kept;
        n = n_kept;
    }
    *id = draw(scratch, n, uniform(sampling->seed, position));
    return true;
}
