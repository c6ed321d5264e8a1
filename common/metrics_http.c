/* SPDX-License-Identifier: Apache-2.0 */
#include "common/metrics_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"

struct metrics_http {
    struct metrics_http_options options;
    struct MHD_Daemon *daemon;
};

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type,
                              char *text, size_t size, enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(size, text, mode);
    enum MHD_Result result;

    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status, char *text)
{
    return answer(connection, status, "text/plain; charset=utf-8", text, strlen(text),
                  MHD_RESPMEM_MUST_COPY);
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *body,
                              size_t *body_size, void **state)
{
    const struct metrics_http *server = context;
    char text[256] = "ready\n";
    size_t size;

    (void)version;
    (void)body;
    (void)state;
    *body_size = 0; /* whatever a client uploads is ignored */
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET only\n");
    if (strcmp(url, "/metrics") == 0) {
        char *rendered = metrics_render(server->options.metrics, &size);
        return answer(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", rendered,
                      size, MHD_RESPMEM_MUST_FREE);
    }
    if (strcmp(url, "/healthz") == 0)
        return answer_text(connection, MHD_HTTP_OK, "ok\n");
    if (strcmp(url, "/readyz") == 0) {
        bool ready = !server->options.ready ||
                     server->options.ready(server->options.context, text, sizeof text);
        return answer_text(connection, ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, text);
    }
    return answer_text(connection, MHD_HTTP_NOT_FOUND, "/metrics /healthz /readyz\n");
}

bool metrics_http_open(struct metrics_http **server, const struct metrics_http_options *options,
                       struct err *err)
{
    const char *address = options->address ? options->address : "127.0.0.1";
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(options->port)};
    struct metrics_http *opened;

    if (inet_pton(AF_INET, address, &where.sin_addr) != 1)
        return err_set(err, ERR_REJECT, "metrics address %.60s: expected a numeric IPv4 address",
                       address);
    opened = malloc(sizeof *opened);
    CHECK(opened);
    opened->options = *options;
    opened->daemon =
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, options->port, NULL, NULL, handle, opened,
                         MHD_OPTION_SOCK_ADDR, &where, MHD_OPTION_CONNECTION_LIMIT, 16u,
                         MHD_OPTION_CONNECTION_TIMEOUT, 10u, MHD_OPTION_END);
    if (!opened->daemon) {
        free(opened);
        return err_set(err, ERR_RETRY, "metrics server on %.60s:%u: %s", address, options->port,
                       strerror(errno));
    }
    *server = opened;
    return true;
}

uint16_t metrics_http_port(const struct metrics_http *server)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);

    CHECK(info);
    return info->port;
}

void metrics_http_close(struct metrics_http *server)
{
    if (!server)
        return;
    MHD_stop_daemon(server->daemon);
    free(server);
}
