/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings come in three layers: ours that a user may change, the user's, and those that
 * correctness rests on, which nobody may change.
 */
#include "common/kafka.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/check.h"
#include "common/log.h"

struct setting {
    const char *name;
    const char *value;
    const char *reason;
};

static const struct setting common_defaults[] = {
    {"reconnect.backoff.max.ms", "500", "10 s, librdkafka's own, outlasts a broker's restart"},
    {"topic.metadata.refresh.interval.ms", "3000",
     "a client that opens while a dead broker still leads on paper learns of the new leader only "
     "then: after 5 minutes, with librdkafka's own"},
    {"socket.keepalive.enable", "true", "a dead peer is noticed without traffic"},
    {"log.connection.close", "false", "brokers close idle connections all day"},
};
static const struct setting producer_defaults[] = {
    {"compression.codec", "lz4", "JSON shrinks to a third"},
    {"queue.buffering.max.kbytes", "131072", "1 GB, librdkafka's own, is no bound here"},
    {"linger.ms", "5", "batches without a delay that a person notices"},
};
static const struct setting reader_defaults[] = {
    {"fetch.wait.max.ms", "100", "an assignment waits for the fetch that is under way"},
    {"fetch.error.backoff.ms", "100", ""},
    {"queued.max.messages.kbytes", "32768", "two of the largest messages"},
};
static const struct setting member_defaults[] = {
    {"socket.timeout.ms", "5000",
     "closing waits so long for the answer to a commit: after 60 s, librdkafka's own, it is over"},
};

static const struct setting common_required[] = {
    {"message.max.bytes", "18874368", "topics take 18 MiB"},
    {"allow.auto.create.topics", "false", "a mistyped prefix must not make topics"},
};
static const struct setting producer_required[] = {
    {"enable.idempotence", "true", "retries must neither double nor reorder"},
    {"acks", "all", "an acknowledged request survives a broker"},
    {"partitioner", "murmur2_random", "the same key goes where Java clients send it"},
};
static const struct setting reader_required[] = {
    {"isolation.level", "read_committed", "what an aborted transaction wrote never happened"},
    {"auto.offset.reset", "error", "an offset out of range stops the program, it never skips"},
    {"enable.auto.commit", "false", "positions are stored with the work, not with the reading"},
    {"enable.auto.offset.store", "false", "as above"},
    {"enable.partition.eof", "true", "a reload must know when it has read all"},
};
static const struct setting member_required[] = {
    {"partition.assignment.strategy", "cooperative-sticky",
     "with range a newcomer took the leader's partition in one of five joins"},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool conf_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct err *err)
{
    char text[200];

    if (rd_kafka_conf_set(conf, name, value, text, sizeof text) == RD_KAFKA_CONF_OK)
        return true;
    return err_set(err, ERR_REJECT, "Kafka setting %s=%s: %s", name, value, text);
}

static bool conf_set_all(rd_kafka_conf_t *conf, const struct setting *settings, size_t count,
                         struct err *err)
{
    for (size_t i = 0; i < count; i++)
        if (!conf_set(conf, settings[i].name, settings[i].value, err))
            return false;
    return true;
}

/* False if the conf holds another value than the one that is required: the user's doing. */
static bool conf_require(rd_kafka_conf_t *conf, const struct config_list *user,
                         const struct setting *settings, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct setting *setting = &settings[i];
        size_t size = strlen(setting->name);

        for (size_t u = 0; u < user->count; u++) {
            const char *text = user->items[u];
            if (strncmp(text, setting->name, size) == 0 && text[size] == '=' &&
                strcasecmp(text + size + 1, setting->value) != 0)
                return err_set(err, ERR_REJECT, "Kafka setting %s: it must be %s here (%s)", text,
                               setting->value, setting->reason);
        }
        if (!conf_set(conf, setting->name, setting->value, err))
            return false;
    }
    return true;
}

static bool conf_set_user(rd_kafka_conf_t *conf, const struct config_list *user, struct err *err)
{
    for (size_t i = 0; i < user->count; i++) {
        const char *text = user->items[i];
        const char *equals = strchr(text, '=');
        char name[128];

        if (!equals || equals == text || (size_t)(equals - text) >= sizeof name)
            return err_set(err, ERR_REJECT, "Kafka setting \"%s\": expected key=value", text);
        memcpy(name, text, (size_t)(equals - text));
        name[equals - text] = '\0';
        if (!conf_set(conf, name, equals + 1, err))
            return false;
    }
    return true;
}

static void on_log(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    /* syslog's levels. LOG_ERR (3) is a warning here: mostly a broker that is away for a moment. */
    enum log_level ours = level <= 2   ? LOG_LEVEL_ERROR
                          : level <= 4 ? LOG_LEVEL_WARN
                          : level <= 6 ? LOG_LEVEL_INFO
                                       : LOG_LEVEL_DEBUG;

    log_write(ours, "kafka", "client=%s facility=%s message=%s",
              client ? rd_kafka_name(client) : "-", facility, text);
}

/* Without this callback, passing trouble would come out of the consumer's poll. on_log() has
 * reported all of it but what is fatal, which kafka_healthy() returns. */
static void on_error(rd_kafka_t *client, int code, const char *reason, void *context)
{
    (void)context;
    LOG_DEBUG("kafka_error", "client=%s code=%s reason=%s", rd_kafka_name(client),
              rd_kafka_err2name((rd_kafka_resp_err_t)code), reason);
}

static bool conf_producer(rd_kafka_conf_t *conf, enum kafka_role role,
                          const struct kafka_options *options, struct err *err)
{
    char timeout[24];

    if (!conf_require(conf, &options->settings, producer_required, COUNT(producer_required), err))
        return false;
    if (options->delivered)
        rd_kafka_conf_set_dr_msg_cb(conf, options->delivered);
    if (role != KAFKA_TRANSACTIONAL)
        return true;
    CHECK(options->transactional_id);
    snprintf(timeout, sizeof timeout, "%lld", (long long)options->transaction_timeout_ms);
    return conf_set(conf, "transactional.id", options->transactional_id, err) &&
           (options->transaction_timeout_ms == 0 ||
            conf_set(conf, "transaction.timeout.ms", timeout, err));
}

static bool conf_reader(rd_kafka_conf_t *conf, enum kafka_role role,
                        const struct kafka_options *options, struct err *err)
{
    /* librdkafka refuses rd_kafka_assign() without a group.id; a reader never joins its group. */
    const char *group_id = options->group_id ? options->group_id : options->client_id;

    CHECK(role != KAFKA_MEMBER || options->group_id);
    if (!conf_require(conf, &options->settings, reader_required, COUNT(reader_required), err) ||
        !conf_set(conf, "group.id", group_id, err))
        return false;
    if (role != KAFKA_MEMBER)
        return true;
    if (options->rebalance)
        rd_kafka_conf_set_rebalance_cb(conf, options->rebalance);
    return conf_require(conf, &options->settings, member_required, COUNT(member_required), err);
}

bool kafka_open(rd_kafka_t **client, enum kafka_role role, const struct kafka_options *options,
                struct err *err)
{
    bool produces = role == KAFKA_PRODUCER || role == KAFKA_TRANSACTIONAL;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char text[200];
    bool ok;

    rd_kafka_conf_set_log_cb(conf, on_log);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_opaque(conf, options->context);
    ok = (options->brokers[strspn(options->brokers, ", ")] ||
          err_set(err, ERR_REJECT, "brokers: no broker is named")) &&
         conf_set(conf, "bootstrap.servers", options->brokers, err) &&
         conf_set(conf, "client.id", options->client_id, err) &&
         conf_set_all(conf, common_defaults, COUNT(common_defaults), err) &&
         (produces ? conf_set_all(conf, producer_defaults, COUNT(producer_defaults), err)
                   : conf_set_all(conf, reader_defaults, COUNT(reader_defaults), err)) &&
         (role != KAFKA_MEMBER ||
          conf_set_all(conf, member_defaults, COUNT(member_defaults), err)) &&
         conf_set_user(conf, &options->settings, err) &&
         conf_require(conf, &options->settings, common_required, COUNT(common_required), err) &&
         (produces ? conf_producer(conf, role, options, err)
                   : conf_reader(conf, role, options, err));
    if (!ok) {
        rd_kafka_conf_destroy(conf);
        return false;
    }
    *client =
        rd_kafka_new(produces ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (!*client) { /* the conf stays ours */
        rd_kafka_conf_destroy(conf);
        return err_set(err, ERR_REJECT, "Kafka client %s: %s", options->client_id, text);
    }
    if (!produces)
        rd_kafka_poll_set_consumer(*client);
    return true;
}

bool kafka_check(enum kafka_role role, const struct kafka_options *options, struct err *err)
{
    rd_kafka_t *client;

    if (!kafka_open(&client, role, options, err))
        return false;
    kafka_close(client, 0);
    return true;
}

enum err_kind kafka_err_kind(rd_kafka_resp_err_t code)
{
    switch (code) {
    case RD_KAFKA_RESP_ERR__QUEUE_FULL:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__RESOLVE:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__WAIT_COORD:
    case RD_KAFKA_RESP_ERR__RETRY:
    case RD_KAFKA_RESP_ERR__PURGE_QUEUE:
    case RD_KAFKA_RESP_ERR__PURGE_INFLIGHT:
    case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
    case RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION:
    case RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS:
    case RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_COORDINATOR:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
    case RD_KAFKA_RESP_ERR_NOT_CONTROLLER:
    case RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR:
    case RD_KAFKA_RESP_ERR_OFFSET_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH:
    case RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH:
    case RD_KAFKA_RESP_ERR_UNKNOWN: /* UNKNOWN_SERVER_ERROR: a broker's own bug or bad moment */
    case RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS:
        return ERR_RETRY;
    case RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION:
    case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
    case RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS:
        return ERR_ABORT;
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
    case RD_KAFKA_RESP_ERR_INVALID_MSG:
        return ERR_REJECT;
    default:
        return ERR_FATAL;
    }
}

bool kafka_code(rd_kafka_resp_err_t code, const char *what, struct err *err)
{
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        return true;
    return err_set(err, kafka_err_kind(code), "%s: %s (%s)", what, rd_kafka_err2str(code),
                   rd_kafka_err2name(code));
}

bool kafka_error(rd_kafka_error_t *error, const char *what, struct err *err)
{
    enum err_kind kind;

    if (!error)
        return true;
    if (rd_kafka_error_is_fatal(error))
        kind = ERR_FATAL;
    else if (rd_kafka_error_txn_requires_abort(error))
        kind = ERR_ABORT;
    else if (rd_kafka_error_is_retriable(error))
        kind = ERR_RETRY;
    else
        kind = kafka_err_kind(rd_kafka_error_code(error));
    err_set(err, kind, "%s: %s (%s)", what, rd_kafka_error_string(error),
            rd_kafka_error_name(error));
    rd_kafka_error_destroy(error);
    return false;
}

bool kafka_healthy(rd_kafka_t *client, struct err *err)
{
    char text[200];
    rd_kafka_resp_err_t code = rd_kafka_fatal_error(client, text, sizeof text);

    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        return true;
    return err_set(err, ERR_FATAL, "Kafka client %s: %s (%s)", rd_kafka_name(client), text,
                   rd_kafka_err2name(code));
}
