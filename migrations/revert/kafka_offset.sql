-- SPDX-License-Identifier: Apache-2.0
BEGIN;

DROP FUNCTION pelton.advance_offset(text, integer, bigint, bigint, bigint);
DROP FUNCTION pelton.claim_offset(text, integer, text, bigint, bigint);
DROP TABLE pelton.ledger_error;
DROP TABLE pelton.kafka_offset;
DROP SEQUENCE pelton.ledger_epoch;

COMMIT;
