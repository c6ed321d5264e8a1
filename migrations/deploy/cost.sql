-- SPDX-License-Identifier: Apache-2.0
-- Money is exact: prices are per million tokens and * 0.000001 is a multiplication of NUMERICs,
-- where a division would round. Days are those of the session's time zone (SET TimeZone); every
-- charge has one instant, so the days of a range add up to the range in any zone.
BEGIN;
SET LOCAL ROLE pelton_owner;

CREATE VIEW pelton.charge WITH (security_invoker = true) AS
WITH line AS (
    SELECT 'usage' AS charge_class, u.admitted_at AS charged_at, u.*
    FROM pelton.usage u
    UNION ALL
    SELECT 'correction', c.corrected_at,
           u.request_id, u.admitted_at, u.tenant, u.model, u.revision, u.batch_id, u.custom_id,
           u.service_class, u.status, u.attempt, c.prompt_tokens_uncached,
           c.prompt_tokens_cached, c.output_tokens, 0, 0, 0, 0, u.precision, u.slot, u.hardware,
           u.finished_at, c.corrected_at
    FROM pelton.usage_correction c JOIN pelton.usage u USING (request_id, admitted_at)
), priced AS (
    SELECT line.*, list_id, coalesce(contracted_id, list_id) AS contracted_id,
           CASE WHEN service_class = 'bulk'
                THEN coalesce(discounted_id, contracted_id, list_id)
                ELSE coalesce(contracted_id, list_id) END AS billed_id
    FROM line CROSS JOIN LATERAL (
        SELECT (array_agg(price_id ORDER BY specific DESC) FILTER (WHERE kind = 'list'))[1]
                   AS list_id,
               (array_agg(price_id ORDER BY specific DESC) FILTER (WHERE kind = 'contracted'))[1]
                   AS contracted_id,
               (array_agg(price_id ORDER BY specific DESC)
                   FILTER (WHERE kind = 'batch-discounted'))[1] AS discounted_id
        FROM (SELECT price_id, kind, (tenant <> '*')::int * 4 + (model <> '*')::int * 2
                     + (hardware <> '*')::int AS specific
              FROM pelton.price p
              WHERE p.tenant IN ('*', line.tenant) AND p.model IN ('*', line.model)
                AND p.hardware IN ('*', line.hardware)
                AND p.validity @> line.admitted_at) AS fits
    ) AS ids
)
SELECT priced.*,
       (prompt_tokens_uncached * l.input_uncached_per_million
        + prompt_tokens_cached * l.input_cached_per_million
        + output_tokens * l.output_per_million) * 0.000001 AS list_cost,
       (prompt_tokens_uncached * c.input_uncached_per_million
        + prompt_tokens_cached * c.input_cached_per_million
        + output_tokens * c.output_per_million) * 0.000001 AS contracted_cost,
       (prompt_tokens_uncached * b.input_uncached_per_million
        + prompt_tokens_cached * b.input_cached_per_million
        + output_tokens * b.output_per_million) * 0.000001 AS billed_cost,
       coalesce(b.currency, 'XXX') AS currency
FROM priced
LEFT JOIN pelton.price l ON l.price_id = list_id
LEFT JOIN pelton.price c ON c.price_id = contracted_id
LEFT JOIN pelton.price b ON b.price_id = billed_id;
COMMENT ON VIEW pelton.charge IS
    'One line for each usage row and each correction, with its price. Currency XXX and no '
    'cost: no price was valid, see the price book.';

CREATE VIEW pelton.cost_by_tenant_model_day WITH (security_invoker = true) AS
SELECT tenant, model, charged_at::date AS day, currency,
       count(*) FILTER (WHERE charge_class = 'usage') AS requests,
       count(*) FILTER (WHERE charge_class = 'usage' AND status = 'completed') AS completed,
       sum(prompt_tokens_uncached) AS prompt_tokens_uncached,
       sum(prompt_tokens_cached) AS prompt_tokens_cached,
       sum(output_tokens) AS output_tokens,
       sum(prefill_us::numeric + decode_us) * 0.000001 AS device_seconds,
       sum(list_cost) AS list_cost,
       sum(contracted_cost) AS contracted_cost,
       sum(billed_cost) AS billed_cost,
       round(sum(billed_cost) * 1000000
             / nullif(sum(prompt_tokens_uncached::numeric + prompt_tokens_cached
                          + output_tokens), 0), 6)
           AS billed_per_million_tokens
FROM pelton.charge
GROUP BY tenant, model, day, currency;

CREATE VIEW pelton.cost_by_batch WITH (security_invoker = true) AS
SELECT tenant, batch_id, model, service_class, currency,
       count(*) FILTER (WHERE charge_class = 'usage') AS requests,
       count(*) FILTER (WHERE charge_class = 'usage' AND status = 'completed') AS completed,
       count(*) FILTER (WHERE charge_class = 'usage' AND status <> 'completed') AS not_completed,
       sum(prompt_tokens_uncached) AS prompt_tokens_uncached,
       sum(prompt_tokens_cached) AS prompt_tokens_cached,
       sum(output_tokens) AS output_tokens,
       sum(prefill_us::numeric + decode_us) * 0.000001 AS device_seconds,
       sum(list_cost) AS list_cost,
       sum(contracted_cost) AS contracted_cost,
       sum(billed_cost) AS billed_cost,
       round(sum(billed_cost) * 1000000
             / nullif(sum(prompt_tokens_uncached::numeric + prompt_tokens_cached
                          + output_tokens), 0), 6)
           AS billed_per_million_tokens,
       min(admitted_at) AS first_admitted_at,
       max(finished_at) AS last_finished_at
FROM pelton.charge
GROUP BY tenant, batch_id, model, service_class, currency;

CREATE VIEW pelton.unpriced_usage WITH (security_invoker = true) AS
SELECT tenant, model, hardware, count(*) AS lines, min(admitted_at) AS first_admitted_at,
       max(admitted_at) AS last_admitted_at
FROM pelton.charge WHERE billed_id IS NULL
GROUP BY tenant, model, hardware;
COMMENT ON VIEW pelton.unpriced_usage IS
    'Usage that no price covers. Empty is the only good state.';

GRANT SELECT ON pelton.charge, pelton.cost_by_tenant_model_day, pelton.cost_by_batch,
    pelton.unpriced_usage TO pelton_reporter;

COMMIT;
