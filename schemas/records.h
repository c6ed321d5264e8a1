/* SPDX-License-Identifier: Apache-2.0
 *
 * records - every value that travels between the programs, as C structs.
 *
 * The .avsc files beside this header define the bytes; these structs mirror
 * them field for field, with the same names. Only schemas/codec.c translates
 * between the two, so no other module knows Avro. Which topic carries which
 * record, and who writes it, is the table of common/topics.h.
 *
 * Conventions: text is UTF-8 in struct str (not NUL-terminated, may be empty,
 * data may then be NULL). Times are milliseconds since 1970 UTC. Durations and
 * device times are microseconds. A request_id is the 16 bytes of its UUID here,
 * its 36-character text in Avro and in Kafka keys.
 *
 * Ownership: a record that codec_decode() returned owns all memory its fields
 * point to, until record_free(). For encoding, fields may point anywhere.
 */
#ifndef SCHEMAS_RECORDS_H
#define SCHEMAS_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct str {
    const char *data;
    size_t size; /* bytes */
};

/* A UUID: of a request, or (as incarnation) of one run of a worker. */
struct request_id {
    uint8_t bytes[16];
};

struct i32_array {
    const int32_t *items;
    size_t count;
};

enum service_class { CLASS_INTERACTIVE, CLASS_BULK, CLASS_COUNT };
enum endpoint { ENDPOINT_CHAT_COMPLETIONS, ENDPOINT_COMPLETIONS };
/* How a request ended. Everything but COMPLETED carries an error. */
enum result_status { RESULT_COMPLETED, RESULT_FAILED, RESULT_EXPIRED, RESULT_CANCELLED };
enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH };
/* REJECT: the request can never succeed. RETRY: this attempt failed, another may not. */
enum failure_kind { FAILURE_REJECT, FAILURE_RETRY };
enum stream_mode { STREAM_AUTO, STREAM_ON, STREAM_OFF }; /* AUTO: on for interactive only */
enum worker_role { ROLE_BOTH, ROLE_PREFILL, ROLE_DECODE };

/* ---- requests.{interactive,bulk}: one line of an OpenAI Batch file ---- */
struct request {
    struct request_id request_id;
    struct str tenant;
    struct str batch_id;
    struct str custom_id;
    enum service_class service_class;
    enum endpoint endpoint;
    struct str model;      /* body.model, "" accepts any */
    struct str body;       /* the line's "body" object, JSON text as submitted */
    uint8_t body_hash[32]; /* SHA-256 of body */
    uint32_t line;         /* 1-based line in its file; 0 unknown */
    int64_t submitted_ms;
    int64_t deadline_ms; /* 0: none */
    enum stream_mode stream;
};

/* ---- assignments (partition = slot): commands to one worker ---- */
struct assignment {
    int64_t epoch;                 /* of the scheduler; workers obey only the newest */
    struct request_id incarnation; /* of the worker it is meant for */
    uint32_t attempt;              /* 1 first */
    int64_t admitted_ms;           /* Kafka timestamp of the request */
    bool stream;                   /* publish TokenChunks */
    struct i32_array prefix;       /* accepted ids of earlier attempts, to be teacher-forced */
    struct request request;
};

struct lease_renewal {
    int64_t epoch;
    struct request_id incarnation;
    int64_t heartbeat_seq;     /* the lease runs from the sending of this Heartbeat */
    uint32_t batch_size;       /* sequences the worker may run at once from now on */
    uint32_t micro_batch_size; /* of a micro-batch, where it cuts steps; 0: its own choice */
};

struct cancel {
    int64_t epoch;
    struct request_id incarnation;
    struct request_id request_id;
    uint32_t attempt;
};

/* ---- worker-events (partition = slot): what a worker reports ---- */
struct hello {
    uint32_t slot;
    struct request_id incarnation; /* random at each start */
    struct str model;              /* name that requests address */
    struct str revision;           /* SHA-256 prefix over config and weight headers */
    struct str numerics_id;        /* mode and instruction set, e.g. "f32/cpu-avx512" */
    struct str hardware;           /* class for prices, e.g. "cpu-2" */
    struct str precision;          /* "f32", "bf16" */
    enum worker_role role;
    uint32_t max_seqs;          /* rows in its activation buffers */
    uint32_t max_context;       /* tokens of one sequence, prompt and answer */
    uint64_t kv_tokens;         /* tokens its KV cache holds */
    uint32_t experts;           /* per layer of its expert profiles; 0: it reports none */
    int64_t assignments_offset; /* end of its partition at start: older commands are not its own */
    int64_t sent_ms;
};

struct running {
    struct request_id request_id;
    uint32_t attempt;
};

struct heartbeat {
    uint32_t slot;
    struct request_id incarnation;
    int64_t seq; /* 1, 2, ... within the incarnation */
    int64_t sent_ms;
    int64_t up_since_ms;
    const struct running *running; /* every request it holds, queued or in a batch */
    size_t running_count;
    uint64_t kv_tokens_used;
    /* EWMA of the busiest expert's tokens per step over what it can do: 0 idle, 1 full */
    double load;
    const float *layer_load; /* the same by expert layer */
    size_t layer_load_count;
    int64_t step_us;        /* EWMA */
    double imbalance;       /* EWMA: busiest expert's tokens in a step over the mean */
    double experts_used;    /* EWMA: experts of a layer with work in a step */
    int64_t prefill_tokens; /* totals of the incarnation */
    int64_t decode_tokens;
    int64_t steps;
    int64_t busy_us; /* time spent in steps */
    bool draining;   /* it finishes or gives back what it holds, and takes nothing new */
};

struct progress {
    uint32_t slot;
    struct request_id incarnation;
    struct request_id request_id;
    uint32_t attempt;
    uint32_t first_index; /* index of ids[0] among the answer's ids */
    struct i32_array ids;
    struct i32_array profile; /* as Done's, so far; with the first Progress of an attempt */
};

/* What one attempt used. The prompt's tokens are uncached + cached. */
struct token_usage {
    uint32_t prompt_tokens_uncached;
    uint32_t prompt_tokens_cached;
    uint32_t output_tokens; /* forced prefix included */
    int64_t prefill_us;     /* its share of device time, by phase */
    int64_t decode_us;
    int64_t queue_us; /* from intake at the worker to its first step */
    int64_t run_us;   /* first step to last */
};

struct done {
    uint32_t slot;
    struct request_id incarnation;
    struct request_id request_id;
    uint32_t attempt;
    struct str text;      /* whole answer, forced prefix included, stop string removed */
    struct i32_array ids; /* all generated ids, the end mark included when there was one */
    enum finish_reason finish_reason;
    struct token_usage usage;
    /* Which experts its tokens chose: counts by layer (of those that are counted) and expert, each
     * layer scaled to 63 for its largest; empty where unknown */
    struct i32_array profile;
};

/* The OpenAI error object. code "" where nothing failed. */
struct failure {
    struct str code;    /* "context_length_exceeded", "invalid_value", ... */
    struct str message; /* a sentence: field, value, limit */
    struct str param;   /* field of the body, "" none */
};

struct failed {
    uint32_t slot;
    struct request_id incarnation;
    struct request_id request_id;
    uint32_t attempt;
    enum failure_kind kind;
    struct failure failure;
    struct token_usage usage;
};

/* The worker gives a request back unfinished (drain); what was accepted stays accepted. */
struct yield {
    uint32_t slot;
    struct request_id incarnation;
    struct request_id request_id;
    uint32_t attempt;
    struct str reason;
};

/* The worker leaves: nothing of it runs any more, its slot is free. */
struct goodbye {
    uint32_t slot;
    struct request_id incarnation;
    int64_t sent_ms;
};

/* ---- tokens: for users who stream ---- */
struct token_chunk {
    struct request_id request_id;
    struct str batch_id;
    struct str custom_id;
    uint32_t attempt;
    uint32_t first_index; /* of ids[0] among the answer's ids */
    struct i32_array ids;
    struct str text;            /* what these ids add to the text; whole code points */
    struct i32_array text_ends; /* end of each id's text, bytes from the start of text */
};

/* ---- results, usage: one of each for every request ---- */
struct result {
    struct request_id request_id;
    struct str tenant;
    struct str batch_id;
    struct str custom_id;
    enum service_class service_class;
    enum endpoint endpoint;
    struct str model;
    struct str revision;
    enum result_status status;
    struct str text;
    struct i32_array ids;
    enum finish_reason finish_reason;
    struct failure failure;
    struct token_usage usage;
    uint32_t attempt; /* 0: never assigned */
    uint32_t slot;
    struct str hardware;
    struct str precision;
    int64_t admitted_ms; /* Kafka timestamp of the request, never the attempt's */
    int64_t finished_ms;
};

struct usage {
    struct request_id request_id;
    int64_t admitted_ms;
    struct str tenant;
    struct str model;
    struct str revision;
    struct str batch_id;
    struct str custom_id;
    enum service_class service_class;
    enum result_status status;
    uint32_t attempt;
    struct token_usage usage;
    struct str precision;
    uint32_t slot;
    struct str hardware;
    int64_t finished_ms;
};

struct worker_time {
    uint32_t slot;
    struct request_id incarnation;
    struct str hardware;
    int64_t from_ms; /* intervals of one incarnation do not overlap */
    int64_t to_ms;
};

/* ---- state (compact): what a new leader needs; keys: state_key() in codec.h ---- */
struct in_flight {
    struct request_id request_id;
    struct str topic; /* where the request itself stands */
    int32_t partition;
    int64_t offset;
    uint32_t attempt;
    uint32_t crashes; /* attempts whose worker died */
    uint32_t slot;
    struct request_id incarnation;
    int64_t events_offset;   /* worker-events[slot] when assigned: its Progress stands behind it */
    struct i32_array prefix; /* accepted ids at the time of this attempt's assignment */
    int64_t admitted_ms;
    int64_t first_assigned_ms;
};

struct done_mark {
    struct request_id request_id;
    uint8_t body_hash[8]; /* first bytes of the request's body_hash */
    int64_t finished_ms;
    enum result_status status;
    /* Where the request itself stands, and what state held of it, should it have to run again: its
     * tick may turn out to be torn. */
    enum service_class service_class;
    int32_t partition;
    int64_t offset; /* -1 unknown */
    uint32_t attempt;
    uint32_t crashes;
    int64_t admitted_ms;
    int64_t tick;      /* number of the tick that wrote this; 0 unknown */
    int64_t uncertain; /* so many ticks up to this one might have been torn at that time */
};

struct partition_offset {
    struct str topic;
    int32_t partition;
    int64_t offset;
};

/* Positions of one committed tick. */
struct tick {
    int64_t epoch;
    int64_t seq;
    int64_t committed_ms;
    /* requests: lowest offset not admitted; worker-events and control: next to read */
    const struct partition_offset *next_input;
    size_t next_input_count;
    /* ends of results and usage before the first of the uncertain ticks */
    const struct partition_offset *outputs;
    size_t outputs_count;
    int64_t number;    /* 1, 2, ... across epochs */
    int64_t uncertain; /* so many ticks up to this one may have been torn */
};

/* A slot's last known worker, so that a takeover can adopt what it runs. */
struct worker_mark {
    struct hello hello;
    int64_t worker_time_to_ms; /* WorkerTime is written up to here */
};

/* ---- control (compact) ---- */
struct batch {
    struct str batch_id;
    struct str tenant;
    struct str file_name;
    uint8_t file_hash[32];
    uint64_t total;    /* lines submitted as requests */
    uint64_t rejected; /* lines that were error lines at once */
    enum service_class service_class;
    int64_t created_ms;
    int64_t deadline_ms;
    bool complete; /* all lines are produced; false while submitting */
    /* ends of results, tokens and dead-letters before the first request was sent */
    const struct partition_offset *first_offsets;
    size_t first_offsets_count;
    struct str retry_of; /* the tenant's job whose unanswered lines it runs again; "" none */
};

struct cancel_batch {
    struct str batch_id;
    struct str tenant;
    int64_t sent_ms;
};

/* Sent before the first Batch of a job: of several that begin at once, the first claim has the id.
 */
struct batch_claim {
    struct request_id claim; /* random, of this submission */
    struct str batch_id;
    struct str tenant;
    struct str file_name;
    uint8_t file_hash[32]; /* producer/claim.h */
    int64_t sent_ms;
    struct str retry_of; /* as Batch's */
};

enum record_type {
    RECORD_REQUEST,
    RECORD_ASSIGNMENT,
    RECORD_LEASE_RENEWAL,
    RECORD_CANCEL,
    RECORD_HELLO,
    RECORD_HEARTBEAT,
    RECORD_PROGRESS,
    RECORD_DONE,
    RECORD_FAILED,
    RECORD_YIELD,
    RECORD_GOODBYE,
    RECORD_TOKEN_CHUNK,
    RECORD_RESULT,
    RECORD_USAGE,
    RECORD_WORKER_TIME,
    RECORD_IN_FLIGHT,
    RECORD_DONE_MARK,
    RECORD_TICK,
    RECORD_WORKER_MARK,
    RECORD_BATCH,
    RECORD_CANCEL_BATCH,
    RECORD_BATCH_CLAIM,
    RECORD_TYPE_COUNT
};

struct record {
    enum record_type type;
    union {
        struct request request;
        struct assignment assignment;
        struct lease_renewal lease_renewal;
        struct cancel cancel;
        struct hello hello;
        struct heartbeat heartbeat;
        struct progress progress;
        struct done done;
        struct failed failed;
        struct yield yield;
        struct goodbye goodbye;
        struct token_chunk token_chunk;
        struct result result;
        struct usage usage;
        struct worker_time worker_time;
        struct in_flight in_flight;
        struct done_mark done_mark;
        struct tick tick;
        struct worker_mark worker_mark;
        struct batch batch;
        struct cancel_batch cancel_batch;
        struct batch_claim batch_claim;
    } u;
};

#endif
