BEGIN;

DROP TABLE pelton.ledger_error;
DROP TABLE pelton.kafka_offset;
DROP SEQUENCE pelton.ledger_epoch;

COMMIT;
