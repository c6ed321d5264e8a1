-- SPDX-License-Identifier: Apache-2.0
-- The tables: keys, partitions, what may be written by whom.
BEGIN;
SELECT plan(24);

CREATE FUNCTION pg_temp.book(id int, at timestamptz) RETURNS void LANGUAGE sql AS $$
    INSERT INTO pelton.usage (request_id, admitted_at, tenant, model, revision, batch_id,
        custom_id, service_class, status, attempt, prompt_tokens_uncached, prompt_tokens_cached,
        output_tokens, prefill_us, decode_us, queue_us, run_us, precision, slot, hardware,
        finished_at)
    VALUES (lpad(id::text, 32, '0')::uuid, at, 't', 'm', 'r', 'b', id::text, 'bulk', 'completed',
        1, 10, 0, 5, 1, 1, 1, 1, 'f32', 0, 'cpu-2', at)
    ON CONFLICT DO NOTHING
$$;

-- A NULL in a key would defeat ON CONFLICT.
SELECT is((SELECT count(*) FROM information_schema.columns
           WHERE table_schema = 'pelton' AND is_nullable = 'YES'
             AND table_name IN ('usage', 'worker_time', 'kafka_offset', 'ledger_error', 'price',
                                'hardware_price', 'usage_correction', 'tenant_access')),
          0::bigint, 'no table has a nullable column');
SELECT col_is_pk('pelton', 'usage', ARRAY['request_id', 'admitted_at'], 'key of usage');
SELECT col_is_pk('pelton', 'kafka_offset', ARRAY['topic', 'partition'], 'key of kafka_offset');
SELECT is((SELECT count(*) FROM information_schema.columns
           WHERE table_schema = 'pelton'
             AND data_type IN ('real', 'double precision', 'money')), 0::bigint,
          'no column is a float');
SELECT is((SELECT count(*) FROM information_schema.columns
           WHERE table_schema = 'pelton' AND data_type = 'timestamp without time zone'),
          0::bigint, 'every time has a zone');

-- One request, one row, however often it is read.
SELECT pg_temp.book(1, '2026-11-05 12:00+00');
SELECT pg_temp.book(1, '2026-11-05 12:00+00');
SELECT is((SELECT count(*) FROM pelton.usage), 1::bigint, 'the same row twice is one row');
SELECT throws_ok($$ UPDATE pelton.usage SET output_tokens = NULL $$, '23502', NULL,
                 'tokens are never unknown');
SELECT throws_ok($$ UPDATE pelton.usage SET output_tokens = -1 $$, '23514', NULL,
                 'tokens are never negative');

-- Partitions.
SELECT cmp_ok((SELECT months_ahead FROM pelton.partition_health), '>=', 3::bigint,
              'three months are there in advance');
SELECT is((SELECT default_rows FROM pelton.partition_health),
          (SELECT count(*) FROM pelton.usage_default), 'the default partition is watched');
SELECT is(ARRAY(SELECT pelton.premake_partitions(2, '2031-05-31 23:30+00')),
          ARRAY['usage_2031_05', 'usage_2031_06', 'usage_2031_07'], 'months are made');
SELECT is(ARRAY(SELECT pelton.premake_partitions(2, '2031-05-31 23:30+00')), '{}'::text[],
          'and not made again');
SET LOCAL TimeZone = 'Pacific/Auckland';
SELECT pg_temp.book(2, '2031-06-30 23:59:59.999+00');
SELECT pg_temp.book(3, '2031-07-01 00:00+00');
SELECT is((SELECT count(*) FROM pelton.usage_2031_06), 1::bigint, 'bounds are UTC months');
SET LOCAL TimeZone = 'UTC';

-- The month that nobody made in time: its row is taken, and moves when the month is made.
SELECT pg_temp.book(4, '2033-03-03 03:03+00');
INSERT INTO pelton.usage_correction (request_id, admitted_at, output_tokens, reason)
SELECT request_id, admitted_at, -5, 'test' FROM pelton.usage WHERE custom_id = '4';
SELECT is((SELECT count(*) FROM pelton.usage_default WHERE custom_id = '4'), 1::bigint,
          'a month without a partition is no obstacle');
SELECT is(ARRAY(SELECT pelton.premake_partitions(0, '2031-05-31 23:30+00')),
          ARRAY['usage_2033_03'], 'its partition is made later');
SELECT is((SELECT count(*) FROM pelton.usage_2033_03), 1::bigint, 'and the row moves there');
SELECT is((SELECT count(*) FROM pelton.usage_default WHERE custom_id = '4'), 0::bigint,
          'out of the default');
SELECT pg_temp.book(4, '2033-03-03 03:03+00');
SELECT is((SELECT count(*) FROM pelton.usage WHERE custom_id = '4'), 1::bigint,
          'and still cannot be doubled');
SELECT throws_ok($$ SELECT pelton.premake_partitions(-1) $$, '22023', NULL, 'bounds are checked');

-- Worker time.
INSERT INTO pelton.worker_time (incarnation, from_at, to_at, slot, hardware)
VALUES ('00000000-0000-0000-0000-000000000001', '2026-11-05 12:00+00', '2026-11-05 13:00+00', 0,
        'h');
INSERT INTO pelton.worker_time (incarnation, from_at, to_at, slot, hardware)
VALUES ('00000000-0000-0000-0000-000000000001', '2026-11-05 12:30+00', '2026-11-05 13:30+00', 0,
        'h')
ON CONFLICT DO NOTHING;
SELECT is((SELECT count(*) FROM pelton.worker_time), 1::bigint, 'time is not paid twice');

-- The ledger appends and does nothing else.
SET LOCAL ROLE pelton_ledger;
SELECT lives_ok($$ SELECT pg_temp.book(5, '2026-11-05 12:00+00') $$, 'the ledger books');
SELECT throws_ok($$ UPDATE pelton.usage SET output_tokens = 0 $$, '42501', NULL,
                 'the ledger changes nothing');
SELECT throws_ok($$ DELETE FROM pelton.usage $$, '42501', NULL, 'the ledger deletes nothing');
SELECT throws_ok($$ SELECT * FROM pelton.price $$, '42501', NULL, 'prices are not its business');
RESET ROLE;

SELECT * FROM finish();
ROLLBACK;
