/* SPDX-License-Identifier: Apache-2.0
 *
 * The registry, and the server by a client of its own over TCP.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/metrics.h"
#include "common/metrics_http.h"

static void test_text(void **state)
{
    const double bounds[] = {0.1, 1};
    struct metrics *metrics = metrics_open();
    struct metric *bulk = metrics_gauge(metrics, "pelton_waiting", "class=\"bulk\"", "Waiting.");
    struct metric *total = metrics_counter(metrics, "pelton_done_total", "", "Done.");
    struct metric *other =
        metrics_gauge(metrics, "pelton_waiting", "class=\"interactive\"", "Waiting.");
    struct metric *step = metrics_histogram(metrics, "pelton_step_seconds", "", "Step.", bounds, 2);
    size_t size;
    char *text;

    (void)state;
    metric_set(bulk, 3);
    metric_add(bulk, -1);
    metric_set(other, 0.5);
    metric_add(total, 41);
    metric_add(total, 1);
    metric_observe(step, 0.1); /* a bound belongs to its bucket */
    metric_observe(step, 0.5);
    metric_observe(step, 7);
    text = metrics_render(metrics, &size);
    assert_int_equal(size, strlen(text));
    assert_string_equal(text, "# HELP pelton_waiting Waiting.\n"
                              "# TYPE pelton_waiting gauge\n"
                              "pelton_waiting{class=\"bulk\"} 2\n"
                              "pelton_waiting{class=\"interactive\"} 0.5\n"
                              "# HELP pelton_done_total Done.\n"
                              "# TYPE pelton_done_total counter\n"
                              "pelton_done_total 42\n"
                              "# HELP pelton_step_seconds Step.\n"
                              "# TYPE pelton_step_seconds histogram\n"
                              "pelton_step_seconds_bucket{le=\"0.1\"} 1\n"
                              "pelton_step_seconds_bucket{le=\"1\"} 2\n"
                              "pelton_step_seconds_bucket{le=\"+Inf\"} 3\n"
                              "pelton_step_seconds_sum 7.5999999999999996\n"
                              "pelton_step_seconds_count 3\n");
    free(text);
    assert_ptr_equal(metrics_counter(metrics, "pelton_done_total", "", "Done."), total);
    assert_true(metric_value(total) == 42);
    metrics_close(metrics);
}

enum { THREADS = 4, ADDS = 20000 };

static void *add_many(void *metric)
{
    for (int i = 0; i < ADDS; i++)
        metric_add(metric, 1);
    return NULL;
}

static void test_no_update_is_lost(void **state)
{
    struct metrics *metrics = metrics_open();
    struct metric *total = metrics_counter(metrics, "pelton_x_total", "", "X.");
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, total), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(metric_value(total) == THREADS * ADDS);
    metrics_close(metrics);
}

static void http_get(uint16_t port, const char *request, char *answer, size_t size)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    size_t used = 0;
    ssize_t got;

    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&where, sizeof where), 0);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    while ((got = read(fd, answer + used, size - 1 - used)) > 0)
        used += (size_t)got;
    answer[used] = '\0';
    close(fd);
}

static bool is_ready(void *context, char *reason, size_t reason_size)
{
    snprintf(reason, reason_size, "no leader\n");
    return *(bool *)context;
}

static void test_server(void **state)
{
    bool ready = false;
    struct metrics *metrics = metrics_open();
    struct metrics_http_options options = {
        .metrics = metrics, .ready = is_ready, .context = &ready};
    struct metrics_http *server;
    struct err err;
    char answer[2000];
    uint16_t port;

    (void)state;
    metric_set(metrics_gauge(metrics, "pelton_up", "", "Up."), 1);
    assert_true(metrics_http_open(&server, &options, &err));
    port = metrics_http_port(server);
    http_get(port, "GET /metrics HTTP/1.0\r\n\r\n", answer, sizeof answer);
    assert_non_null(strstr(answer, " 200 OK"));
    assert_non_null(strstr(answer, "text/plain; version=0.0.4"));
    assert_non_null(strstr(answer, "\npelton_up 1\n"));
    http_get(port, "GET /healthz HTTP/1.0\r\n\r\n", answer, sizeof answer);
    assert_non_null(strstr(answer, " 200 OK"));
    http_get(port, "GET /readyz HTTP/1.0\r\n\r\n", answer, sizeof answer);
    assert_non_null(strstr(answer, " 503 "));
    assert_non_null(strstr(answer, "no leader"));
    http_get(port, "GET /other HTTP/1.0\r\n\r\n", answer, sizeof answer);
    assert_non_null(strstr(answer, " 404 "));
    http_get(port, "POST /metrics HTTP/1.0\r\nContent-Length: 1\r\n\r\nx", answer, sizeof answer);
    assert_non_null(strstr(answer, " 405 "));
    metrics_http_close(server);
    metrics_close(metrics);
}

static void test_server_address_taken(void **state)
{
    struct metrics *metrics = metrics_open();
    struct metrics_http_options options = {.metrics = metrics};
    struct metrics_http *server, *second;
    struct err err;

    (void)state;
    assert_true(metrics_http_open(&server, &options, &err));
    options.port = metrics_http_port(server);
    assert_false(metrics_http_open(&second, &options, &err));
    assert_non_null(strstr(err.message, "metrics server on 127.0.0.1:"));
    options.address = "localhost";
    assert_false(metrics_http_open(&second, &options, &err));
    assert_non_null(strstr(err.message, "numeric IPv4"));
    metrics_http_close(server);
    metrics_close(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_no_update_is_lost),
        cmocka_unit_test(test_server),
        cmocka_unit_test(test_server_address_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
