/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors on files small enough to write by hand: what a right one says,
 * and for every rule a file that breaks just that one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/safetensors.h"

enum { FILE_SIZE_MAX = 8192 };

/* A file of this header, padded to 8 bytes with spaces as writers do, and data_size bytes that
 * count up from 0. */
static size_t make(unsigned char *bytes, const char *header, size_t data_size)
{
    const size_t length = (strlen(header) + 7) / 8 * 8;

    memset(bytes, 0, FILE_SIZE_MAX);
    bytes[0] = (unsigned char)(length & 255);
    bytes[1] = (unsigned char)(length >> 8);
    memset(bytes + 8, ' ', length);
    memcpy(bytes + 8, header, strlen(header));
    for (size_t i = 0; i < data_size; i++)
        bytes[8 + length + i] = (unsigned char)i;
    return 8 + length + data_size;
}

static void test_finds_tensors(void **state)
{
    static unsigned char bytes[FILE_SIZE_MAX];
    const size_t size =
        make(bytes,
             "{\"__metadata__\":{\"format\":\"pt\"},"
             "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
             "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
             "\"none\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[16,16]}}",
             16);
    struct safetensors *file;
    const struct tensor *tensor;
    struct err err;
    size_t count;

    (void)state;
    assert_true(safetensors_parse(&file, "x", bytes, size, &err));
    tensor = safetensors_tensors(file, &count);
    assert_int_equal(count, 3);
    assert_string_equal(tensor[0].name, "a");
    tensor = safetensors_find(file, "b");
    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, TENSOR_BF16);
    assert_int_equal(tensor->dim_count, 2);
    assert_int_equal(tensor->dims[0], 2);
    assert_int_equal(tensor->dims[1], 3);
    assert_int_equal(tensor->size, 12);
    assert_int_equal(*(const unsigned char *)tensor->data, 4);
    assert_int_equal(safetensors_find(file, "a")->dim_count, 0);
    assert_int_equal(safetensors_find(file, "none")->size, 0);
    assert_null(safetensors_find(file, "c"));
    safetensors_close(file);
}

static void refuse(const char *header, size_t data_size, const char *words)
{
    static unsigned char bytes[FILE_SIZE_MAX];
    const size_t size = make(bytes, header, data_size);
    struct safetensors *file;
    struct err err;

    if (safetensors_parse(&file, "bad.safetensors", bytes, size, &err))
        fail_msg("accepted: %s", header);
    assert_int_equal(err.kind, ERR_REJECT);
    assert_non_null(strstr(err.message, "bad.safetensors"));
    if (!strstr(err.message, words))
        fail_msg("%s: said \"%s\", expected \"%s\"", header, err.message, words);
}

#define A(dtype, shape, offsets)                                                                   \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define A_AND_B(a_offsets, b_offsets)                                                              \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" a_offsets "},"                      \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" b_offsets "}}"

static void test_refuses_broken_tensors(void **state)
{
    (void)state;
    refuse(A("F31", "[1]", "[0,4]"), 4, "tensor a: its dtype");
    refuse(A("F32", "[-1]", "[0,4]"), 4, "tensor a: its shape");
    refuse(A("F32", "[1.0]", "[0,4]"), 4, "tensor a: its shape");
    refuse(A("F32", "7", "[0,4]"), 4, "tensor a: its shape");
    refuse(A("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "tensor a: its shape");
    /* 2^32 * 2^32 * 4 wraps to 0, 2^62 * 4 too. */
    refuse(A("F32", "[4294967296,4294967296]", "[0,0]"), 0, "tensor a: its shape");
    refuse(A("F32", "[4611686018427387904]", "[0,0]"), 0, "tensor a: its shape");
    refuse(A("F32", "[1]", "[0]"), 4, "tensor a: its data_offsets");
    refuse(A("F32", "[1]", "[0,\"4\"]"), 4, "tensor a: its data_offsets");
    refuse(A("F32", "[1]", "[0,4]"), 3, "outside the file");
    refuse(A("F32", "[1]", "[-4,0]"), 4, "outside the file");
    refuse(A("F32", "[1]", "[4,0]"), 4, "outside the file");
    refuse(A("F32", "[1]", "[0,9223372036854775807]"), 4, "outside the file");
    refuse(A("F32", "[2]", "[0,4]"), 4, "not its shape");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
           6, "tensor b: its data is not aligned");
    refuse("{\"a\":7}", 0, "tensor a: its entry");
}

static void test_refuses_bad_tiling(void **state)
{
    (void)state;
    refuse(A_AND_B("[0,4]", "[2,6]"), 6, "overlaps");
    refuse(A_AND_B("[0,4]", "[0,4]"), 4, "overlaps");
    refuse(A_AND_B("[0,4]", "[5,9]"), 9, "unused bytes");
    refuse(A_AND_B("[1,5]", "[5,9]"), 9, "unused bytes");
    refuse(A_AND_B("[0,4]", "[4,8]"), 9, "1 bytes after the last tensor");
}

static void test_refuses_bad_headers(void **state)
{
    const unsigned char huge[16] = {0, 0, 0, 0, 0, 0, 0, 128, '{', '}'};
    struct safetensors *file;
    struct err err;

    (void)state;
    refuse("[]", 0, "not a JSON object");
    refuse("{\"a\":", 0, "not a JSON object");
    refuse("{} x", 0, "not a JSON object");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
           "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
           0, "duplicate");
    assert_false(safetensors_parse(&file, "x", huge, sizeof huge, &err));
    assert_non_null(strstr(err.message, "header of 9223372036854775808 bytes"));
    assert_false(safetensors_parse(&file, "x", huge, 7, &err));
    assert_non_null(strstr(err.message, "too few"));
}

static void test_opens_files(void **state)
{
    struct safetensors *file;
    struct err err;
    size_t size;

    (void)state;
    assert_true(safetensors_open(&file, "ops/demo/model/model.safetensors", &err));
    assert_int_equal(safetensors_find(file, "model.norm.weight")->size, 384);
    assert_int_equal(*(const char *)safetensors_header(file, &size), '{');
    assert_int_equal(size, 22720);
    safetensors_close(file);

    assert_false(safetensors_open(&file, "ops/demo/model/absent", &err));
    assert_non_null(strstr(err.message, "No such file"));
    assert_false(safetensors_open(&file, "ops/demo/model", &err));
    assert_non_null(strstr(err.message, "not a safetensors file"));
    assert_false(safetensors_open(&file, "ops/demo/model/config.json", &err));
    assert_non_null(strstr(err.message, "header of"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_tensors),      cmocka_unit_test(test_refuses_broken_tensors),
        cmocka_unit_test(test_refuses_bad_tiling), cmocka_unit_test(test_refuses_bad_headers),
        cmocka_unit_test(test_opens_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
