BEGIN;
SET LOCAL ROLE pelton_owner;

CREATE TABLE pelton.kafka_offset (
    topic       text        NOT NULL,
    partition   integer     NOT NULL,
    cluster_id  text        NOT NULL,
    next_offset bigint      NOT NULL CHECK (next_offset >= 0),
    owner_epoch bigint      NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition)
);
COMMENT ON TABLE pelton.kafka_offset IS
    'Where the ledger goes on reading. Written in the same transaction as the rows, so that rows and offset never disagree.';
COMMENT ON COLUMN pelton.kafka_offset.owner_epoch IS
    'The ledger that may write: one with a smaller epoch is a zombie and its transaction fails.';
COMMENT ON COLUMN pelton.kafka_offset.cluster_id IS
    'The Kafka cluster that the offset belongs to: on another one it would skip records silently.';

CREATE SEQUENCE pelton.ledger_epoch;

CREATE TABLE pelton.ledger_error (
    topic         text        NOT NULL,
    partition     integer     NOT NULL,
    record_offset bigint      NOT NULL,
    reason        text        NOT NULL,
    record        bytea       NOT NULL,
    record_size   bigint      NOT NULL,
    seen_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition, record_offset)
);
COMMENT ON TABLE pelton.ledger_error IS
    'Records that could not be booked. Empty is the only good state: each one is work that nobody paid for yet.';
COMMENT ON COLUMN pelton.ledger_error.record IS 'Its first 64 KiB; record_size is the whole.';

GRANT SELECT, INSERT, UPDATE ON pelton.kafka_offset TO pelton_ledger;
GRANT SELECT, INSERT ON pelton.ledger_error TO pelton_ledger;
GRANT USAGE ON SEQUENCE pelton.ledger_epoch TO pelton_ledger;

COMMIT;
