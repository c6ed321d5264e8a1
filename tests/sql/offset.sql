-- SPDX-License-Identifier: Apache-2.0
-- Offsets: claimed by epoch, moved with the rows, fenced.
BEGIN;
SELECT plan(11);
SET LOCAL ROLE pelton_ledger;

SELECT is(pelton.claim_offset('usage', 0, 'kafka-1', 7, 1), 7::bigint,
          'a new partition starts at its beginning');
SELECT lives_ok($$ SELECT pelton.advance_offset('usage', 0, 7, 20, 1) $$, 'the owner moves on');
SELECT is(pelton.claim_offset('usage', 0, 'kafka-1', 7, 1), 20::bigint,
          'after a lost connection it goes on where it was');
SELECT throws_ok($$ SELECT pelton.advance_offset('usage', 0, 7, 20, 1) $$, 'PL002', NULL,
                 'the same batch cannot be booked twice');
SELECT is(pelton.claim_offset('usage', 0, 'kafka-1', 7, 2), 20::bigint, 'a new ledger takes over');
SELECT throws_ok($$ SELECT pelton.advance_offset('usage', 0, 20, 30, 1) $$, 'PL001', NULL,
                 'the old one is fenced');
SELECT throws_ok($$ SELECT pelton.claim_offset('usage', 0, 'kafka-1', 7, 1) $$, 'PL001', NULL,
                 'and cannot come back');
SELECT lives_ok($$ SELECT pelton.advance_offset('usage', 0, 20, 30, 2) $$, 'the new one goes on');
SELECT throws_ok($$ SELECT pelton.claim_offset('usage', 0, 'kafka-2', 0, 3) $$, 'PL003', NULL,
                 'offsets of another cluster mean nothing here');
SELECT throws_ok($$ SELECT pelton.advance_offset('usage', 9, 0, 1, 2) $$, 'PL001', NULL,
                 'a partition that was never claimed');
SELECT is((SELECT next_offset FROM pelton.kafka_offset), 30::bigint, 'nothing else moved it');

SELECT * FROM finish();
ROLLBACK;
