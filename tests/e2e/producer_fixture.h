/* SPDX-License-Identifier: Apache-2.0
 *
 * producer_fixture - the program `pelton` (PELTON_BINARY) on the broker that PELTON_BOOTSTRAP
 * names.
 *
 * The scheduler's part is played by the tests: requests are read, and results, some twice, and
 * token chunks are written, with the real codec.
 */
#ifndef TESTS_E2E_PRODUCER_FIXTURE_H
#define TESTS_E2E_PRODUCER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include "common/clock.h"
#include "common/kafka.h"
#include "common/kafka_admin.h"
#include "common/topics.h"
#include "schemas/codec.h"

enum { TIMEOUT_MS = 20000, REQUESTS_MAX = 64 };

static const char *brokers;
static char prefix[40];
static char folder[] = "/tmp/test_producer_XXXXXX";
static rd_kafka_t *reader, *producer;
static struct codec *codec;
static struct err err;
static char output[1 << 16]; /* of the last pelton() */

static inline void assert_ok(bool ok)
{
    if (!ok)
        fail_msg("%s", err.message);
}

static inline int shell(const char *command)
{
    FILE *pipe = popen(command, "r");
    size_t size;
    int status;

    assert_non_null(pipe);
    size = fread(output, 1, sizeof output - 1, pipe);
    output[size] = '\0';
    status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Runs pelton COMMAND ... in the folder; returns its exit code, output has both streams. */
__attribute__((format(printf, 1, 2))) static inline int pelton(const char *format, ...)
{
    char arguments[1000], command[1500];
    va_list args;

    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    snprintf(command, sizeof command,
             "cd %s && timeout 60 %s %s --brokers %s --topic-prefix %s 2>&1", folder, PELTON_BINARY,
             arguments, brokers, prefix);
    return shell(command);
}

static inline void assert_says(const char *text)
{
    if (!strstr(output, text))
        fail_msg("expected \"%s\" in:\n%s", text, output);
}

static inline void write_file(const char *name, const char *text)
{
    char path[100];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static inline int setup(void **state)
{
    const struct kafka_options options = {.brokers = brokers, .client_id = "test"};
    uint8_t run[6];
    char hex[13];

    (void)state;
    random_bytes(run, sizeof run);
    hex_format(run, sizeof run, hex);
    snprintf(prefix, sizeof prefix, "test-%s.", hex);
    assert_non_null(mkdtemp(folder));
    assert_ok(codec_open(&codec, &err));
    assert_ok(kafka_open(&reader, KAFKA_READER, &options, &err));
    assert_ok(kafka_open(&producer, KAFKA_PRODUCER, &options, &err));
    return 0;
}

static inline int teardown(void **state)
{
    char command[100];

    (void)state;
    kafka_close(producer, 1000);
    kafka_close(reader, 0);
    codec_close(codec);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static inline void topic_of(enum topic topic, char name[TOPIC_NAME_SIZE_MAX])
{
    topic_name(name, prefix, topic);
}

static inline void put(enum topic topic, const struct record *record)
{
    struct buffer buffer = {0};
    char name[TOPIC_NAME_SIZE_MAX], key[STATE_KEY_SIZE_MAX];
    struct kafka_message message;

    topic_of(topic, name);
    assert_ok(codec_encode(codec, record, &buffer, &err));
    message = (struct kafka_message){.topic = name,
                                     .partition = RD_KAFKA_PARTITION_UA,
                                     .value = buffer.data,
                                     .value_size = buffer.size};
    if (topic == TOPIC_CONTROL) { /* compacted: nothing without a key */
        message.key = key;
        message.key_size = state_key(record, key);
    }
    assert_ok(kafka_prepare(producer, name, TIMEOUT_MS, &err));
    assert_ok(kafka_produce_wait(producer, &message, TIMEOUT_MS, &err));
    assert_ok(kafka_flush(producer, TIMEOUT_MS, &err));
    buffer_free(&buffer);
}

struct requests {
    struct record *items[REQUESTS_MAX];
    size_t count;
};

static inline bool keep(void *context, const rd_kafka_message_t *message, struct err *why)
{
    struct requests *requests = context;

    CHECK(requests->count < REQUESTS_MAX);
    return codec_decode(codec, message->payload, message->len, &requests->items[requests->count++],
                        why);
}

static inline void read_requests(enum topic topic, struct requests *requests)
{
    char name[TOPIC_NAME_SIZE_MAX];
    struct kafka_range range = {
        .from = {name, 0, 0}, .timeout_ms = TIMEOUT_MS, .visit = keep, .context = requests};
    int32_t count;

    topic_of(topic, name);
    *requests = (struct requests){.count = 0};
    assert_ok(kafka_partition_count(reader, name, TIMEOUT_MS, &count, &err));
    for (range.from.partition = 0; range.from.partition < count; range.from.partition++)
        assert_ok(kafka_read_to_end(reader, &range, NULL, &err));
}

static inline void free_requests(struct requests *requests)
{
    for (size_t i = 0; i < requests->count; i++)
        record_free(requests->items[i]);
}

static inline struct request request_of(const char *tenant, const char *batch_id,
                                        const char *custom_id)
{
    struct request request = {.tenant = str_from(tenant),
                              .batch_id = str_from(batch_id),
                              .custom_id = str_from(custom_id)};

    request_id_make(request.tenant, request.batch_id, request.custom_id, &request.request_id);
    return request;
}

/* The first chunk, one id, of its first attempt; id and end outlive it. */
static inline struct record chunk_of(const struct request *request, const char *text, int32_t *id,
                                     int32_t *end)
{
    *id = 0;
    *end = (int32_t)strlen(text);
    return (struct record){.type = RECORD_TOKEN_CHUNK,
                           .u.token_chunk = {.request_id = request->request_id,
                                             .batch_id = request->batch_id,
                                             .custom_id = request->custom_id,
                                             .attempt = 1,
                                             .ids = {id, 1},
                                             .text = str_from(text),
                                             .text_ends = {end, 1}}};
}

static inline struct record result_of(const struct request *request)
{
    return (struct record){.type = RECORD_RESULT,
                           .u.result = {.request_id = request->request_id,
                                        .tenant = request->tenant,
                                        .batch_id = request->batch_id,
                                        .custom_id = request->custom_id,
                                        .model = request->model,
                                        .text = str_from("one\ntwo"),
                                        .finish_reason = FINISH_STOP,
                                        .usage = {.prompt_tokens_uncached = 3, .output_tokens = 4},
                                        .finished_ms = clock_wall_ms()}};
}

static inline size_t count_lines(const char *name, const char *member)
{
    char path[100], line[8192];
    size_t count = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "rb");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_t *root = json_loads(line, 0, NULL);
        assert_non_null(root);
        assert_true(json_is_object(json_object_get(root, member)));
        json_decref(root);
        count++;
    }
    fclose(file);
    return count;
}

#define LINE(id)                                                                                   \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":"     \
    "{\"model\":\"demo\", \"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}}\n"

static inline bool has_broker(void)
{
    brokers = getenv("PELTON_BOOTSTRAP");
    if (!brokers)
        puts("skipped: PELTON_BOOTSTRAP names no broker");
    return brokers != NULL;
}

#endif
