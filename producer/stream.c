/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/stream.h"

static const struct str nothing = {"", 0};

/* Do the ends describe the text: one for each id, ascending, within it? */
static bool is_sound(const struct token_chunk *chunk)
{
    int32_t last = 0;

    if (chunk->text_ends.count != chunk->ids.count)
        return false;
    for (size_t i = 0; i < chunk->text_ends.count; i++) {
        if (chunk->text_ends.items[i] < last)
            return false;
        last = chunk->text_ends.items[i];
    }
    return (size_t)last <= chunk->text.size;
}

struct str stream_accept(struct stream *stream, const struct token_chunk *chunk)
{
    uint64_t end = (uint64_t)chunk->first_index + chunk->ids.count;
    size_t skip, from;
    struct str fresh;

    if (chunk->attempt < stream->attempt || chunk->first_index > stream->next || !is_sound(chunk))
        return nothing;
    stream->attempt = chunk->attempt;
    if (end <= stream->next || end > UINT32_MAX)
        return nothing;
    skip = stream->next - chunk->first_index;
    from = skip > 0 ? (size_t)chunk->text_ends.items[skip - 1] : 0;
    fresh = (struct str){chunk->text.data + from, chunk->text.size - from};
    stream->next = (uint32_t)end;
    stream->text_size += fresh.size;
    return fresh;
}

struct str stream_finish(struct stream *stream, struct str text)
{
    struct str fresh = nothing;

    if (text.size > stream->text_size) {
        fresh = (struct str){text.data + stream->text_size, text.size - stream->text_size};
        stream->text_size = text.size;
    }
    stream->attempt = UINT32_MAX; /* whatever comes now is late */
    return fresh;
}
