-- SPDX-License-Identifier: Apache-2.0
-- Prices and the views on cost: hand-worked numbers.
BEGIN;
SELECT plan(27);
DELETE FROM pelton.price;
DELETE FROM pelton.hardware_price;

CREATE FUNCTION pg_temp.book(id int, who text, what text, class text, at timestamptz,
                             uncached bigint, cached bigint, output bigint) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO pelton.usage (request_id, admitted_at, tenant, model, revision, batch_id,
        custom_id, service_class, status, attempt, prompt_tokens_uncached, prompt_tokens_cached,
        output_tokens, prefill_us, decode_us, queue_us, run_us, precision, slot, hardware,
        finished_at)
    VALUES (lpad(id::text, 32, '0')::uuid, at, who, what, 'r', who || '-batch', id::text, class,
        'completed', 1, uncached, cached, output, 600000, 1200000, 1, 1, 'f32', 0, 'h', at)
$$;

INSERT INTO pelton.price (kind, tenant, model, hardware, validity, input_uncached_per_million,
                          input_cached_per_million, output_per_million) VALUES
    ('list', '*', '*', '*', '[2026-01-01 00:00+00,2026-07-01 00:00+00)', 0.1, 0.01, 1),
    ('list', '*', '*', '*', '[2026-07-01 00:00+00,)', 1, 0.1, 10),
    ('list', '*', 'm', '*', '[2026-07-01 00:00+00,)', 2, 0.2, 20),
    ('contracted', 'acme', 'm', '*', '[2026-07-01 00:00+00,)', 1.5, 0.15, 15),
    ('batch-discounted', '*', 'm', '*', '[2026-07-01 00:00+00,)', 1, 0.1, 10);
SELECT throws_ok($$ INSERT INTO pelton.price (kind, validity, input_uncached_per_million,
                        input_cached_per_million, output_per_million)
                    VALUES ('list', '[2026-06-30 00:00+00,)', 1, 1, 1) $$, '23P01', NULL,
                 'two prices at one time are refused');
SELECT throws_ok($$ INSERT INTO pelton.price (kind, validity, input_uncached_per_million,
                        input_cached_per_million, output_per_million)
                    VALUES ('list', 'empty', 1, 1, 1) $$, '23514', NULL, 'a price without a time');

-- 1e6 tokens at 0.1 per million are 0.1, not 0.09999999.
SELECT pg_temp.book(1, 'x', 'other', 'interactive', '2026-06-30 23:59:59.999+00', 1000000, 0, 0);
SELECT is(billed_cost, 0.1, 'money is exact') FROM pelton.charge WHERE custom_id = '1';
SELECT pg_temp.book(2, 'x', 'other', 'interactive', '2026-07-01 00:00+00', 1000000, 0, 0);
SELECT is(billed_cost, 1.0, 'the new price from its first instant')
FROM pelton.charge WHERE custom_id = '2';

-- Cached tokens are no part of the uncached ones: 700 x 2 + 300 x 0.2 + 50 x 20 per million.
SELECT pg_temp.book(3, 'x', 'm', 'interactive', '2026-11-05 12:00+00', 700, 300, 50);
SELECT is(billed_cost, 0.00246, 'each token is billed once')
FROM pelton.charge WHERE custom_id = '3';

SELECT pg_temp.book(4, 'acme', 'm', 'interactive', '2026-11-05 12:00+00', 1000000, 0, 0);
SELECT pg_temp.book(5, 'acme', 'm', 'bulk', '2026-11-05 12:00+00', 1000000, 0, 0);
SELECT results_eq(
    $$ SELECT list_cost, contracted_cost, billed_cost FROM pelton.charge
       WHERE tenant = 'acme' ORDER BY custom_id $$,
    $$ VALUES (2.0, 1.5, 1.5), (2.0, 1.5, 1.0) $$, 'list, contracted and batch-discounted');

-- A charge that no price covers shows.
SELECT pg_temp.book(6, 'x', 'm', 'bulk', '2025-12-31 12:00+00', 1, 0, 0);
SELECT is((SELECT lines FROM pelton.unpriced_usage), 1::bigint, 'unpriced usage is listed');
SELECT is((SELECT currency FROM pelton.charge WHERE custom_id = '6'), 'XXX', 'and has no currency');

-- A correction is a row of its own, on its own day, at the price of the row.
INSERT INTO pelton.usage_correction (request_id, admitted_at, prompt_tokens_uncached, reason,
                                     corrected_at)
SELECT request_id, admitted_at, -500000, 'billed twice', '2026-11-20 12:00+00'
FROM pelton.usage WHERE custom_id = '4';
SET LOCAL TimeZone = 'UTC';
SELECT results_eq(
    $$ SELECT day, requests, billed_cost FROM pelton.cost_by_tenant_model_day
       WHERE tenant = 'acme' ORDER BY day $$,
    $$ VALUES ('2026-11-05'::date, 2::bigint, 2.5), ('2026-11-20'::date, 0::bigint, -0.75) $$,
    'a closed day stays as it is');
SELECT throws_ok($$ INSERT INTO pelton.usage_correction (request_id, admitted_at, reason)
                    VALUES ('00000000-0000-0000-0000-00000000ffff', now(), 'x') $$, '23503', NULL,
                 'only what was booked can be corrected');

-- Half-hourly charges over three days: the days add up to the range in any zone.
SELECT pg_temp.book(1000 + n, 'zone', 'm', 'bulk',
                    '2026-10-24 00:15+00'::timestamptz + n * interval '30 minutes', 1000, 0, 10)
FROM generate_series(0, 143) AS n;
SELECT is((SELECT count(*) FROM pelton.cost_by_tenant_model_day WHERE tenant = 'zone'), 3::bigint,
          'three days in UTC');
SELECT is(sum(billed_cost), 144 * 0.0011, 'UTC adds up')
FROM pelton.cost_by_tenant_model_day WHERE tenant = 'zone';
SET LOCAL TimeZone = 'Asia/Kolkata';
SELECT is(array_agg(requests ORDER BY day), ARRAY[37, 48, 48, 11]::bigint[], 'days of Kolkata')
FROM pelton.cost_by_tenant_model_day WHERE tenant = 'zone';
SELECT is(sum(billed_cost), 144 * 0.0011, 'Kolkata adds up')
FROM pelton.cost_by_tenant_model_day WHERE tenant = 'zone';
SET LOCAL TimeZone = 'Europe/Berlin';
SELECT is(array_agg(requests ORDER BY day), ARRAY[44, 50, 48, 2]::bigint[],
          'the day that has 25 hours')
FROM pelton.cost_by_tenant_model_day WHERE tenant = 'zone';
SET LOCAL TimeZone = 'UTC';

SELECT is((SELECT sum(billed_cost) FROM pelton.cost_by_batch),
          (SELECT sum(billed_cost) FROM pelton.charge), 'batches add up to everything');
SELECT is((SELECT billed_per_million_tokens FROM pelton.cost_by_batch
           WHERE batch_id = 'zone-batch'), 1.089109, 'per million tokens: 1100 / 1010');

-- FOCUS: the same money, cut by meter.
SELECT is((SELECT sum("BilledCost") FROM pelton.focus_1_2),
          (SELECT sum(billed_cost) FROM pelton.charge), 'FOCUS adds up to everything');
SELECT is((SELECT sum("ListCost") FROM pelton.focus_1_2),
          (SELECT sum(list_cost) FROM pelton.charge), 'at list prices too');
SELECT is((SELECT count(*) FROM pelton.focus_1_2 WHERE "ChargeClass" = 'Correction'), 1::bigint,
          'corrections are marked');
SELECT is((SELECT count(*) FROM pelton.focus_1_2
           WHERE "BillingCurrency" <> 'XXX'
             AND "ContractedCost" <> "ContractedUnitPrice" * "PricingQuantity"), 0::bigint,
          'cost = unit price x quantity');

-- Reporters.
CREATE ROLE pelton_test_acme IN ROLE pelton_reporter;
CREATE ROLE pelton_test_all IN ROLE pelton_reporter;
INSERT INTO pelton.tenant_access VALUES ('pelton_test_acme', 'acme'), ('pelton_test_all', '*');
SET LOCAL ROLE pelton_test_acme;
SELECT is(ARRAY(SELECT DISTINCT tenant FROM pelton.charge), ARRAY['acme'], 'a tenant sees itself');
SELECT is(ARRAY(SELECT DISTINCT tenant FROM pelton.cost_by_batch), ARRAY['acme'],
          'in the views too');
SET LOCAL ROLE pelton_test_all;
SELECT is((SELECT count(DISTINCT tenant) FROM pelton.charge), 3::bigint, 'the operator sees all');
SET LOCAL ROLE pelton_reporter;
SELECT is((SELECT count(*) FROM pelton.charge), 0::bigint, 'a stranger sees nothing');
RESET ROLE;

-- No row, however wrong, keeps the others from being added up.
UPDATE pelton.usage SET prefill_us = 9223372036854775807, prompt_tokens_uncached =
    9223372036854775807, prompt_tokens_cached = 9223372036854775807 WHERE custom_id = '1';
SELECT lives_ok('SELECT * FROM pelton.cost_by_batch', 'cost of batches beyond a bigint');
SELECT lives_ok('SELECT * FROM pelton.cost_by_tenant_model_day', 'cost of days beyond a bigint');

SELECT * FROM finish();
ROLLBACK;
