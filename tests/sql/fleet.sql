-- SPDX-License-Identifier: Apache-2.0
-- Fleet cost against revenue: a hand-worked day, then the published day of an inference fleet
-- (tests/golden/deepseek-day.json).
BEGIN;
SELECT plan(18);
DELETE FROM pelton.price;
DELETE FROM pelton.hardware_price;
SET LOCAL TimeZone = 'UTC';

CREATE FUNCTION pg_temp.book(id int, hw text, at timestamptz, uncached bigint, cached bigint,
                             output bigint, device_us bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO pelton.usage (request_id, admitted_at, tenant, model, revision, batch_id,
        custom_id, service_class, status, attempt, prompt_tokens_uncached, prompt_tokens_cached,
        output_tokens, prefill_us, decode_us, queue_us, run_us, precision, slot, hardware,
        finished_at)
    VALUES (lpad(id::text, 32, '0')::uuid, at, 't', 'm', 'r', 'b', id::text, 'bulk', 'completed',
        1, uncached, cached, output, device_us / 4, device_us - device_us / 4, 1, 1, 'fp8', 0, hw,
        at)
$$;
CREATE FUNCTION pg_temp.up(id int, hw text, from_at timestamptz, to_at timestamptz) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO pelton.worker_time (incarnation, from_at, to_at, slot, hardware)
    VALUES (lpad(id::text, 32, '0')::uuid, from_at, to_at, id, hw)
$$;

INSERT INTO pelton.hardware_price (hardware, validity, devices, per_device_hour) VALUES
    ('box', '[2026-01-01 00:00+00,2026-11-05 11:00+00)', 2, 1),
    ('box', '[2026-11-05 11:00+00,)', 2, 3),
    ('h800x8', '[2025-01-01 00:00+00,)', 8, 2);
INSERT INTO pelton.price (kind, validity, input_uncached_per_million, input_cached_per_million,
                          output_per_million)
VALUES ('list', '[2025-01-01 00:00+00,)', 0.55, 0.14, 2.19);

-- One worker from 10:30 to 12:15, another from 11:00 to 11:30.
SELECT pg_temp.up(1, 'box', '2026-11-05 10:30+00', '2026-11-05 12:15+00');
SELECT pg_temp.up(2, 'box', '2026-11-05 11:00+00', '2026-11-05 11:30+00');
SELECT results_eq(
    $$ SELECT extract(hour FROM hour)::int, slots_seen, nodes_mean FROM pelton.nodes_by_hour
       ORDER BY hour $$,
    $$ VALUES (10, 1::bigint, 0.5), (11, 2::bigint, 1.5), (12, 1::bigint, 0.25) $$,
    'nodes by hour');
SELECT results_eq(
    $$ SELECT extract(hour FROM hour)::int, fleet_cost FROM pelton.hourly_balance ORDER BY hour $$,
    $$ VALUES (10, 1.0), (11, 9.0), (12, 1.5) $$, 'each hour at its own price');

-- 2700 s of the 5400 s of hour 11 were used.
SELECT pg_temp.book(1, 'box', '2026-11-05 11:40+00', 1000000, 0, 500000, 2700000000);
SELECT is(utilisation, 0.5, 'half used') FROM pelton.utilisation_by_hour
WHERE extract(hour FROM hour) = 11;
SELECT is(idle_cost, 4.5, 'half of its cost is idle') FROM pelton.utilisation_by_hour
WHERE extract(hour FROM hour) = 11;
SELECT is(fleet_seconds, 8100.0, 'seconds of the day') FROM pelton.utilisation_by_day;
SELECT is(fleet_cost, 11.5, 'cost of the day') FROM pelton.utilisation_by_day;
SELECT is(idle_cost, 7.0, 'idle cost of the day') FROM pelton.utilisation_by_day;
-- 11.5 for 1.5 million tokens, 0.5 million of them output; 4.5 while busy.
SELECT is(cost_per_million_tokens, 7.666667, 'per million tokens') FROM pelton.unit_cost_by_day;
SELECT is(cost_per_million_output_tokens, 23.0, 'per million output tokens')
FROM pelton.unit_cost_by_day;
SELECT is(busy_cost_per_million_tokens, 3.0, 'without idle time') FROM pelton.unit_cost_by_day;
-- 0.55 + 0.5 x 2.19 = 1.645 against 9.
SELECT is(theoretical_revenue, 1.645, 'revenue at list prices') FROM pelton.hourly_balance
WHERE extract(hour FROM hour) = 11;
SET LOCAL TimeZone = 'Asia/Kolkata';
SELECT is(sum(fleet_cost), 11.5, 'hours of Kolkata add up') FROM pelton.hourly_balance;
SET LOCAL TimeZone = 'UTC';

-- 226.75 nodes of 8 GPUs on average at 2.00 an hour; 608e9 input tokens, 342e9 of them from the
-- cache, 168e9 output.
SELECT pg_temp.up(1000 + n, 'h800x8', '2025-02-27 00:00+00', '2025-02-28 00:00+00')
FROM generate_series(1, 226) AS n;
SELECT pg_temp.up(2000, 'h800x8', '2025-02-27 03:00+00', '2025-02-27 21:00+00');
SELECT pg_temp.book(1000 + n, 'h800x8', '2025-02-27 00:30+00'::timestamptz + n * interval '1 hour',
                    266000000000 / 24 + CASE WHEN n = 0 THEN 266000000000 % 24 ELSE 0 END,
                    14250000000, 7000000000, 1)
FROM generate_series(0, 23) AS n;
CREATE TEMP VIEW published AS
SELECT * FROM pelton.hourly_balance WHERE hour < '2025-03-01 00:00+00';
SELECT is(sum(fleet_cost), 87072.0, 'published cost of the day') FROM published;
SELECT is(sum(theoretical_revenue), 562100.0, 'revenue from the rounded token counts')
FROM published;
SELECT cmp_ok(abs(sum(theoretical_revenue) - 562027) / 562027, '<', 0.0005,
              'published revenue of the day') FROM published;
SELECT is(floor((sum(theoretical_revenue) - sum(fleet_cost)) * 100 / sum(fleet_cost)), 545::numeric,
          'published margin') FROM published;

UPDATE pelton.usage SET decode_us = 9223372036854775807, prompt_tokens_uncached =
    9223372036854775807;
SELECT lives_ok('SELECT * FROM pelton.utilisation_by_day', 'device time beyond a bigint');
SELECT lives_ok('SELECT * FROM pelton.unit_cost_by_day', 'tokens beyond a bigint');

SELECT * FROM finish();
ROLLBACK;
