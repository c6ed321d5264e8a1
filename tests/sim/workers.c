/* SPDX-License-Identifier: Apache-2.0
 *
 * Worker processes as the protocol wants them, at the mercy of the machine: killed, stopped and
 * woken, cut off and connected again, replaced while they still live.
 */
#include <string.h>

#include "common/check.h"
#include "schemas/codec.h"
#include "tests/sim/sim.h"

enum { HEARTBEAT_MS = 600, STEP_MS = 60, EXPERTS = 4, PROFILE_COUNT = 2 * EXPERTS };

static bool leased(const struct sim *sim, const struct process *process)
{
    return sim->now_ms < process->lease_to_ms;
}

static void publish(struct sim *sim, struct process *process, const struct record *record)
{
    size_t index = (process->outbox_first + process->outbox_count) % OUTBOX_MAX;

    if (process->outbox_count == OUTBOX_MAX)
        sim_fail(sim, "the simulated outbox is too small");
    process->outbox[index] = *broker_copy(&sim->broker, record);
    process->outbox_count++;
}

static void flush(struct sim *sim, struct process *process)
{
    while (process->outbox_count > 0 && sim->now_ms >= process->stalled_to_ms) {
        const struct record *record = &process->outbox[process->outbox_first];
        struct message message = {record, {{0}}, sim->now_ms};
        broker_append(&sim->broker, TOPIC_WORKER_EVENTS, (int32_t)process->slot, &message);
        if (record->type == RECORD_PROGRESS && leased(sim, process)) {
            const struct progress *progress = &record->u.progress;
            struct truth *truth = &sim->requests[sim_number(sim, &progress->request_id)];
            uint32_t end = progress->first_index + (uint32_t)progress->ids.count;
            if (end > truth->published)
                truth->published = end;
        }
        process->outbox_first = (process->outbox_first + 1) % OUTBOX_MAX;
        process->outbox_count--;
        if (sim_chance(sim, 1, 10))
            process->stalled_to_ms = sim->now_ms + sim_between(sim, 1, 30);
    }
}

static void start(struct sim *sim, uint32_t slot)
{
    struct process *process = &sim->processes[sim->processes_count];
    struct record record = {.type = RECORD_HELLO};

    if (sim->processes_count == PROCESSES_MAX)
        return;
    *process = (struct process){
        .exists = true,
        .slot = slot,
        .incarnation = sim_id(2, ++sim->processes_count),
        .started_ms = sim->now_ms,
        .heartbeat_ms = sim->now_ms + HEARTBEAT_MS / 4,
        .batch_size = 1,
        .assignments_offset =
            (int64_t)broker_log(&sim->broker, TOPIC_ASSIGNMENTS, (int32_t)slot)->count,
        .events_offset =
            (int64_t)broker_log(&sim->broker, TOPIC_WORKER_EVENTS, (int32_t)slot)->count,
    };
    record.u.hello = (struct hello){
        .slot = slot,
        .incarnation = process->incarnation,
        .model = str_from("m"),
        .revision = str_from("r"),
        .numerics_id = str_from("f32"),
        .hardware = str_from("sim"),
        .precision = str_from("f32"),
        .max_seqs = 8,
        .max_context = 100,
        .kv_tokens = 400,
        .experts = EXPERTS,
        .sent_ms = sim->now_ms,
    };
    sim_log(sim, "process %u starts in slot %u", sim->processes_count, slot);
    publish(sim, process, &record);
}

static void drop(struct process *process, size_t index)
{
    process->held[index] = process->held[--process->held_count];
}

static size_t find_held(const struct process *process, uint32_t number)
{
    size_t i = 0;

    while (i < process->held_count && process->held[i].number != number)
        i++;
    return i;
}

static void on_assignment(struct sim *sim, struct process *process,
                          const struct assignment *assignment)
{
    uint32_t number = sim_number(sim, &assignment->request.request_id);
    size_t index = find_held(process, number);

    if (index < process->held_count && process->held[index].attempt >= assignment->attempt)
        return;
    if (index == process->held_count)
        process->held_count++;
    CHECK(process->held_count <= HELD_MAX);
    process->held[index] = (struct held){
        .number = number,
        .attempt = assignment->attempt,
        .position = (uint32_t)assignment->prefix.count,
        .reported = (uint32_t)assignment->prefix.count,
    };
}

static void on_command(struct sim *sim, struct process *process, const struct record *record)
{
    /* The three commands begin with epoch and incarnation. */
    const struct lease_renewal *renewal = &record->u.lease_renewal;
    size_t index;

    if (renewal->epoch < process->epoch ||
        !request_id_equal(&renewal->incarnation, &process->incarnation))
        return;
    process->epoch = renewal->epoch;
    if (record->type == RECORD_ASSIGNMENT) {
        on_assignment(sim, process, &record->u.assignment);
    } else if (record->type == RECORD_LEASE_RENEWAL) {
        int64_t to_ms = process->heartbeat_sent_ms[renewal->heartbeat_seq % 256] + LEASE_MS;
        if (to_ms > process->lease_to_ms)
            process->lease_to_ms = to_ms;
        process->batch_size = renewal->batch_size;
    } else if (record->type == RECORD_CANCEL) {
        sim_log(sim, "process %u reads Cancel of request %u attempt %u",
                process->incarnation.bytes[15], record->u.cancel.request_id.bytes[15],
                record->u.cancel.attempt);
        index = find_held(process, sim_number(sim, &record->u.cancel.request_id));
        if (index < process->held_count && process->held[index].attempt == record->u.cancel.attempt)
            drop(process, index);
    }
}

/* False: a newer Hello came into the slot, and this process ends. */
static bool read_topics(struct sim *sim, struct process *process)
{
    struct message_log *commands =
        broker_log(&sim->broker, TOPIC_ASSIGNMENTS, (int32_t)process->slot);
    struct message_log *events =
        broker_log(&sim->broker, TOPIC_WORKER_EVENTS, (int32_t)process->slot);

    if (sim->now_ms < process->stalled_to_ms || sim_chance(sim, 1, 4))
        return true;
    while (process->assignments_offset < (int64_t)commands->count)
        on_command(sim, process, commands->items[process->assignments_offset++].record);
    for (; process->events_offset < (int64_t)events->count; process->events_offset++) {
        const struct record *record = events->items[process->events_offset].record;
        if (record->type == RECORD_HELLO && record->u.hello.sent_ms > process->started_ms)
            return false;
    }
    return true;
}

static void report(struct sim *sim, struct process *process, struct held *held)
{
    struct truth *truth = &sim->requests[held->number];
    int32_t ids[ANSWER_MAX], profile[PROFILE_COUNT];
    struct record record = {.type = RECORD_PROGRESS};

    for (uint32_t i = 0; i < PROFILE_COUNT; i++)
        profile[i] = (int32_t)(held->number * (i + 7) % 64);

    for (uint32_t i = 0; i < held->position; i++)
        ids[i] = sim_token(held->number, i);
    record.u.progress = (struct progress){
        .slot = process->slot,
        .incarnation = process->incarnation,
        .request_id = truth->id,
        .attempt = held->attempt,
        .first_index = held->reported,
        .ids = {ids + held->reported, held->position - held->reported},
        .profile = {profile, held->number % 5 ? PROFILE_COUNT : 0},
    };
    if (held->position > held->reported)
        publish(sim, process, &record);
    held->reported = held->position;
    if (held->position < truth->answer_count)
        return;
    record = (struct record){
        .type = RECORD_DONE,
        .u.done = {.slot = process->slot,
                   .incarnation = process->incarnation,
                   .request_id = truth->id,
                   .attempt = held->attempt,
                   .text = str_from("text"),
                   .ids = {ids, held->position},
                   .finish_reason = FINISH_STOP,
                   .usage = {.prompt_tokens_uncached = 4, .output_tokens = held->position},
                   .profile = {profile, PROFILE_COUNT}},
    };
    publish(sim, process, &record);
}

static void fail(struct sim *sim, struct process *process, const struct held *held,
                 enum failure_kind kind)
{
    struct record record = {
        .type = RECORD_FAILED,
        .u.failed = {process->slot,
                     process->incarnation,
                     sim->requests[held->number].id,
                     held->attempt,
                     kind,
                     {str_from("bad"), str_from("no"), str_from("")},
                     {.prompt_tokens_uncached = 1}},
    };

    sim_log(sim, "process %u fails request %u", process->incarnation.bytes[15], held->number);
    publish(sim, process, &record);
}

static void heartbeat(struct sim *sim, struct process *process)
{
    struct running running[HELD_MAX];
    struct record record = {.type = RECORD_HEARTBEAT};

    for (size_t i = 0; i < process->held_count; i++)
        running[i] =
            (struct running){sim->requests[process->held[i].number].id, process->held[i].attempt};
    process->heartbeat_seq++;
    process->heartbeat_sent_ms[process->heartbeat_seq % 256] = sim->now_ms;
    record.u.heartbeat = (struct heartbeat){
        .slot = process->slot,
        .incarnation = process->incarnation,
        .seq = process->heartbeat_seq,
        .sent_ms = sim->now_ms,
        .running = running,
        .running_count = process->held_count,
        .draining = process->draining,
    };
    publish(sim, process, &record);
    process->heartbeat_ms = sim->now_ms + HEARTBEAT_MS;
}

/* One token for each sequence of the batch. False: the process died of it. */
static bool step(struct sim *sim, struct process *process)
{
    process->step_ms = sim->now_ms + STEP_MS;
    for (size_t i = 0; i < process->held_count && i < process->batch_size;) {
        struct held *held = &process->held[i];
        struct truth *truth = &sim->requests[held->number];
        checker_token(sim, process, held->number);
        if (truth->poison && held->position + 1 >= truth->answer_count)
            return false;
        if (truth->reject || sim_trouble(sim, 1500)) {
            fail(sim, process, held, truth->reject ? FAILURE_REJECT : FAILURE_RETRY);
            drop(process, i);
            continue;
        }
        if (held->position < truth->answer_count)
            held->position++;
        if (held->position == truth->answer_count || sim_chance(sim, 1, 2))
            report(sim, process, held);
        if (held->position == truth->answer_count)
            drop(process, i);
        else
            i++;
    }
    return true;
}

static void leave(struct sim *sim, struct process *process)
{
    struct record record = {.type = RECORD_GOODBYE};

    record.u.goodbye = (struct goodbye){process->slot, process->incarnation, sim->now_ms};
    if (sim_chance(sim, 1, 2))
        for (size_t i = 0; i < process->held_count; i++) {
            struct record yield = {
                .type = RECORD_YIELD,
                .u.yield = {process->slot, process->incarnation,
                            sim->requests[process->held[i].number].id, process->held[i].attempt,
                            str_from("drain")},
            };
            publish(sim, process, &yield);
        }
    process->held_count = 0;
    publish(sim, process, &record);
    process->leaving = true;
}

static void die(struct sim *sim, struct process *process, const char *why)
{
    sim_log(sim, "process of slot %u dies: %s", process->slot, why);
    process->exists = false;
}

static void process_step(struct sim *sim, struct process *process)
{
    if (process->stopped) {
        if (sim->now_ms < process->wake_ms)
            return;
        process->stopped = false;
        sim_log(sim, "process of slot %u wakes up", process->slot);
        if (sim_trouble(sim, 4)) /* it was told to end while it was stopped */
            leave(sim, process);
    }
    if (sim_trouble(sim, 6000)) {
        process->stopped = true;
        process->wake_ms = sim->now_ms + sim_between(sim, 50, 9000);
        sim_log(sim, "process of slot %u stops", process->slot);
        return;
    }
    if (sim_trouble(sim, 8000))
        process->stalled_to_ms = sim->now_ms + sim_between(sim, 50, 6000);
    flush(sim, process);
    if (process->leaving) {
        if (process->outbox_count == 0)
            die(sim, process, "it has left");
        return;
    }
    if (sim_trouble(sim, 9000))
        die(sim, process, "killed");
    else if (!read_topics(sim, process))
        die(sim, process, "a newer one is there");
    else if (sim_trouble(sim, 12000) || (process->draining && process->held_count == 0))
        leave(sim, process);
    else if (!process->draining && sim_trouble(sim, 6000)) {
        process->draining = true;
        process->heartbeat_ms = sim->now_ms;
    }
    if (!process->exists || process->leaving)
        return;
    if (sim->now_ms >= process->heartbeat_ms)
        heartbeat(sim, process);
    if (leased(sim, process) && sim->now_ms >= process->step_ms && !step(sim, process))
        die(sim, process, "poison");
}

void workers_step(struct sim *sim)
{
    bool taken[SIM_SLOTS] = {false};

    for (uint32_t i = 0; i < sim->processes_count; i++) {
        struct process *process = &sim->processes[i];
        if (process->exists)
            process_step(sim, process);
        if (!process->exists)
            continue;
        /* A supervisor may take a stopped process for dead and start another. */
        taken[process->slot] |= !(process->stopped && sim_trouble(sim, 300));
    }
    for (uint32_t slot = 0; slot < SIM_SLOTS; slot++)
        if (!taken[slot] && sim_chance(sim, 1, 40))
            start(sim, slot);
}
