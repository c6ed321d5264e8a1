-- SPDX-License-Identifier: Apache-2.0
SELECT topic, partition, cluster_id, next_offset, owner_epoch FROM pelton.kafka_offset WHERE false;
SELECT topic, partition, record_offset, reason, record FROM pelton.ledger_error WHERE false;
SELECT last_value FROM pelton.ledger_epoch;
SELECT 'pelton.claim_offset(text, integer, text, bigint, bigint)'::regprocedure,
       'pelton.advance_offset(text, integer, bigint, bigint, bigint)'::regprocedure;
