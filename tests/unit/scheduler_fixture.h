/* SPDX-License-Identifier: Apache-2.0
 *
 * scheduler_fixture - a core with short words for what happens to it, for its unit tests.
 *
 * Ids are small numbers: request 7 has the id 00...07, incarnation 3 the id 00...03. Offsets count
 * up by themselves. Actions gather from commit to commit.
 */
#ifndef TESTS_UNIT_SCHEDULER_FIXTURE_H
#define TESTS_UNIT_SCHEDULER_FIXTURE_H

#include "scheduler/scheduler.h"

enum { FIXTURE_SLOTS = 8 };

struct fixture {
    struct scheduler_config config;
    struct scheduler *core;
    struct actions actions;
    int64_t now_ms;
    int64_t request_offset[CLASS_COUNT]; /* of the next message, partition 0 */
    int64_t event_offset[FIXTURE_SLOTS];
    int64_t control_offset;
    int64_t heartbeat_seq;
};

/* Lease 3000 ms (given up at 3501), batch 4, no assigning ahead, crashes_max 3, 1 MB waiting. */
struct scheduler_config fixture_config(void);
void fixture_open(struct fixture *fixture, const struct scheduler_config *config); /* + RESTORED */
void fixture_close(struct fixture *fixture);
/* Forgets the core, as a dead leader, and begins another; RESTORED is not sent. */
void fixture_takeover(struct fixture *fixture);

struct request_id id_of(uint32_t number);
/* A request as fixture_request() sends it, to be changed and sent by fixture_send_request(). */
struct request request_of(uint32_t number);

void fixture_step(struct fixture *fixture, const struct event *event);
void fixture_send_request(struct fixture *fixture, const struct request *request);
void fixture_request(struct fixture *fixture, uint32_t number); /* class interactive */
void fixture_restore(struct fixture *fixture, struct record record);
void fixture_restored(struct fixture *fixture);
void fixture_worker(struct fixture *fixture, uint32_t slot, struct record record);
void fixture_cancel(struct fixture *fixture, const char *tenant, const char *batch_id);

/* Workers of model "m", numerics "f32/x". */
struct hello hello_of(uint32_t slot, uint32_t incarnation);
void fixture_hello(struct fixture *fixture, uint32_t slot, uint32_t incarnation);
/* running: request numbers, all in attempt 1 unless the number is attempt * 1000 + request. */
void fixture_heartbeat(struct fixture *fixture, uint32_t slot, uint32_t incarnation,
                       const uint32_t *running, size_t count);
void fixture_progress(struct fixture *fixture, uint32_t slot, uint32_t incarnation, uint32_t number,
                      uint32_t attempt, uint32_t first_index, const int32_t *ids, size_t count);
void fixture_done(struct fixture *fixture, uint32_t slot, uint32_t incarnation, uint32_t number,
                  uint32_t attempt, const int32_t *ids, size_t count);
void fixture_failed(struct fixture *fixture, uint32_t slot, uint32_t incarnation, uint32_t number,
                    uint32_t attempt, enum failure_kind kind);
void fixture_goodbye(struct fixture *fixture, uint32_t slot, uint32_t incarnation);
void fixture_events_end(struct fixture *fixture, uint32_t slot);

/* Time passes, then a TICK. */
void fixture_tick(struct fixture *fixture, int64_t ms);
void fixture_commit(struct fixture *fixture);
void fixture_tick_commit(struct fixture *fixture, int64_t ms);

/* Since the last commit. */
size_t count_actions(const struct fixture *fixture, enum action_type type);
size_t count_records(const struct fixture *fixture, enum record_type type);
/* The nth (0 first); the test fails where there are fewer. */
const struct action *action_at(const struct fixture *fixture, enum action_type type, size_t nth);
const struct record *record_at(const struct fixture *fixture, enum record_type type, size_t nth);
/* The offset that the last Tick names, or -1. */
int64_t tick_offset(const struct fixture *fixture, enum topic topic, int32_t partition);
struct scheduler_gauges gauges_of(const struct fixture *fixture);

#endif
