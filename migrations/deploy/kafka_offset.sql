-- SPDX-License-Identifier: Apache-2.0
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
    'Where the ledger goes on reading. Written in the same transaction as the rows, so that '
    'rows and offset never disagree.';
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
    'Records that could not be booked. Empty is the only good state: each one is work that '
    'nobody paid for yet.';
COMMENT ON COLUMN pelton.ledger_error.record IS 'Its first 64 KiB; record_size is the whole.';

-- A ledger makes a partition its own, at its start and again after every lost connection, and
-- learns where to go on; first_offset is the beginning of a partition that nobody has read yet.
CREATE FUNCTION pelton.claim_offset(of_topic text, of_partition integer, of_cluster text,
                                    first_offset bigint, epoch bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held pelton.kafka_offset;
BEGIN
    INSERT INTO pelton.kafka_offset (topic, partition, cluster_id, next_offset, owner_epoch)
    VALUES (of_topic, of_partition, of_cluster, first_offset, epoch)
    ON CONFLICT DO NOTHING;
    SELECT * INTO held FROM pelton.kafka_offset
    WHERE topic = of_topic AND partition = of_partition FOR UPDATE;
    IF held.cluster_id <> of_cluster THEN
        RAISE 'the stored offset of %[%] belongs to Kafka cluster %, this is cluster %',
            of_topic, of_partition, held.cluster_id, of_cluster USING ERRCODE = 'PL003';
    END IF;
    IF held.owner_epoch > epoch THEN
        RAISE '%[%] belongs to the newer ledger of epoch %, this one has epoch %',
            of_topic, of_partition, held.owner_epoch, epoch USING ERRCODE = 'PL001';
    END IF;
    UPDATE pelton.kafka_offset SET owner_epoch = epoch
    WHERE topic = of_topic AND partition = of_partition;
    RETURN held.next_offset;
END
$$;

-- Moves an offset together with the rows of the caller's transaction. It raises instead of
-- returning false, so that a pipelined transaction fails as a whole: PL001 another ledger is the
-- owner, PL002 the offset is not where the caller believes.
CREATE FUNCTION pelton.advance_offset(of_topic text, of_partition integer, expected bigint,
                                      next bigint, epoch bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held pelton.kafka_offset;
BEGIN
    UPDATE pelton.kafka_offset SET next_offset = next, updated_at = now()
    WHERE topic = of_topic AND partition = of_partition AND next_offset = expected
      AND owner_epoch = epoch;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT * INTO held FROM pelton.kafka_offset
    WHERE topic = of_topic AND partition = of_partition;
    IF held.owner_epoch IS DISTINCT FROM epoch THEN
        RAISE '%[%] belongs to the ledger of epoch %, this one has epoch %',
            of_topic, of_partition, held.owner_epoch, epoch USING ERRCODE = 'PL001';
    END IF;
    RAISE 'the offset of %[%] is %, not %', of_topic, of_partition, held.next_offset, expected
        USING ERRCODE = 'PL002';
END
$$;

REVOKE ALL ON FUNCTION pelton.claim_offset(text, integer, text, bigint, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION pelton.advance_offset(text, integer, bigint, bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pelton.claim_offset(text, integer, text, bigint, bigint),
    pelton.advance_offset(text, integer, bigint, bigint, bigint) TO pelton_ledger;
GRANT SELECT, INSERT, UPDATE ON pelton.kafka_offset TO pelton_ledger;
GRANT SELECT, INSERT ON pelton.ledger_error TO pelton_ledger;
GRANT USAGE ON SEQUENCE pelton.ledger_epoch TO pelton_ledger;

COMMIT;
