/* SPDX-License-Identifier: Apache-2.0
 *
 * How many records a second the codec does on one core: bench_codec [COUNT]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/check.h"
#include "common/clock.h"
#include "schemas/codec.h"

static void measure(struct codec *codec, const struct record *record, int64_t count)
{
    struct buffer out = {0};
    struct record *decoded;
    struct err err;
    int64_t start = clock_mono_us(), middle, end;

    for (int64_t i = 0; i < count; i++)
        CHECK(codec_encode(codec, record, &out, &err));
    middle = clock_mono_us();
    for (int64_t i = 0; i < count; i++) {
        CHECK(codec_decode(codec, out.data, out.size, &decoded, &err));
        record_free(decoded);
    }
    end = clock_mono_us();
    printf("%-12s %6zu bytes: encode %9.0f/s, decode %9.0f/s\n", record_type_name(record->type),
           out.size, (double)count * 1e6 / (double)(middle - start),
           (double)count * 1e6 / (double)(end - middle));
    buffer_free(&out);
}

int main(int argc, char **argv)
{
    int64_t count = argc > 1 ? atoll(argv[1]) : 300000;
    bool help = argc > 1 && strcmp(argv[1], "--help") == 0;
    char body[250];
    int32_t ids[64] = {0};
    struct record request = {.type = RECORD_REQUEST};
    struct record done = {.type = RECORD_DONE};
    struct record progress = {.type = RECORD_PROGRESS};
    struct codec *codec;
    struct err err;

    if (help || count < 1) {
        fprintf(help ? stdout : stderr, "usage: bench_codec [RECORDS]\n"
                                        "Records written and read a second (300000 of a kind).\n");
        return help ? EX_OK : EX_USAGE;
    }
    memset(body, 'x', sizeof body);
    for (int i = 0; i < 64; i++)
        ids[i] = 100 * i;
    request.u.request = (struct request){.tenant = str_from("tenant-a"),
                                         .batch_id = str_from("batch-1"),
                                         .custom_id = str_from("request-000001"),
                                         .model = str_from("demo"),
                                         .body = {body, sizeof body},
                                         .submitted_ms = clock_wall_ms()};
    done.u.done = (struct done){.text = {body, sizeof body}, .ids = {ids, 64}};
    progress.u.progress = (struct progress){.ids = {ids, 8}};
    CHECK(codec_open(&codec, &err));
    measure(codec, &request, count);
    measure(codec, &done, count);
    measure(codec, &progress, count);
    codec_close(codec);
    return 0;
}
