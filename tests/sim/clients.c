/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "schemas/codec.h"
#include "tests/sim/sim.h"

static const char *const tenants[] = {"red", "green", "blue"};
static const char *const batches[] = {"one", "two", "doomed"};

void clients_open(struct sim *sim)
{
    sim->requests_count = 5 + sim_below(sim, REQUESTS_MAX - 4);
    for (uint32_t i = 0; i < sim->requests_count; i++) {
        struct truth *truth = &sim->requests[i];
        truth->id = sim_id(1, i);
        truth->service_class = sim_chance(sim, 1, 2) ? CLASS_BULK : CLASS_INTERACTIVE;
        truth->partition = (int32_t)sim_below(sim, sim->config.request_partitions[0]);
        truth->submit_ms = sim->now_ms + sim_between(sim, 0, 15000);
        truth->answer_count = 1 + sim_below(sim, ANSWER_MAX);
        truth->poison = sim_chance(sim, 1, 25);
        truth->reject = sim_chance(sim, 1, 20);
        truth->unknown_model = sim_chance(sim, 1, 25);
        truth->deadline_ms =
            sim_chance(sim, 1, 12) ? truth->submit_ms + sim_between(sim, -10, 9000) : 0;
        truth->cancelled = sim_chance(sim, 1, 12);
        truth->first_offset = -1;
    }
}

/* 150 bytes: more than the first block of a beginning that workers may have cached. */
#define RULES                                                                                      \
    "Be kind. Be brief. Do not say what you do not know. Do not repeat the question. "             \
    "Answer in the language that you were asked in, and in no other one."

static const char *const bodies[] = {
    "{\"prompt\":\"how much is it\",\"max_tokens\":12}",
    "{\"prompt\":\"Translate: \",\"max_tokens\":12}",
    "{\"messages\":[{\"content\":\"" RULES "\"},{\"content\":\"And now?\"}],\"max_tokens\":12}",
    "{\"max_tokens\":12}",
};

static struct request request_of(const struct sim *sim, uint32_t number)
{
    const struct truth *truth = &sim->requests[number];
    struct request request = {
        .request_id = truth->id,
        .tenant = str_from(tenants[number % 3]),
        .batch_id = str_from(batches[truth->cancelled ? 2 : number % 2]),
        .custom_id = str_from("custom"),
        .service_class = truth->service_class,
        .model = str_from(truth->unknown_model ? "nobody"
                          : number % 3         ? "m"
                                               : ""),
        .body = str_from(bodies[number % 4]),
        .line = number,
        .submitted_ms = truth->submit_ms,
        .deadline_ms = truth->deadline_ms,
    };

    request.body_hash[0] = (uint8_t)(number + 1);
    return request;
}

static void send(struct sim *sim, uint32_t number, bool other_body)
{
    struct truth *truth = &sim->requests[number];
    struct record record = {.type = RECORD_REQUEST, .u.request = request_of(sim, number)};
    struct message message = {&record, truth->id, sim->now_ms};
    enum topic topic =
        truth->service_class == CLASS_BULK ? TOPIC_REQUESTS_BULK : TOPIC_REQUESTS_INTERACTIVE;

    if (other_body)
        record.u.request.body_hash[0] = 200;
    if (!truth->submitted)
        truth->first_offset = (int64_t)broker_log(&sim->broker, topic, truth->partition)->count;
    broker_append(&sim->broker, topic, truth->partition, &message);
}

static void send_junk(struct sim *sim)
{
    struct message message = {NULL, {{0}}, sim->now_ms};

    broker_append(&sim->broker, TOPIC_REQUESTS_BULK, 0, &message);
}

static void send_cancels(struct sim *sim)
{
    for (int i = 0; i < 3; i++) {
        struct record record = {
            .type = RECORD_CANCEL_BATCH,
            .u.cancel_batch = {str_from(batches[2]), str_from(tenants[i]), sim->now_ms},
        };
        struct message message = {&record, {{0}}, sim->now_ms};
        broker_append(&sim->broker, TOPIC_CONTROL, 0, &message);
    }
}

void clients_step(struct sim *sim)
{
    /* Beyond the dedupe window a request would rightly run again. */
    bool may_repeat = sim->config.dedupe_window_ms > 1000000;

    for (uint32_t i = 0; i < sim->requests_count; i++) {
        struct truth *truth = &sim->requests[i];
        if (!truth->submitted && sim->now_ms >= truth->submit_ms) {
            send(sim, i, false);
            truth->submitted = true;
        } else if (truth->submitted && may_repeat && sim_trouble(sim, 20000)) {
            truth->resubmitted = true;
            send(sim, i, false);
        } else if (truth->submitted && may_repeat && sim_trouble(sim, 40000)) {
            truth->conflicted = true;
            send(sim, i, true);
        }
    }
    if (sim_trouble(sim, 4000))
        send_junk(sim);
    if (sim_trouble(sim, 2000))
        send_cancels(sim);
}
