/* SPDX-License-Identifier: Apache-2.0
 *
 * ragged - the tokens of one step: several sequences one after another, and
 * where their keys lie in the paged cache.
 *
 * Decode rows (n_rows 1) and prefill chunks mix freely. The token in row
 * first_row[s] + i has position first_position[s] + i in its sequence; its
 * cache entry is slot position % page_size of page
 * pages[s * pages_stride + position / page_size].
 */
#ifndef KERNELS_RAGGED_H
#define KERNELS_RAGGED_H

#include <stddef.h>
#include <stdint.h>

struct ragged {
    const uint32_t *first_row;      /* (n_seqs) */
    const uint32_t *n_rows;         /* (n_seqs), 0 is allowed */
    const uint32_t *first_position; /* (n_seqs) */
    const uint32_t *pages;          /* (n_seqs, pages_stride) */
    size_t pages_stride;            /* in elements */
    uint32_t n_seqs;                /* 0 is allowed */
    uint32_t page_size;             /* tokens in a page, a multiple of 16 */
};

#endif
