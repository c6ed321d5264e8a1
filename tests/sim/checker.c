/* SPDX-License-Identifier: Apache-2.0
 *
 * The promises, checked against what is in the logs:
 *   - one result and one usage row a request, the right answer in it;
 *   - a next attempt is forced to say every token that may have been streamed;
 *   - crashes and accepted ids are never forgotten;
 *   - no two workers with a valid lease run the same request;
 *   - offsets in state pass nothing that is neither in flight nor finished, and never go back;
 *   - WorkerTime intervals of an incarnation do not overlap.
 */
#include <string.h>

#include "schemas/codec.h"
#include "tests/sim/sim.h"

static struct truth *truth_of(struct sim *sim, const struct request_id *id)
{
    return &sim->requests[sim_number(sim, id)];
}

static void check_ids(const struct sim *sim, const struct truth *truth, struct i32_array ids,
                      const char *where)
{
    uint32_t number = sim_number(sim, &truth->id);

    if (ids.count > truth->answer_count)
        sim_fail(sim, "request %u: %s has %zu ids of %u", number, where, ids.count,
                 truth->answer_count);
    for (uint32_t i = 0; i < ids.count; i++)
        if (ids.items[i] != sim_token(number, i))
            sim_fail(sim, "request %u: id %u of %s is wrong", number, i, where);
}

static void check_assignment(struct sim *sim, const struct assignment *assignment)
{
    struct truth *truth = truth_of(sim, &assignment->request.request_id);
    uint32_t number = sim_number(sim, &truth->id);

    sim_log(sim, "request %u is assigned to process %u, attempt %u, prefix %zu", number,
            assignment->incarnation.bytes[15], assignment->attempt, assignment->prefix.count);
    check_ids(sim, truth, assignment->prefix, "an assignment's prefix");
    if (sim->tears) /* what a torn transaction assigned is in nobody's books */
        return;
    if (assignment->attempt != truth->attempt + 1)
        sim_fail(sim, "request %u: attempt %u follows %u", number, assignment->attempt,
                 truth->attempt);
    truth->attempt = assignment->attempt;
    if (truth->results > 0)
        sim_fail(sim, "request %u is assigned although it has a result", number);
    if (assignment->prefix.count < truth->published)
        sim_fail(sim, "request %u: %u tokens may have been streamed, %zu are forced", number,
                 truth->published, assignment->prefix.count);
}

static void check_result(struct sim *sim, const struct result *result)
{
    struct truth *truth = truth_of(sim, &result->request_id);
    uint32_t number = sim_number(sim, &truth->id);

    if (++truth->results > 1)
        sim_fail(sim, "request %u has two results", number);
    check_ids(sim, truth, result->ids, "its result");
    if (result->status == RESULT_COMPLETED && result->ids.count != truth->answer_count)
        sim_fail(sim, "request %u: its answer is cut", number);
    if (result->status == RESULT_COMPLETED && (truth->poison || truth->reject))
        sim_fail(sim, "request %u cannot have an answer", number);
    if (result->status == RESULT_FAILED &&
        !(truth->poison || truth->reject || truth->unknown_model) &&
        !str_equal(result->failure.code, str_from("worker_crashed")))
        sim_fail(sim, "request %u failed with %s", number, result->failure.code.data);
    if (result->status == RESULT_EXPIRED && truth->deadline_ms == 0)
        sim_fail(sim, "request %u has no deadline and expired", number);
    if (result->status == RESULT_CANCELLED && !truth->cancelled)
        sim_fail(sim, "request %u was not cancelled", number);
    if (str_equal(result->failure.code, str_from("worker_crashed")) && truth->dead_letters == 0 &&
        !sim->tears)
        sim_fail(sim, "request %u is given up without a dead letter", number);
    sim_log(sim, "request %u ends with status %d in attempt %u", number, result->status,
            result->attempt);
}

static void check_usage(struct sim *sim, const struct usage *usage)
{
    struct truth *truth = truth_of(sim, &usage->request_id);

    /* After a tear a second row is allowed: the ledger takes one of each key. */
    if (++truth->usages > 1 && !sim->tears)
        sim_fail(sim, "request %u has two usage rows", sim_number(sim, &truth->id));
}

static void check_worker_time(struct sim *sim, size_t index)
{
    struct message_log *log = broker_log(&sim->broker, TOPIC_USAGE, 0);
    const struct worker_time *time = &log->items[index].record->u.worker_time;

    if (time->to_ms <= time->from_ms)
        sim_fail(sim, "a WorkerTime ends before it begins");
    for (size_t i = 0; i < index && !sim->tears; i++) {
        const struct record *record = log->items[i].record;
        const struct worker_time *other = &record->u.worker_time;
        if (record->type == RECORD_WORKER_TIME && other->from_ms < time->to_ms &&
            time->from_ms < other->to_ms &&
            request_id_equal(&other->incarnation, &time->incarnation))
            sim_fail(sim, "two WorkerTimes of slot %u overlap", time->slot);
    }
}

static void check_passed(const struct sim *sim, int kind, uint32_t partition, int64_t next)
{
    for (uint32_t i = 0; i < sim->requests_count; i++) {
        const struct truth *truth = &sim->requests[i];
        if (truth->first_offset >= 0 && truth->service_class == (enum service_class)kind &&
            truth->partition == (int32_t)partition && truth->first_offset < next && !truth->state &&
            !truth->forgotten)
            sim_fail(sim, "request %u at offset %lld is passed by %lld and forgotten", i,
                     (long long)truth->first_offset, (long long)next);
    }
}

static void check_tick(struct sim *sim, const struct tick *tick)
{
    if (tick->epoch < sim->tick_epoch ||
        (tick->epoch == sim->tick_epoch && tick->seq != sim->tick_seq + 1))
        sim_fail(sim, "tick %lld of epoch %lld follows %lld of %lld", (long long)tick->seq,
                 (long long)tick->epoch, (long long)sim->tick_seq, (long long)sim->tick_epoch);
    sim->tick_epoch = tick->epoch;
    sim->tick_seq = tick->seq;
    for (size_t i = 0; i < tick->next_input_count; i++) {
        const struct partition_offset *next = &tick->next_input[i];
        int kind =
            str_equal(next->topic, str_from("requests.bulk")) ? CLASS_BULK : CLASS_INTERACTIVE;
        int64_t *before = &sim->tick_next[kind][next->partition];
        if (kind == CLASS_INTERACTIVE && !str_equal(next->topic, str_from("requests.interactive")))
            continue;
        if (next->offset < *before)
            sim_fail(sim, "the stored offset goes back from %lld to %lld", (long long)*before,
                     (long long)next->offset);
        *before = next->offset;
    }
}

static void check_in_flight(struct sim *sim, const struct truth *truth,
                            const struct in_flight *in_flight)
{
    bool known = truth->state && truth->state->type == RECORD_IN_FLIGHT;
    const struct in_flight *before = known ? &truth->state->u.in_flight : NULL;

    check_ids(sim, truth, in_flight->prefix, "its entry's prefix");
    if (before && in_flight->crashes < before->crashes)
        sim_fail(sim, "request %u: crashes are forgotten", sim_number(sim, &truth->id));
    if (before && in_flight->prefix.count < before->prefix.count)
        sim_fail(sim, "request %u: its accepted prefix shrinks", sim_number(sim, &truth->id));
}

static void check_state(struct sim *sim, const struct message *message)
{
    const struct record *record = message->record;
    struct truth *truth;

    if (record && record->type == RECORD_TICK) {
        check_tick(sim, &record->u.tick);
        return;
    }
    if (record && record->type == RECORD_WORKER_MARK)
        return;
    truth = truth_of(sim, &message->id);
    /* Of a torn transaction only the mark may be there, and the request has no result. */
    if (truth->state && truth->state->type == RECORD_DONE_MARK && record &&
        !(sim->tears && truth->marked_alone))
        sim_fail(sim, "request %u is done and comes back", sim_number(sim, &truth->id));
    if (record && record->type == RECORD_IN_FLIGHT)
        check_in_flight(sim, truth, &record->u.in_flight);
    truth->marked_alone = truth->results == 0;
    truth->forgotten |= !record;
    truth->state = record;
}

static void look(struct sim *sim, enum topic topic,
                 void (*check)(struct sim *sim, const struct message *message))
{
    for (int32_t i = 0; i < SIM_PARTITIONS; i++) {
        struct message_log *log = broker_log(&sim->broker, topic, i);
        for (; sim->seen[topic][i] < log->count; sim->seen[topic][i]++)
            check(sim, &log->items[sim->seen[topic][i]]);
    }
}

static void look_at_dead_letter(struct sim *sim, const struct message *message)
{
    if (message->record)
        truth_of(sim, &message->id)->dead_letters++;
}

static void look_at_assignment(struct sim *sim, const struct message *message)
{
    if (message->record->type == RECORD_ASSIGNMENT)
        check_assignment(sim, &message->record->u.assignment);
}

static void look_at_result(struct sim *sim, const struct message *message)
{
    check_result(sim, &message->record->u.result);
}

static void look_at_usage(struct sim *sim, const struct message *message)
{
    if (message->record->type == RECORD_USAGE)
        check_usage(sim, &message->record->u.usage);
    else
        check_worker_time(sim, sim->seen[TOPIC_USAGE][0]);
}

void checker_step(struct sim *sim)
{
    look(sim, TOPIC_DEAD_LETTERS, look_at_dead_letter);
    look(sim, TOPIC_ASSIGNMENTS, look_at_assignment);
    look(sim, TOPIC_RESULTS, look_at_result);
    look(sim, TOPIC_USAGE, look_at_usage);
    look(sim, TOPIC_STATE, check_state);
    for (int kind = 0; kind < CLASS_COUNT; kind++)
        for (uint32_t i = 0; i < sim->config.request_partitions[kind]; i++)
            check_passed(sim, kind, i, sim->tick_next[kind][i]);
}

void checker_token(struct sim *sim, const struct process *process, uint32_t number)
{
    if (sim->tears)
        return;
    for (uint32_t i = 0; i < sim->processes_count; i++) {
        const struct process *other = &sim->processes[i];
        if (other == process || !other->exists || sim->now_ms >= other->lease_to_ms)
            continue;
        for (size_t at = 0; at < other->held_count; at++)
            if (other->held[at].number == number)
                sim_fail(sim, "request %u runs in slots %u and %u", number, process->slot,
                         other->slot);
    }
}

bool checker_complete(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->requests_count; i++)
        if (!sim->requests[i].submitted || sim->requests[i].results == 0 ||
            (sim->requests[i].state && sim->requests[i].state->type == RECORD_IN_FLIGHT))
            return false;
    return true;
}

void checker_finish(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->requests_count; i++) {
        const struct truth *truth = &sim->requests[i];
        if (truth->usages == 0)
            sim_fail(sim, "request %u has no usage row", i);
        if (!truth->state && !truth->forgotten)
            sim_fail(sim, "request %u has no mark", i);
    }
}
