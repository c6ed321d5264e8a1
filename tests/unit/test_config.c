/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/config.h"

struct values {
    struct config_common common;
    bool dynamic;
    int64_t base;
    int64_t max;
    int64_t window_us;
    double threshold;
    double share;
    int64_t bytes;
    const char *path;
    int policy;
    struct config_list names;
};

static const struct config_key keys[] = {
    CONFIG_COMMON_KEYS(struct values, common),
    {.name = "batch.dynamic",
     .letter = 'd',
     .type = CONFIG_BOOL,
     .offset = offsetof(struct values, dynamic),
     .help = "Dynamic."},
    {.name = "batch.base_size",
     .type = CONFIG_INT,
     .offset = offsetof(struct values, base),
     .default_value = "32",
     .min = 1,
     .max = 128,
     .help = "Base."},
    {.name = "batch.max_size",
     .type = CONFIG_INT,
     .offset = offsetof(struct values, max),
     .default_value = "auto",
     .min = 1,
     .max = 4096,
     .word = "auto",
     .word_value = -1,
     .help = "Max."},
    {.name = "batch.adjust_window",
     .alias = "batch.window",
     .type = CONFIG_DURATION,
     .offset = offsetof(struct values, window_us),
     .default_value = "500ms",
     .min = 1000,
     .max = 60e6,
     .help = "Window."},
    {.name = "threshold",
     .type = CONFIG_DOUBLE,
     .offset = offsetof(struct values, threshold),
     .default_value = "0.8",
     .help = "Threshold."},
    {.name = "cache.l1_size",
     .type = CONFIG_PERCENT,
     .offset = offsetof(struct values, share),
     .max = 1,
     .no_effect = true,
     .help = "Share."},
    {.name = "bytes",
     .type = CONFIG_SIZE,
     .offset = offsetof(struct values, bytes),
     .default_value = "16MB",
     .help = "Bytes."},
    {.name = "path",
     .letter = 'o',
     .type = CONFIG_STRING,
     .offset = offsetof(struct values, path),
     .default_value = "out",
     .help = "Path."},
    {.name = "policy",
     .type = CONFIG_CHOICE,
     .offset = offsetof(struct values, policy),
     .choices = "static|formula|adaptive",
     .default_value = "formula",
     .help = "Policy."},
    {.name = "names",
     .type = CONFIG_LIST,
     .offset = offsetof(struct values, names),
     .help = "Names."},
};

static const struct config_program program = {.name = "test",
                                              .version = "1.2.3",
                                              .synopsis = "[options]",
                                              .summary = "A test.",
                                              .keys = keys,
                                              .keys_count = sizeof keys / sizeof *keys,
                                              .arguments_max = 2};

static struct values values;
static struct config *config;
static struct err err;
static enum config_outcome outcome;

static bool load_yaml(const char *yaml)
{
    return config_load_text(&config, &program, "file.yaml", yaml, &values, &err);
}

#define LOAD(...) load_arguments((char *const[]){"test", __VA_ARGS__, NULL})

static bool load_arguments(char *const *argv)
{
    int argc = 0;

    while (argv[argc])
        argc++;
    return config_load(&config, &program, argc, argv, &values, &outcome, &err);
}

static int teardown(void **state)
{
    (void)state;
    config_free(config);
    config = NULL;
    return 0;
}

static void test_defaults(void **state)
{
    (void)state;
    assert_true(load_yaml("# nothing\n"));
    assert_false(values.dynamic);
    assert_int_equal(values.base, 32);
    assert_int_equal(values.max, -1);
    assert_int_equal(values.window_us, 500000);
    assert_true(values.threshold == 0.8);
    assert_int_equal(values.bytes, 16 * 1024 * 1024);
    assert_string_equal(values.path, "out");
    assert_int_equal(values.policy, 1);
    assert_int_equal(values.names.count, 0);
    assert_string_equal(values.common.topic_prefix, "pelton.");
    assert_false(config_given(config, "path"));
}

static void test_yaml(void **state)
{
    (void)state;
    assert_true(load_yaml("batch:\n  dynamic: true\n  base_size: 16 # sixteen\n  window: 1s\n"
                          "cache: {l1_size: 20%}\nthreshold: 1.5\nbytes: 2GiB\npath: \"a b\"\n"
                          "policy: adaptive\nnames: [x, y]\nkafka:\n  linger.ms: 7\n"));
    assert_true(values.dynamic);
    assert_int_equal(values.base, 16);
    assert_int_equal(values.window_us, 1000000);
    assert_true(values.share == 0.2);
    assert_true(values.threshold == 1.5);
    assert_int_equal(values.bytes, 2LL << 30);
    assert_string_equal(values.path, "a b");
    assert_int_equal(values.policy, 2);
    assert_int_equal(values.names.count, 2);
    assert_string_equal(values.names.items[1], "y");
    assert_int_equal(config_kafka_settings(config).count, 1);
    assert_string_equal(config_kafka_settings(config).items[0], "linger.ms=7");
    assert_int_equal(config_no_effect(config).count, 1);
    assert_string_equal(config_no_effect(config).items[0], "cache.l1_size");
}

static void test_command_line(void **state)
{
    (void)state;
    assert_true(LOAD("in.jsonl", "--base-size", "8", "--batch.max_size=64", "-d", "-o", "f", "-X",
                     "acks=all", "-Xlinger.ms=1", "--names", "a,b", "--names=c", "--", "--odd"));
    assert_int_equal(values.base, 8);
    assert_int_equal(values.max, 64);
    assert_true(values.dynamic);
    assert_string_equal(values.path, "f");
    assert_int_equal(values.names.count, 3);
    assert_int_equal(config_kafka_settings(config).count, 2);
    assert_int_equal(config_arguments(config).count, 2);
    assert_string_equal(config_arguments(config).items[1], "--odd");
    assert_true(config_given(config, "path"));
}

static void test_command_line_wins_over_file(void **state)
{
    char path[] = "/tmp/test_config_XXXXXX";
    int fd = mkstemp(path);
    const char *yaml = "batch: {base_size: 16, dynamic: true}\nnames: [file]\n";

    (void)state;
    assert_int_equal(write(fd, yaml, strlen(yaml)), strlen(yaml));
    close(fd);
    assert_true(LOAD("--base-size=4", "--no-dynamic", "--names=line", "--config", path));
    unlink(path);
    assert_int_equal(values.base, 4);
    assert_false(values.dynamic);
    assert_int_equal(values.names.count, 1);
    assert_string_equal(values.names.items[0], "line");
    config_free(config);
    assert_false(LOAD("--config", "/nonexistent/x.yaml"));
    assert_non_null(strstr(err.message, "/nonexistent/x.yaml: No such file"));
    assert_int_equal(outcome, CONFIG_BAD_FILE);
    assert_false(LOAD("--base-size=0"));
    assert_int_equal(outcome, CONFIG_RUN);
}

/* Every kind of mistake, with the words that help. */
static void test_yaml_errors(void **state)
{
    static const struct {
        const char *yaml;
        const char *message;
    } cases[] = {
        {"a: 1\n\nbatch:\n  bse_size: 3\n", "file.yaml:1: unknown key \"a\""},
        {"batch:\n  bse_size: 3\n",
         "file.yaml:2: unknown key \"batch.bse_size\"; did you mean batch.base_size?"},
        {"base_size: 3\n", "file.yaml:1: unknown key \"base_size\"; did you mean batch.base_size?"},
        {"batch: {base_size: 129}\n", "file.yaml:1: batch.base_size is 129: it must be 1 to 128"},
        {"batch: {adjust_window: 2min}\n",
         "file.yaml:1: batch.adjust_window is 2min: it must be 1ms to 1min"},
        {"batch: {adjust_window: 500}\n", "expected a duration with its unit"},
        {"batch: {adjust_window: -5s}\n",
         "file.yaml:1: batch.adjust_window is -5s: a duration is not negative"},
        {"batch: {base_size: 1.5}\n", "file.yaml:1: batch.base_size is \"1.5\": expected a whole"},
        {"batch: {base_size: auto}\n", "expected a whole number"},
        {"batch: {max_size: some}\n", "expected a whole number or auto"},
        {"threshold: nan\n", "expected a number"},
        {"threshold: 0x10\n", "expected a number"},
        {"cache: {l1_size: 120%}\n", "cache.l1_size is 120%: it must be 0% to 100%"},
        {"policy: best\n", "expected one of static|formula|adaptive"},
        {"path: a\nbytes: 1\npath: b\n", "file.yaml:3: path was set already (file.yaml:1)"},
        {"batch: {window: 1s, adjust_window: 1s}\n", "was set already"},
        {"path: [a]\n", "a list where one value is expected"},
        {"path:\n", "file.yaml:1: a key without a value"},
        {"path: &x a\n", "anchors"},
        {"path: *x\n", "anchors"},
        {"- a\n", "expected `key: value` lines"},
        {"path: 'a\n", "file.yaml:2: not YAML"},
        {"path: a\n---\npath: b\n", "a second document"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_false(load_yaml(cases[i].yaml));
        assert_null(config);
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s: %s", cases[i].yaml, err.message);
    }
}

static void test_command_line_errors(void **state)
{
    (void)state;
    assert_false(LOAD("--base-size"));
    assert_non_null(strstr(err.message, "--base-size needs a value"));
    assert_false(LOAD("--base-sise=2"));
    assert_non_null(strstr(err.message, "did you mean batch.base_size?"));
    assert_false(LOAD("--path=a", "-o", "b"));
    assert_non_null(strstr(err.message, "path was set already"));
    assert_false(LOAD("a", "b", "c"));
    assert_non_null(strstr(err.message, "unexpected argument \"c\""));
    assert_false(LOAD("-X", "novalue"));
    assert_non_null(strstr(err.message, "expected key=value"));
    assert_false(LOAD("-z"));
    assert_false(LOAD("--dynamic=maybe"));
    assert_non_null(strstr(err.message, "true or false"));
}

static void test_units(void **state)
{
    int64_t value;

    (void)state;
    assert_true(config_parse_duration_us("1.5s", &value) && value == 1500000);
    assert_true(config_parse_duration_us("15min", &value) && value == 900000000);
    assert_true(config_parse_duration_us("7d", &value) && value == 604800000000);
    assert_true(config_parse_duration_us("24h", &value) && value == 86400000000);
    assert_false(config_parse_duration_us("1e30d", &value));
    assert_false(config_parse_duration_us("5 parsecs", &value));
    assert_false(config_parse_duration_us("", &value));
    assert_true(config_parse_size("64K", &value) && value == 65536);
    assert_true(config_parse_size("16 MB", &value) && value == 16777216);
    assert_false(config_parse_size("-1", &value));
    assert_false(config_parse_size("16 MX", &value));
}

static void test_brokers(void **state)
{
    static const char *const good[] = {
        "h",     "h:1",     "h:65535",       " a:9092 , b,c:1,", "[::1]:9092",
        "[::1]", "fe80::1", "SSL://h:9093",  "SASL_SSL://[::1]", "PLAINTEXT://h:9092/x",
        "",      " ,",      "127.0.0.1:9092"};
    static const char *const bad[] = {"h:xx",          "h:",         "h:0",     "h:65536",
                                      "h:99999999999", "a:9092,b:x", "[::1]:x", "h:-1",
                                      "SSL://h:x",     "h: 9092",    "h:9092x", ":x"};

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (config_refuse_brokers(good[i]))
            fail_msg("%s is refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!config_refuse_brokers(bad[i]))
            fail_msg("%s is taken", bad[i]);
}

static void test_topic_prefix(void **state)
{
    char text[202];

    (void)state;
    assert_null(config_refuse_topic_prefix(""));
    assert_null(config_refuse_topic_prefix("Pelton-2_a."));
    assert_non_null(config_refuse_topic_prefix("bad prefix"));
    assert_non_null(config_refuse_topic_prefix("a/"));
    assert_non_null(config_refuse_topic_prefix("\xc3\xa9"));
    memset(text, 'a', sizeof text);
    text[201] = '\0';
    assert_non_null(config_refuse_topic_prefix(text));
    text[200] = '\0';
    assert_null(config_refuse_topic_prefix(text));
    assert_false(load_yaml("topic_prefix: bad prefix/\n"));
    assert_non_null(strstr(err.message, "file.yaml:1: topic_prefix is \"bad prefix/\": expected"));
}

static void test_without_kafka(void **state)
{
    struct config_program local = program;
    char *const argv[] = {"test", "-X", "a=b"};
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    local.without_kafka = true;
    assert_false(config_load(&config, &local, 3, argv, &values, &outcome, &err));
    assert_string_equal(err.message, "command line: unknown key \"-X\"");
    assert_false(config_load_text(&config, &local, "f", "kafka: {a: b}\n", &values, &err));
    assert_non_null(strstr(err.message, "unknown key \"kafka"));
    config_help(&local, out);
    config_help(&program, out);
    fclose(out);
    assert_non_null(strstr(text, "-X"));
    assert_null(strstr(strstr(text, "-X") + 2, "-X"));
    free(text);
}

static void test_help_names_all(void **state)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    config_help(&program, out);
    fclose(out);
    assert_non_null(strstr(text, "Usage: test [options]"));
    assert_non_null(strstr(text, "--base-size N\n          Base. Default: 32. From 1 to 128."));
    assert_non_null(strstr(text, "-o, --path TEXT"));
    assert_non_null(strstr(text, "Default: auto. From 1 to 4096, or auto."));
    assert_non_null(strstr(text, "--policy static|formula|adaptive"));
    assert_non_null(strstr(text, "(no effect yet)"));
    assert_non_null(strstr(text, "From 1ms to 1min."));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_defaults, teardown),
        cmocka_unit_test_teardown(test_yaml, teardown),
        cmocka_unit_test_teardown(test_command_line, teardown),
        cmocka_unit_test_teardown(test_command_line_wins_over_file, teardown),
        cmocka_unit_test(test_yaml_errors),
        cmocka_unit_test(test_command_line_errors),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_brokers),
        cmocka_unit_test(test_topic_prefix),
        cmocka_unit_test(test_without_kafka),
        cmocka_unit_test(test_help_names_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
