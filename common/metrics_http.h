/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics_http - /metrics, /healthz and /readyz over HTTP.
 *
 * One thread of its own (libmicrohttpd), GET and HEAD only. /healthz answers 200 as long as the
 * process serves; /readyz asks the program and answers 200 or 503, with its reason as text. The
 * address is 127.0.0.1 unless the configuration says otherwise: there is no authentication.
 */
#ifndef COMMON_METRICS_HTTP_H
#define COMMON_METRICS_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/metrics.h"

struct metrics_http;

struct metrics_http_options {
    const char *address;     /* numeric IPv4; NULL: 127.0.0.1 */
    uint16_t port;           /* 0: any free one */
    struct metrics *metrics; /* must outlive the server */
    /* Called on the server's thread. NULL: always ready. reason is for one short line. */
    bool (*ready)(void *context, char *reason, size_t reason_size);
    void *context;
};

bool metrics_http_open(struct metrics_http **server, const struct metrics_http_options *options,
                       struct err *err);
uint16_t metrics_http_port(const struct metrics_http *server);
void metrics_http_close(struct metrics_http *server); /* NULL is allowed */

#endif
