/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config.h"

#include <string.h>

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define DIGITS  "0123456789"

/* Kafka's limit of a name is 249; the longest of ours has 20 bytes behind the prefix, and groups
 * and transactional ids are made of it, too. */
enum { PREFIX_SIZE_MAX = 200, PORT_DIGITS_MAX = 5, PORT_MAX = 65535 };

static bool is_port(const char *text, size_t size)
{
    int port = 0;

    if (size == 0 || size > PORT_DIGITS_MAX)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!strchr(DIGITS, text[i]))
            return false;
        port = 10 * port + text[i] - '0';
    }
    return port >= 1 && port <= PORT_MAX;
}

/* [PROTOCOL://]HOST[:PORT][/...], as librdkafka reads it: what stands behind a single colon or
 * behind "]:" is the port, and IPv6 without brackets has none. It would read "xx" as port 0. */
static bool is_broker(const char *text, size_t size)
{
    const char *end = text + size;
    const char *first = NULL, *last = NULL;

    for (const char *at = text; at + 3 <= end; at++)
        if (memcmp(at, "://", 3) == 0) {
            text = at + 3;
            break;
        }
    for (const char *at = text; at < end; at++) {
        if (*at == '/') {
            end = at;
        } else if (*at == ':') {
            first = first ? first : at;
            last = at;
        }
    }
    if (!last || (first != last && last[-1] != ']'))
        return true;
    return is_port(last + 1, (size_t)(end - last - 1));
}

const char *config_refuse_brokers(const char *text)
{
    while (*text) {
        size_t size = strcspn(text, ",");
        const char *next = text + size + (text[size] == ',');

        while (size > 0 && *text == ' ') {
            text++;
            size--;
        }
        while (size > 0 && text[size - 1] == ' ')
            size--;
        if (!is_broker(text, size))
            return "HOST:PORT,... with ports from 1 to 65535";
        text = next;
    }
    return NULL;
}

const char *config_refuse_topic_prefix(const char *text)
{
    size_t size = strlen(text);

    return size <= PREFIX_SIZE_MAX && strspn(text, LETTERS DIGITS "._-") == size
               ? NULL
               : "at most 200 letters, digits, '.', '_' and '-', as Kafka's names have";
}
