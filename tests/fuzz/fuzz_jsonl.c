/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of a batch file. What passes must have a body that is JSON by itself.
 */
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "producer/line.h"
#include "producer/render.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Of exactly this size, so that the sanitizer sees a read beyond it. */
    char *copy = malloc(size ? size : 1);
    struct raw_line raw = {.data = copy, .size = size, .number = 1};
    struct line_error error;
    struct line line;

    memcpy(copy, data, size);
    if (line_is_blank(&raw)) {
        free(copy);
        return 0;
    }
    if (line_check(&raw, &line, &error)) {
        json_t *body = json_loadb(line.body.data, line.body.size, JSON_REJECT_DUPLICATES, NULL);
        CHECK(json_equal(body, json_object_get(line.root, "body")));
        json_decref(body);
        line_free(&line);
    } else {
        free(render_rejected(&error, 1));
    }
    free(copy);
    return 0;
}
