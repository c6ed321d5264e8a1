/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_scheduler [--prompt BYTES] [REQUESTS [WORKERS...]]: what waiting requests and many workers
 * cost the core.
 *
 * Lets REQUESTS (a million by default) wait, of 100 tenants and with deadlines, then lets WORKERS
 * (10, 1,000 and 10,000 by default) answer some of them, tick by tick: each worker's heartbeat once
 * a second, every assignment answered before the next tick. Batches are composed of
 * eight beginnings by profiles of 1,024 counts; all begin with one system prompt of 512 bytes, or,
 * with --prompt, each with one of its own of that size. Prints bytes per waiting request,
 * decisions (assignments) a second and the time of a tick, all in CPU time of this one thread, so
 * that a busy machine does not matter. Exits with 70 where memory is over the promise of
 * scheduler/scheduler.h, or the median tick of up to 1,000 workers over 20 ms.
 */
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#include "scheduler/scheduler.h"
#include "schemas/codec.h"

enum {
    TICKS = 100, /* fewer where the requests would not last */
    ASSIGNED_PER_TICK = 1024,
    TICK_MS = 20,
    TICKS_A_SECOND = 1000 / TICK_MS,
    PAYLOAD_FIELDS_SIZE = 72,
    WAITING_SIZE_MAX = 200,
    TICK_US_MAX = 20000,
    SYSTEM_PROMPT_SIZE = 512,
    PROMPT_SIZE_MAX = 1 << 20,
    WORKERS_PROMISED = 1000,
    WORKERS_MAX = 100000,
    EXPERTS = 64,
    LAYERS = 16,
};

struct bench {
    struct scheduler *core;
    struct actions actions;
    int64_t now_ms;
    uint32_t workers;
    uint32_t prompt_size;   /* 0: one for all */
    char *text;             /* of a body */
    int64_t *events_offset; /* (workers) */
    size_t finished;
};

static double cpu_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Eight beginnings, so that batches are composed of them, behind a system prompt that workers have
 * cached. */
static const char body[] =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"%-*u\"},"
    "{\"role\":\"user\",\"content\":\"%c 12 + 30\"}],\"max_tokens\":16}";

static void step(struct bench *bench, struct event event)
{
    scheduler_step(bench->core, &event, bench->now_ms, &bench->actions);
}

static void send_request(struct bench *bench, uint32_t number)
{
    const uint32_t size = bench->prompt_size ? bench->prompt_size : SYSTEM_PROMPT_SIZE;
    char tenant[16], custom_id[16];
    struct record record = {.type = RECORD_REQUEST};
    struct request *request = &record.u.request;

    snprintf(tenant, sizeof tenant, "tenant-%u", number % 100);
    snprintf(custom_id, sizeof custom_id, "line-%07u", number);
    snprintf(bench->text, sizeof body + size, body, (int)size, bench->prompt_size ? number : 1,
             'a' + (int)(number / 100 % 8));
    *request = (struct request){
        .tenant = str_from(tenant),
        .batch_id = str_from("batch"),
        .custom_id = str_from(custom_id),
        .service_class = CLASS_BULK,
        .model = str_from("m"),
        .body = str_from(bench->text),
        .deadline_ms = bench->now_ms + 86400000 + number * 7919 % 100000,
    };
    memcpy(request->request_id.bytes, &number, sizeof number);
    step(bench, (struct event){.type = EVENT_REQUEST,
                               .position = {TOPIC_REQUESTS_BULK, 0, number},
                               .timestamp_ms = bench->now_ms,
                               .record = &record});
}

static void worker_says(struct bench *bench, uint32_t slot, struct record record)
{
    step(bench, (struct event){
                    .type = EVENT_WORKER,
                    .position = {TOPIC_WORKER_EVENTS, (int32_t)slot, bench->events_offset[slot]++},
                    .record = &record});
}

static struct request_id incarnation_of(uint32_t slot)
{
    struct request_id incarnation = {{1}};

    memcpy(incarnation.bytes + 1, &slot, sizeof slot);
    return incarnation;
}

static void start_worker(struct bench *bench, uint32_t slot)
{
    struct record record = {.type = RECORD_HELLO};

    record.u.hello = (struct hello){
        .slot = slot,
        .incarnation = incarnation_of(slot),
        .model = str_from("m"),
        .max_seqs = 64,
        .max_context = 1000,
        .kv_tokens = 1000000,
        .experts = EXPERTS,
    };
    worker_says(bench, slot, record);
}

static void heartbeat(struct bench *bench, uint32_t slot, int64_t seq)
{
    struct record record = {.type = RECORD_HEARTBEAT};

    record.u.heartbeat =
        (struct heartbeat){.slot = slot, .incarnation = incarnation_of(slot), .seq = seq};
    worker_says(bench, slot, record);
}

/* Every assignment of the last tick is answered at once. */
static void answer(struct bench *bench)
{
    struct record done = {.type = RECORD_DONE};
    struct request_id *ids = malloc(bench->actions.count * sizeof *ids + 1);
    uint32_t *slots = malloc(bench->actions.count * sizeof *slots + 1);
    int32_t profile[LAYERS * EXPERTS];
    size_t count = 0;

    for (size_t i = 0; i < bench->actions.count; i++) {
        const struct action *action = &bench->actions.items[i];
        if (action->type != ACTION_SEND || action->record->type != RECORD_ASSIGNMENT)
            continue;
        ids[count] = action->id;
        slots[count++] = (uint32_t)action->partition;
    }
    step(bench, (struct event){.type = EVENT_COMMITTED});
    bench->actions.count = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t cell = 0; cell < LAYERS * EXPERTS; cell++)
            profile[cell] = (int32_t)((cell * 7 + ids[i].bytes[0] / 100u * 13) % 64);
        done.u.done = (struct done){
            .incarnation = incarnation_of(slots[i]),
            .request_id = ids[i],
            .attempt = 1,
            .text = str_from("42"),
            .profile = {profile, LAYERS * EXPERTS},
        };
        worker_says(bench, slots[i], done);
    }
    bench->finished += count;
    free(ids);
    free(slots);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Returns the median tick in microseconds. */
static double run_ticks(struct bench *bench, uint32_t requests)
{
    double ticks_us[TICKS], start_us = cpu_us();
    int ticks = requests / ASSIGNED_PER_TICK < TICKS ? (int)(requests / ASSIGNED_PER_TICK) : TICKS;

    ticks = ticks > 0 ? ticks : 1;
    for (int i = 0; i < ticks; i++) {
        bench->now_ms += TICK_MS;
        for (uint32_t slot = 0; slot < bench->workers; slot++)
            if (slot % TICKS_A_SECOND == (uint32_t)i % TICKS_A_SECOND)
                heartbeat(bench, slot, i + 1);
        double before_us = cpu_us();
        step(bench, (struct event){.type = EVENT_TICK});
        ticks_us[i] = cpu_us() - before_us;
        answer(bench);
    }
    double all_us = cpu_us() - start_us;
    qsort(ticks_us, (size_t)ticks, sizeof *ticks_us, ascending);
    printf("workers=%u tick_us_median=%.0f tick_us_worst=%.0f decisions=%zu "
           "decisions_per_second=%.0f\n",
           bench->workers, ticks_us[ticks / 2], ticks_us[ticks - 1], bench->finished,
           (double)bench->finished * 1e6 / all_us);
    return ticks_us[ticks / 2];
}

/* False: a promise is broken. */
static bool run(uint32_t requests, uint32_t workers, uint32_t prompt_size)
{
    const struct scheduler_config config = {
        .slots = workers,
        .request_partitions = {1, 1},
        .lease_ms = 3000,
        .dedupe_window_ms = 7 * 24 * 3600 * 1000LL,
        .waiting_size_max = SIZE_MAX / 8,
        .crashes_max = 3,
        .model_wait_ms = 10000,
        .expert_balance_weight = 0.4,
        .prefix_affinity_weight = 1,
        .overtakes_max = {16, 1024},
        .batch = {.kind = BATCH_STATIC, .base = 32, .max = 64, .threshold = 1, .smoothing = 1},
    };
    struct bench bench = {.core = scheduler_new(&config),
                          .now_ms = 1700000000000,
                          .workers = workers,
                          .prompt_size = prompt_size,
                          .text = malloc(sizeof body + PROMPT_SIZE_MAX),
                          .events_offset = calloc(workers, sizeof *bench.events_offset)};
    size_t payload = sizeof body - sizeof "%-*u%c" + 1 +
                     (prompt_size ? prompt_size : SYSTEM_PROMPT_SIZE) + sizeof "line-0000000" - 1 +
                     PAYLOAD_FIELDS_SIZE;
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    double start_us = cpu_us(), per_waiting, tick_us;

    step(&bench, (struct event){.type = EVENT_RESTORED});
    for (uint32_t i = 0; i < requests; i++)
        send_request(&bench, i);
    per_waiting =
        (double)(mallinfo2().uordblks + mallinfo2().hblkhd - before) / requests - (double)payload;
    printf("waiting=%u bytes_per_waiting=%.0f (beside %zu of payload) intake_us=%.2f\n", requests,
           per_waiting, payload, (cpu_us() - start_us) / requests);
    for (uint32_t i = 0; i < workers; i++)
        start_worker(&bench, i);
    tick_us = run_ticks(&bench, requests);
    scheduler_free(bench.core);
    actions_free(&bench.actions);
    free(bench.events_offset);
    free(bench.text);
    /* Beginnings of their own stand in 64 lanes a tenant, which weigh little among a million only.
     */
    return (prompt_size > 0 || per_waiting < WAITING_SIZE_MAX) &&
           (workers > WORKERS_PROMISED || tick_us < TICK_US_MAX);
}

static uint32_t number_of(const char *text)
{
    return (uint32_t)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
    static const uint32_t workers_usual[] = {10, 1000, 10000};
    bool help = argc > 1 && strcmp(argv[1], "--help") == 0, kept = true;
    bool prompt = argc > 2 && strcmp(argv[1], "--prompt") == 0;
    uint32_t prompt_size = prompt ? number_of(argv[2]) : 0, requests;

    argc -= prompt ? 2 : 0;
    argv += prompt ? 2 : 0;
    requests = argc > 1 ? number_of(argv[1]) : 1000000;
    if (help || requests == 0 || prompt_size > PROMPT_SIZE_MAX || (prompt && prompt_size == 0) ||
        (argc > 1 && *argv[1] == '-')) {
        fprintf(help ? stdout : stderr,
                "usage: bench_scheduler [--prompt BYTES] [REQUESTS [WORKERS...]]\n"
                "A tick's time and the memory of waiting requests (1000000), for so many workers\n"
                "(10 1000 10000). 70: more than is promised.\n");
        return help ? EX_OK : EX_USAGE;
    }
    if (argc <= 2)
        for (size_t i = 0; i < sizeof workers_usual / sizeof *workers_usual; i++)
            kept &= run(requests, workers_usual[i], prompt_size);
    for (int i = 2; i < argc; i++) {
        uint32_t workers = number_of(argv[i]);
        if (workers == 0 || workers > WORKERS_MAX) {
            fprintf(stderr, "bench_scheduler: workers from 1 to %d, not %s\n", WORKERS_MAX,
                    argv[i]);
            return EX_USAGE;
        }
        kept &= run(requests, workers, prompt_size);
    }
    return kept ? EX_OK : EX_SOFTWARE;
}
