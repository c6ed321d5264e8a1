/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of codec.h that knows no Avro: ids, keys, text.
 */
#include <stdio.h>
#include <string.h>

#include "common/check.h"
#include "common/ids.h"
#include "schemas/codec.h"

/* Random once, fixed for ever: every request_id rests on it. */
static const uint8_t request_namespace[UUID_SIZE] = {
    0x6f, 0x1a, 0x9c, 0x52, 0xd8, 0x3b, 0x4e, 0x07, 0x9b, 0x64, 0x2e, 0xf1, 0x7d, 0x05, 0xca, 0x38};

void request_id_format(const struct request_id *id, char text[REQUEST_ID_TEXT_SIZE + 1])
{
    static const char digits[] = "0123456789abcdef";
    char *to = text;

    for (size_t i = 0; i < sizeof id->bytes; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *to++ = '-';
        *to++ = digits[id->bytes[i] >> 4];
        *to++ = digits[id->bytes[i] & 15];
    }
    *to = '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool request_id_parse(struct str text, struct request_id *id)
{
    const char *from = text.data;

    if (text.size != REQUEST_ID_TEXT_SIZE)
        return false;
    for (size_t i = 0; i < sizeof id->bytes; i++) {
        int high, low;
        if ((i == 4 || i == 6 || i == 8 || i == 10) && *from++ != '-')
            return false;
        high = hex_digit(*from++);
        low = hex_digit(*from++);
        if (high < 0 || low < 0)
            return false;
        id->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool request_id_equal(const struct request_id *a, const struct request_id *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

void request_id_make(struct str tenant, struct str batch_id, struct str custom_id,
                     struct request_id *id)
{
    const struct str parts[] = {tenant, batch_id, custom_id};
    uint8_t sizes[3][4];
    struct bytes pieces[6];

    for (size_t i = 0; i < 3; i++) {
        CHECK(parts[i].size <= UINT32_MAX);
        for (size_t byte = 0; byte < 4; byte++)
            sizes[i][byte] = (uint8_t)(parts[i].size >> (24 - 8 * byte));
        pieces[2 * i] = (struct bytes){sizes[i], 4};
        pieces[2 * i + 1] = (struct bytes){parts[i].data, parts[i].size};
    }
    uuid_from_name(request_namespace, pieces, 6, id->bytes);
}

static size_t key_of_id(const char *kind, const struct request_id *id, char *key)
{
    char text[REQUEST_ID_TEXT_SIZE + 1];

    request_id_format(id, text);
    return (size_t)snprintf(key, STATE_KEY_SIZE_MAX, "%s/%s", kind, text);
}

/* Text may hold any byte, so nothing here ends at a zero. */
static char *put(char *to, struct str text)
{
    if (text.size > 0)
        memcpy(to, text.data, text.size);
    return to + text.size;
}

static size_t key_of_batch(const char *kind, struct str tenant, struct str batch_id, char *key)
{
    char *to = key;

    CHECK(tenant.size <= TENANT_SIZE_MAX);
    CHECK(batch_id.size <= BATCH_ID_SIZE_MAX);
    if (!str_equal(tenant, str_from(TENANT_DEFAULT))) {
        to += snprintf(key, STATE_KEY_SIZE_MAX, "tenant/%zu:", tenant.size);
        to = put(put(to, tenant), str_from("/"));
    }
    to = put(put(to, str_from(kind)), batch_id);
    return (size_t)(to - key);
}

size_t state_key(const struct record *record, char key[STATE_KEY_SIZE_MAX])
{
    switch (record->type) {
    case RECORD_IN_FLIGHT:
        return key_of_id("request", &record->u.in_flight.request_id, key);
    case RECORD_DONE_MARK:
        return key_of_id("request", &record->u.done_mark.request_id, key);
    case RECORD_TICK:
        return (size_t)snprintf(key, STATE_KEY_SIZE_MAX, "tick");
    case RECORD_WORKER_MARK:
        return (size_t)snprintf(key, STATE_KEY_SIZE_MAX, "slot/%u",
                                record->u.worker_mark.hello.slot);
    case RECORD_BATCH:
        return key_of_batch("batch/", record->u.batch.tenant, record->u.batch.batch_id, key);
    case RECORD_BATCH_CLAIM:
        return key_of_id("claim", &record->u.batch_claim.claim, key);
    default: /* no other record is kept by key */
        CHECK(record->type == RECORD_CANCEL_BATCH);
        return key_of_batch("cancel/", record->u.cancel_batch.tenant,
                            record->u.cancel_batch.batch_id, key);
    }
}

bool names_check(struct str tenant, struct str batch_id, struct str custom_id, struct str model,
                 struct err *err)
{
    const struct {
        const char *what;
        struct str text;
        size_t size_max;
    } names[] = {
        {"tenant", tenant, TENANT_SIZE_MAX},
        {"batch_id", batch_id, BATCH_ID_SIZE_MAX},
        {"custom_id", custom_id, CUSTOM_ID_SIZE_MAX},
        {"model", model, MODEL_ID_SIZE_MAX},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].text.size > names[i].size_max)
            return err_set(err, ERR_REJECT, "%s has %zu bytes, at most %zu are allowed",
                           names[i].what, names[i].text.size, names[i].size_max);
        if (names[i].text.size > 0 && memchr(names[i].text.data, 0, names[i].text.size))
            return err_set(err, ERR_REJECT, "%s contains a NUL", names[i].what);
    }
    return true;
}

struct str str_from(const char *text)
{
    return (struct str){text, text ? strlen(text) : 0};
}

bool str_equal(struct str a, struct str b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}
