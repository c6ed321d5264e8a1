/* SPDX-License-Identifier: Apache-2.0
 *
 * core - the scheduler's state, shared by the modules that make up the core.
 *
 *   intake     requests, cancels and bad messages become jobs or dead letters
 *   events     what workers report
 *   tick       leases, deadlines, cancels, renewals, housekeeping: what time brings
 *   assign     which worker gets which job
 *   compose    which of the waiting jobs, by the experts they use
 *   affinity   which workers are likely to have its beginning in their caches
 *   lifecycle  the one place where a job changes its state
 *   outputs    records for the tick's transaction
 *   restore    the state of an earlier leader
 *   torn       which ticks may be torn; what they left out
 *   scheduler  the public face: dispatch and gauges
 *
 * Only these files include this header; scheduler.h is the interface.
 */
#ifndef SCHEDULER_CORE_H
#define SCHEDULER_CORE_H

#include "common/arena.h"
#include "common/idmap.h"
#include "scheduler/deadlines.h"
#include "scheduler/holders.h"
#include "scheduler/job_map.h"
#include "scheduler/jobs.h"
#include "scheduler/queues.h"
#include "scheduler/runs.h"
#include "scheduler/scheduler.h"

/* A partition of a request topic. */
struct partition {
    struct job_list queued;  /* QUEUED jobs by offset: the head is the lowest not admitted */
    int64_t stored;          /* next offset that state names; -1 none */
    int64_t read;            /* next offset to read; -1 nothing read yet */
    int64_t reread_ms;       /* when it last brought what may be older than this leader */
    size_t payloads_missing; /* restored jobs whose request is still to be read again */
    int64_t trimmed;         /* done below here */
    int64_t trim, trim_next; /* the first that was needed in tick certain_from, certain_next */
    bool paused;
};

/* The end of an output partition; -1 unknown. */
struct output_end {
    enum topic topic;
    int32_t partition;
    int64_t offset;
    int64_t certain, certain_next; /* as it was before the tick certain_from, certain_next */
};

struct class_counts {
    uint64_t waiting_requests; /* QUEUED and RETURNED */
    uint64_t waiting_tokens;
    size_t waiting_size; /* bytes of payload */
};

/* The beginning of the job that is about to be assigned; scratch, and what came of it. */
struct affinity {
    struct holders *holders; /* NULL: switched off */
    struct prefix_chain chain;
    struct holder found[HOLDERS_MAX];
    uint32_t found_count;
    double prompt_mean; /* balance_prefill_work() of whole prompts, of those assigned lately */
    uint32_t budget;    /* that this tick may still spend, in bytes hashed */
    struct scheduler_prefixes totals;
};

/* DoneMarks of ticks that may be torn, in the order of the state: items[first...]. Only while
 * restoring. */
struct uncertain_marks {
    struct done_mark *items;
    size_t first, count, capacity;
};

struct scheduler {
    struct scheduler_config config;
    int64_t now_ms;          /* of the running step */
    struct actions *actions; /* of the running step */
    struct arena arena;      /* records of the actions; reset at COMMITTED */
    bool tick_due;           /* something is to be sent: the next tick writes its record */

    struct job_map jobs;      /* all but FINISHED ones */
    struct idmap *done_marks; /* number: body hash's first 4 bytes, then seconds of the finish */
    struct idmap *batches;    /* pointer */
    struct queues queues;
    struct model *model_any; /* name "" */
    struct deadlines deadlines;
    struct job_list returned;
    struct job_list finished;
    struct job_batch *cancelling; /* cancelled batches with jobs still to cancel */
    struct partition *partitions[CLASS_COUNT];
    struct slot *slots;
    struct run **by_fill; /* (slots), scratch of assign.c */
    struct profile_table *profiles;
    uint64_t prefill_mean; /* of this tick: balance_prefill_work() of a request in flight */
    struct affinity affinity;
    uint32_t compose_budget; /* cells of profiles that this tick may still look at */
    int64_t control_read;    /* next offset to read; -1 nothing read yet */
    struct output_end *outputs;
    size_t outputs_count;
    struct uncertain_marks uncertain;
    struct idmap *found; /* by id, of torn.c; NULL but while restoring */
    bool outputs_gone;   /* what is not found in results and usage may have been there */
    struct scheduler_torn torn;

    int64_t restored_ms;
    int64_t epoch;
    int64_t seq;
    int64_t tick_number; /* of the last Tick written; counts across epochs */
    int64_t tick_written_ms;
    int64_t certain_from, certain_next; /* ticks before it are certain; what it becomes next */
    int64_t certain_ms;                 /* when it moved */
    int64_t positions;                  /* changes whenever an input offset moves */
    int64_t positions_written;
    int64_t trim_ms;
    int64_t marks_oldest_ms; /* as of the last tick */
    size_t sweep_cursor;     /* into done_marks */

    struct class_counts classes[CLASS_COUNT];
    uint64_t in_flight;
    uint64_t results_total[4];
    uint64_t duplicates_total;
    uint64_t dead_letters_total;
    uint64_t reassigned_total;
    struct scheduler_work work;
};

/* ---- intake.c ---- */
void intake_request(struct scheduler *scheduler, const struct event *event);
void intake_bad_request(struct scheduler *scheduler, const struct event *event);
void intake_control(struct scheduler *scheduler, const struct event *event);
enum topic request_topic(int service_class);
/* NULL for a topic that carries no requests. */
struct partition *request_partition(const struct scheduler *scheduler, enum topic topic,
                                    int32_t partition);
/* Lowest offset of the partition that is not admitted; -1 unknown. */
int64_t partition_next_offset(const struct partition *partition);

/* ---- events.c ---- */
void events_worker(struct scheduler *scheduler, const struct event *event);
/* The slot's events are read to the end that was asked for. */
void events_end(struct scheduler *scheduler, uint32_t slot);
/* Treats a Done or Failed of the job's newest attempt. */
void events_outcome(struct scheduler *scheduler, struct job *job, const struct record *record);

/* ---- tick.c ---- */
void tick_run(struct scheduler *scheduler);
/* Writes WorkerTime up to the run's last heartbeat and, unless superseded, its WorkerMark. */
void tick_worker_time(struct scheduler *scheduler, struct run *run);

/* ---- assign.c ---- */
void assign_all(struct scheduler *scheduler);

/* ---- compose.c ---- */
/* What is known of the experts that the job will use at this run; the table's own; NULL: nothing.
 */
const struct profile *compose_predict(struct scheduler *scheduler, const struct run *run,
                                      const struct job *job);
/* A finished answer tells about the next ones. The job has its payload. */
void compose_learn(struct scheduler *scheduler, const struct run *run, const struct job *job,
                   const struct profile *seen);
/* Adds the profile to what the run's experts have to do, or takes it away. */
void compose_count(struct run *run, const struct profile *profile, bool add);
/* The profile's job was just given to the run. */
void compose_assigned(struct run *run, const struct profile *profile);
/* The job that goes next instead of the oldest of its flow, or that one. */
struct job *compose_choose(struct scheduler *scheduler, const struct run *run, struct job *oldest);

/* ---- affinity.c ---- */
void affinity_begin_tick(struct scheduler *scheduler);
/* Looks for the job's beginning; the functions below speak of this job until the next look. */
void affinity_look(struct scheduler *scheduler, const struct job *job);
/* Tokens of its prompt that this run is likely to have. */
uint64_t affinity_cached(const struct scheduler *scheduler, const struct run *run);
/* The share of a prompt that jobs of the lane are likely to find at other runs and not at this one;
 * 0 also where nobody has it: it is to be computed wherever it goes. */
double affinity_missing(const struct scheduler *scheduler, const struct run *run,
                        const struct lane *lane);
/* It was given to this run. */
void affinity_assigned(struct scheduler *scheduler, const struct job *job, const struct run *run);
/* A worker says Hello: it holds nothing. */
void affinity_hello(struct scheduler *scheduler, struct run *run);
/* The RUNNING job's answer has come, with what its worker found in its cache. */
void affinity_done(struct scheduler *scheduler, const struct job *job,
                   const struct token_usage *usage);

/* ---- lifecycle.c ---- */
/* Has it killed so many workers that nothing else may run beside it? */
bool job_runs_alone(const struct scheduler *scheduler, const struct job *job);
enum job_length job_length(const struct scheduler *scheduler, const struct job *job);
/* The only function that changes a job's state. run: for RUNNING only, else NULL. */
void job_change(struct scheduler *scheduler, struct job *job, enum job_state to, struct run *run);
/* Connects batch, model and payload to a job that lacks them, in whatever state it is. */
void job_attach(struct scheduler *scheduler, struct job *job, const struct request *request);
/* What is now known of the job's experts; owned from here on. The job is RUNNING. */
void job_set_profile(struct job *job, struct profile *profile);
/* Its first answer ids are there: its prefill does not queue any more. The job is RUNNING. */
void job_prefilled(const struct scheduler *scheduler, struct job *job);
/* Next attempt, at this run: InFlight and Assignment. cached: prompt tokens that it is likely not
 * to compute. */
void job_assign(struct scheduler *scheduler, struct job *job, struct run *run, uint64_t cached);
/* Its attempt is over without an outcome; it waits for the next, or is a dead letter after too
 * many crashes. why: for the error message. */
void job_return(struct scheduler *scheduler, struct job *job, bool crash, const char *why);
/* After too many crashes: a dead letter, and the error result that goes with it. */
void job_give_up(struct scheduler *scheduler, struct job *job, const char *why);
/* One Result, one Usage, one DoneMark; the job is FINISHED. */
struct outcome {
    enum result_status status;
    struct failure failure;
    const struct done *done;         /* COMPLETED only */
    const struct token_usage *usage; /* NULL: what is known of an unfinished attempt */
};
void job_finish(struct scheduler *scheduler, struct job *job, const struct outcome *outcome);
/* Expired or cancelled: like job_finish, and a Cancel to the worker that has it. */
void job_stop(struct scheduler *scheduler, struct job *job, enum result_status status,
              const char *message);

struct job *job_find(const struct scheduler *scheduler, const struct request_id *id);
struct job *job_open(struct scheduler *scheduler, const struct request_id *id,
                     enum service_class service_class, int32_t partition, int64_t offset);
struct job_batch *batch_open(struct scheduler *scheduler, struct str tenant, struct str batch_id);
void batch_release(struct scheduler *scheduler, struct job_batch *batch);
/* Remembers the id; hash: body_hash or NULL where it is not known. */
void done_mark_put(struct scheduler *scheduler, const struct request_id *id, const uint8_t *hash,
                   int64_t finished_ms);
bool done_mark_agrees(union idmap_value mark, const uint8_t *hash);

/* ---- outputs.c ---- */
/* Zeroed, in the arena. */
struct record *output_record(struct scheduler *scheduler, enum record_type type);
struct str output_copy(struct scheduler *scheduler, struct str from);
struct action *output_action(struct scheduler *scheduler, enum action_type type);
void output_result(struct scheduler *scheduler, const struct job *job,
                   const struct outcome *outcome);
void output_usage(struct scheduler *scheduler, const struct usage *usage);
/* What the job's DoneMark says, but for what output_done_mark() adds: when, and which tick. */
struct done_mark done_mark_of(const struct job *job, enum result_status status);
void output_done_mark(struct scheduler *scheduler, const struct done_mark *mark);
void output_in_flight(struct scheduler *scheduler, const struct job *job);
void output_assignment(struct scheduler *scheduler, const struct job *job);
void output_cancel(struct scheduler *scheduler, const struct run *run, const struct request_id *id,
                   uint32_t attempt);
void output_renewal(struct scheduler *scheduler, const struct run *run);
void output_worker_mark(struct scheduler *scheduler, const struct run *run);
void output_worker_time(struct scheduler *scheduler, const struct run *run);
void output_tick(struct scheduler *scheduler);
/* A job's or record's Request goes to dead-letters. */
void output_dead_letter(struct scheduler *scheduler, const struct request *request,
                        struct position origin, struct str reason);
struct request output_request(const struct job *job);
/* The usage row that a result implies. */
struct usage usage_of_result(const struct result *result);
struct str output_format(struct scheduler *scheduler, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- restore.c ---- */
void restore_state(struct scheduler *scheduler, const struct record *record);
void restore_deleted(struct scheduler *scheduler, const struct request_id *id);
void restore_finish(struct scheduler *scheduler);
/* Forgets the id's job, if there is one. */
void restore_forget(struct scheduler *scheduler, const struct request_id *id);
void output_end(struct scheduler *scheduler, const struct position *position);

/* ---- torn.c ---- */
/* Of the state, in its order. */
void torn_restore_mark(struct scheduler *scheduler, const struct done_mark *mark);
void torn_restore_tick(struct scheduler *scheduler, const struct tick *tick);
/* Result, Usage or WorkerTime; after all of the state. */
void torn_restore_output(struct scheduler *scheduler, const struct record *record);
/* All is read: completes what is half there. Jobs that run again have their entries and are in no
 * state yet. */
void torn_settle(struct scheduler *scheduler);
void torn_free(struct scheduler *scheduler);
/* Before a Tick record is written: moves on what is certain, and trims what nobody can need. */
void torn_begin_tick(struct scheduler *scheduler);
/* So many ticks up to the next one may be torn, as far as is known now. */
int64_t torn_uncertain(const struct scheduler *scheduler);

#endif
