/* SPDX-License-Identifier: Apache-2.0
 *
 * mla_attention and kv_write: one score by hand, then ragged batches against
 * ref, and bit for bit however a prompt is cut into chunks.
 */
#include "tests/unit/kernels_fixture.h"

enum {
    KV_RANK = 40,
    ROPE_DIM = 6,
    ENTRY = KV_RANK + ROPE_DIM,
    N_HEADS = 19, /* one full task of heads and a rest */
    PAGE_SIZE = 16,
    N_PAGES = 12,
    PAGES_STRIDE = 5,
    PAGE_STRIDE = PAGE_SIZE * ENTRY + 10, /* another layer's part lies between */
    N_SEQS_MAX = 3,
    N_TOKENS_MAX = 70,
};

/* Three sequences in shuffled pages; queries and keys of 70 rows. */
struct scene {
    float *q_latent, *q_rope; /* (N_TOKENS_MAX, N_HEADS, ...) */
    float *latent, *key;      /* (N_TOKENS_MAX, ...) */
    float *out;
    void *cache;
    uint32_t first_row[N_SEQS_MAX], n_rows[N_SEQS_MAX], first_position[N_SEQS_MAX];
    uint32_t pages[N_SEQS_MAX * PAGES_STRIDE];
};

static struct scene scene_open(void)
{
    const uint32_t shuffled[] = {7, 2, 11, 0, 5, 3, 9, 1, 0, 0, 8, 4, 6, 10, 0};
    const size_t cache_size = sizeof(float) * N_PAGES * PAGE_STRIDE;
    uint32_t seed = 11;
    struct scene s = {
        .q_latent = random_floats(N_TOKENS_MAX * N_HEADS * KV_RANK, &seed),
        .q_rope = random_floats(N_TOKENS_MAX * N_HEADS * ROPE_DIM, &seed),
        .latent = random_floats(N_TOKENS_MAX * KV_RANK, &seed),
        .key = random_floats(N_TOKENS_MAX * ROPE_DIM, &seed),
        .out = fixture_alloc(sizeof(float) * N_TOKENS_MAX * N_HEADS * KV_RANK),
        .cache = fixture_alloc(cache_size),
    };

    memset(s.cache, 0xff, cache_size); /* NaN in both formats: what is not written must not count */
    memcpy(s.pages, shuffled, sizeof shuffled);
    return s;
}

static void scene_close(struct scene *s)
{
    free(s->q_latent);
    free(s->q_rope);
    free(s->latent);
    free(s->key);
    free(s->out);
    free(s->cache);
}

static struct ragged scene_batch(const struct scene *s, uint32_t n_seqs)
{
    return (struct ragged){
        .first_row = s->first_row,
        .n_rows = s->n_rows,
        .first_position = s->first_position,
        .pages = s->pages,
        .pages_stride = PAGES_STRIDE,
        .n_seqs = n_seqs,
        .page_size = PAGE_SIZE,
    };
}

/* Writes the keys of the batch and computes it. */
static void scene_run(const struct scene *s, const struct backend *backend, size_t n_threads,
                      enum numerics numerics, uint32_t n_seqs)
{
    const struct kv_write_args write = {
        .batch = scene_batch(s, n_seqs),
        .latent = s->latent,
        .key = s->key,
        .cache = s->cache,
        .latent_stride = KV_RANK,
        .key_stride = ROPE_DIM,
        .page_stride = PAGE_STRIDE,
        .numerics = numerics,
        .kv_rank = KV_RANK,
        .rope_dim = ROPE_DIM,
    };
    const struct mla_attention_args attend = {
        .batch = scene_batch(s, n_seqs),
        .q_latent = s->q_latent,
        .q_rope = s->q_rope,
        .cache = s->cache,
        .out = s->out,
        .q_latent_stride = N_HEADS * KV_RANK,
        .q_rope_stride = N_HEADS * ROPE_DIM,
        .q_rope_head_stride = ROPE_DIM,
        .out_stride = N_HEADS * KV_RANK,
        .page_stride = PAGE_STRIDE,
        .numerics = numerics,
        .n_tokens = N_TOKENS_MAX,
        .n_heads = N_HEADS,
        .kv_rank = KV_RANK,
        .rope_dim = ROPE_DIM,
        .scale = 0.7f,
    };
    struct err err;

    assert_true(backend->kv_write(fixture.streams[n_threads - 1], &write, &err));
    assert_true(backend->mla_attention(fixture.streams[n_threads - 1], &attend, &err));
}

/* Rows in the order of their sequences: 50 tokens of the first, 1 of the second, 19 of the third.
 */
static void scene_one_prompt_each(struct scene *s)
{
    const uint32_t n_rows[] = {50, 1, 19};

    for (uint32_t i = 0; i < N_SEQS_MAX; i++) {
        s->first_row[i] = i == 0 ? 0 : s->first_row[i - 1] + n_rows[i - 1];
        s->n_rows[i] = n_rows[i];
        s->first_position[i] = 0;
    }
}

/* Two keys with scores 0 and ln 3: weights 1/4 and 3/4. */
static void test_by_hand(void **state)
{
    const float latent[] = {1, 0, 5, 0};
    const float key[] = {0, 0, logf(3), 0};
    const float q_latent[] = {0, 0, 0, 0};
    const float q_rope[] = {9, 9, 2, 0};
    const uint32_t zero = 0, two = 2;
    float cache[16 * 4], out[4];
    const struct ragged batch = {.first_row = &zero,
                                 .n_rows = &two,
                                 .first_position = &zero,
                                 .pages = &zero,
                                 .pages_stride = 1,
                                 .n_seqs = 1,
                                 .page_size = 16};
    struct err err;

    (void)state;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
        assert_true(backend->kv_write(fixture.streams[0],
                                      &(struct kv_write_args){.batch = batch,
                                                              .latent = latent,
                                                              .key = key,
                                                              .cache = cache,
                                                              .latent_stride = 2,
                                                              .key_stride = 2,
                                                              .page_stride = 64,
                                                              .kv_rank = 2,
                                                              .rope_dim = 2},
                                      &err));
        assert_true(same_bits(cache, (float[]){1, 0, 0, 0, 5, 0, logf(3), 0}, 8));
        assert_true(backend->mla_attention(fixture.streams[0],
                                           &(struct mla_attention_args){.batch = batch,
                                                                        .q_latent = q_latent,
                                                                        .q_rope = q_rope,
                                                                        .cache = cache,
                                                                        .out = out,
                                                                        .q_latent_stride = 2,
                                                                        .q_rope_stride = 2,
                                                                        .q_rope_head_stride = 2,
                                                                        .out_stride = 2,
                                                                        .page_stride = 64,
                                                                        .n_tokens = 2,
                                                                        .n_heads = 1,
                                                                        .kv_rank = 2,
                                                                        .rope_dim = 2,
                                                                        .scale = 0.5f},
                                           &err));
        assert_true(all_close(out, (float[]){1, 0, 4, 0}, 4, 1e-6f));
    }
}

static void test_agrees_with_ref(void **state)
{
    const size_t n = N_TOKENS_MAX * N_HEADS * KV_RANK;

    (void)state;
    for (int numerics = NUMERICS_F32; numerics <= NUMERICS_BF16; numerics++) {
        struct scene expected = scene_open();
        scene_one_prompt_each(&expected);
        scene_run(&expected, fixture.ref, 1, (enum numerics)numerics, 3);
        for (size_t i = 0; i < fixture.n_fast; i++) {
            struct scene s = scene_open();
            scene_one_prompt_each(&s);
            scene_run(&s, fixture.fast[i], 2, (enum numerics)numerics, 3);
            assert_true(all_close(s.out, expected.out, n, 1e-5f));
            scene_close(&s);
        }
        scene_close(&expected);
    }
}

/* The first prompt in chunks of every length, one chunk at a time, on 1 to 3 threads. */
static void check_chunks(const struct backend *backend, enum numerics numerics, uint32_t chunk)
{
    struct scene whole = scene_open();
    struct scene cut = scene_open();

    scene_one_prompt_each(&whole);
    scene_run(&whole, backend, 1, numerics, 3);
    for (uint32_t first = 0; first < 50; first += chunk) {
        cut.first_row[0] = first;
        cut.first_position[0] = first;
        cut.n_rows[0] = first + chunk < 50 ? chunk : 50 - first;
        scene_run(&cut, backend, 1 + chunk % 3, numerics, 1);
    }
    assert_true(same_bits(cut.out, whole.out, 50 * N_HEADS * KV_RANK));
    scene_close(&whole);
    scene_close(&cut);
}

static void test_chunks_do_not_show(void **state)
{
    const uint32_t chunks[] = {1, 2, 7, 16, 33, 50};

    (void)state;
    for (size_t i = 0; i < fixture.n_fast; i++)
        for (int numerics = NUMERICS_F32; numerics <= NUMERICS_BF16; numerics++)
            for (size_t k = 0; k < sizeof chunks / sizeof chunks[0]; k++)
                check_chunks(fixture.fast[i], (enum numerics)numerics, chunks[k]);
}

/* A neighbour of nothing but NaN, and one whose scores are all -infinity. */
static void test_neighbours_do_not_leak(void **state)
{
    (void)state;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
        struct scene clean = scene_open();
        struct scene dirty = scene_open();
        scene_one_prompt_each(&clean);
        scene_one_prompt_each(&dirty);
        for (size_t k = 0; k < 50 * KV_RANK; k++)
            dirty.latent[k] = NAN; /* all keys of the first sequence */
        for (size_t k = 50 * N_HEADS * KV_RANK; k < 51 * N_HEADS * KV_RANK; k++)
            dirty.q_latent[k] = 0;
        for (size_t k = 50 * N_HEADS * ROPE_DIM; k < 51 * N_HEADS * ROPE_DIM; k++)
            dirty.q_rope[k] = -INFINITY; /* the query of the second, whose key is positive */
        for (size_t k = 50 * ROPE_DIM; k < 51 * ROPE_DIM; k++)
            dirty.key[k] = 1;
        scene_run(&clean, backend, 1, NUMERICS_F32, 3);
        scene_run(&dirty, backend, 2, NUMERICS_F32, 3);
        for (size_t k = 50 * N_HEADS * KV_RANK; k < 51 * N_HEADS * KV_RANK; k++)
            assert_true(dirty.out[k] == 0);
        assert_true(same_bits(dirty.out + 51 * N_HEADS * KV_RANK,
                              clean.out + 51 * N_HEADS * KV_RANK, 19 * N_HEADS * KV_RANK));
        scene_close(&clean);
        scene_close(&dirty);
    }
}

static void test_same_id_same_bits(void **state)
{
    const size_t n = N_TOKENS_MAX * N_HEADS * KV_RANK;

    (void)state;
    for (int numerics = NUMERICS_F32; numerics <= NUMERICS_BF16; numerics++) {
        struct scene first = scene_open();
        scene_one_prompt_each(&first);
        if (fixture.n_fast > 0)
            scene_run(&first, fixture.fast[0], 1, (enum numerics)numerics, 3);
        for (size_t i = 1; i < fixture.n_fast; i++) {
            struct scene other = scene_open();
            scene_one_prompt_each(&other);
            scene_run(&other, fixture.fast[i], 1, (enum numerics)numerics, 3);
            if (strcmp(fixture.fast[0]->numerics_id[numerics],
                       fixture.fast[i]->numerics_id[numerics]) == 0)
                assert_true(same_bits(first.out, other.out, n));
            scene_close(&other);
        }
        scene_close(&first);
    }
}

static void test_empty_batch(void **state)
{
    struct scene s = scene_open();

    (void)state;
    s.out[0] = 3;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
        scene_run(&s, backend, 1, NUMERICS_F32, 0); /* no sequence */
        scene_run(&s, backend, 1, NUMERICS_F32, 3); /* three without rows */
        assert_true(s.out[0] == 3);
    }
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_agrees_with_ref),
        cmocka_unit_test(test_chunks_do_not_show),
        cmocka_unit_test(test_neighbours_do_not_leak),
        cmocka_unit_test(test_same_id_same_bits),
        cmocka_unit_test(test_empty_batch),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
