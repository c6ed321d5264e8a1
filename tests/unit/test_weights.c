/* SPDX-License-Identifier: Apache-2.0
 *
 * Model directories written for the test: one file and several, every type,
 * and what must be refused.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker/weights.h"

static char dir[] = "/tmp/test_weights_XXXXXX";

static void write_file(const char *name, const void *bytes, size_t size)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void remove_file(const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

/* A file of one tensor. */
static void write_tensor(const char *file, const char *tensor, const char *dtype, const char *shape,
                         const void *data, size_t size)
{
    unsigned char bytes[1024] = {0};
    char header[512];
    int length;

    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%zu]}}", tensor, dtype,
             shape, size);
    length = snprintf((char *)bytes + 8, 512, "%-256s", header);
    bytes[0] = (unsigned char)(length & 255);
    bytes[1] = (unsigned char)(length >> 8);
    memcpy(bytes + 8 + length, data, size);
    write_file(file, bytes, 8 + (size_t)length + size);
}

static void test_f16_is_widened(void **state)
{
    /* 1, -2, the smallest subnormal, the largest normal, infinity, -0 */
    const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x8000};
    struct weights *weights;
    struct weight weight;
    struct err err;
    const float *floats;

    (void)state;
    write_tensor("model.safetensors", "a", "F16", "[2,3]", halves, sizeof halves);
    assert_true(weights_open(&weights, dir, &err));
    assert_true(weights_find(weights, "a", 2, 3, &weight, &err));
    assert_int_equal(weight.dtype, DTYPE_F32);
    floats = weight.data;
    assert_true(floats[0] == 1);
    assert_true(floats[1] == -2);
    assert_true(floats[2] == 0x1p-24f);
    assert_true(floats[3] == 65504);
    assert_true(isinf(floats[4]) && floats[4] > 0);
    assert_true(floats[5] == 0 && signbit(floats[5]));
    weights_close(weights);
}

static void test_bf16_stays_and_widens_on_demand(void **state)
{
    const uint16_t values[] = {0x3f80, 0xc040}; /* 1, -3 */
    const uint32_t order[] = {1, 0};
    struct weights *weights;
    struct weight weight;
    const float *floats;
    struct err err;

    (void)state;
    write_tensor("model.safetensors", "a", "BF16", "[2]", values, sizeof values);
    assert_true(weights_open(&weights, dir, &err));
    assert_int_equal(weights_size(weights), 4);
    assert_true(weights_find(weights, "a", 2, 0, &weight, &err));
    assert_int_equal(weight.dtype, DTYPE_BF16);
    assert_memory_equal(weight.data, values, sizeof values);
    assert_true(weights_find_floats(weights, "a", 2, &floats, &err));
    assert_true(floats[0] == 1 && floats[1] == -3);
    assert_true(weights_reorder_rows(weights, order, 2, 1, &weight, &err));
    assert_int_equal(((const uint16_t *)weight.data)[0], 0xc040);
    assert_int_equal(((const uint16_t *)weight.data)[1], 0x3f80);
    weights_close(weights);
}

static void test_refuses_other_tensors(void **state)
{
    const char bytes[4] = {0};
    struct weights *weights;
    struct weight weight;
    struct err err;

    (void)state;
    write_tensor("model.safetensors", "a", "I8", "[2,2]", bytes, sizeof bytes);
    assert_true(weights_open(&weights, dir, &err));
    assert_false(weights_find(weights, "b", 2, 2, &weight, &err));
    assert_non_null(strstr(err.message, "tensor b is missing"));
    assert_false(weights_find(weights, "a", 2, 3, &weight, &err));
    assert_non_null(strstr(err.message, "expected (2, 3)"));
    assert_false(weights_find(weights, "a", 4, 0, &weight, &err));
    assert_non_null(strstr(err.message, "expected (4)"));
    assert_false(weights_find(weights, "a", 2, 2, &weight, &err));
    assert_non_null(strstr(err.message, "tensor a: I8 is not supported"));
    assert_non_null(strstr(err.message, "model.safetensors"));
    weights_close(weights);
    remove_file("model.safetensors");
    assert_false(weights_open(&weights, dir, &err));
    assert_non_null(strstr(err.message, "model.safetensors: No such file"));
}

static void write_index(const char *text)
{
    write_file("model.safetensors.index.json", text, strlen(text));
}

static void refuse_index(const char *text, const char *words)
{
    struct weights *weights;
    struct err err;

    write_index(text);
    assert_false(weights_open(&weights, dir, &err));
    if (!strstr(err.message, words))
        fail_msg("%s: said \"%s\"", text, err.message);
}

static void test_several_files(void **state)
{
    const float one[] = {1};
    const float two[] = {2};
    struct weights *weights;
    const float *floats;
    struct err err;

    (void)state;
    write_tensor("m-1.safetensors", "a", "F32", "[1]", one, sizeof one);
    write_tensor("m-2.safetensors", "b", "F32", "[1]", two, sizeof two);
    write_index("{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}}");
    assert_true(weights_open(&weights, dir, &err));
    assert_true(weights_find_floats(weights, "b", 1, &floats, &err));
    assert_true(floats[0] == 2);
    assert_int_equal(weights_size(weights), 8);
    weights_close(weights);

    refuse_index("{\"weight_map\":{\"a\":\"m-2.safetensors\"}}", "tensor a is not in m-2");
    refuse_index("{\"weight_map\":{\"a\":\"m-3.safetensors\"}}", "m-3.safetensors: No such file");
    refuse_index("{\"weight_map\":{\"a\":\"../m-1.safetensors\"}}", "not a plain name");
    refuse_index("{\"weight_map\":{\"a\":7}}", "not a plain name");
    refuse_index("{\"weight_map\":{}}", "no weight_map");
    refuse_index("{", "no weight_map");
    remove_file("m-1.safetensors");
    remove_file("m-2.safetensors");
    remove_file("model.safetensors.index.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_is_widened),
        cmocka_unit_test(test_bf16_stays_and_widens_on_demand),
        cmocka_unit_test(test_refuses_other_tensors),
        cmocka_unit_test(test_several_files),
    };
    int failed;

    if (!mkdtemp(dir))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(dir);
    return failed;
}
