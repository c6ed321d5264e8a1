-- SPDX-License-Identifier: Apache-2.0
-- What the fleet costs, busy or idle, against what its work is worth. For reporters of all tenants.
-- Hours are those of the session's time zone, so that they add up to its days.
BEGIN;
SET LOCAL ROLE pelton_owner;

-- The intervals of worker_time, cut at the hours and wherever a hardware price begins or ends.
CREATE VIEW pelton.worker_hour WITH (security_invoker = true) AS
SELECT date_trunc('hour', from_at) AS hour, slot, incarnation, hardware, seconds,
       price.devices * seconds AS device_seconds, price.currency,
       price.devices * price.per_device_hour * seconds / 3600 AS cost
FROM (
    SELECT w.slot, w.incarnation, w.hardware, piece.from_at,
           extract(epoch FROM piece.to_at - piece.from_at) AS seconds
    FROM pelton.worker_time w
    CROSS JOIN LATERAL (
        SELECT cut AS from_at, lead(cut) OVER (ORDER BY cut) AS to_at
        FROM (SELECT w.from_at AS cut
              UNION SELECT w.to_at
              UNION SELECT generate_series(date_trunc('hour', w.from_at), w.to_at, '1 hour')
              UNION SELECT lower(validity) FROM pelton.hardware_price
              UNION SELECT upper(validity) FROM pelton.hardware_price) AS cuts
        WHERE cut BETWEEN w.from_at AND w.to_at
    ) AS piece
    WHERE piece.to_at IS NOT NULL
) AS pieces
LEFT JOIN LATERAL (
    SELECT p.devices, p.per_device_hour, p.currency FROM pelton.hardware_price p
    WHERE p.hardware IN ('*', pieces.hardware) AND p.validity @> pieces.from_at
    ORDER BY p.hardware <> '*' DESC LIMIT 1
) AS price ON true;

CREATE VIEW pelton.nodes_by_hour WITH (security_invoker = true) AS
SELECT hour, hardware, count(DISTINCT slot) AS slots_seen,
       round(sum(seconds) / 3600, 4) AS nodes_mean
FROM pelton.worker_hour
GROUP BY hour, hardware;
COMMENT ON VIEW pelton.nodes_by_hour IS
    'A node is one worker. nodes_mean: worker time of the hour ÷ 1 h.';

-- Device time is counted where it ended: an hour may so use more than it had, a day hardly.
CREATE VIEW pelton.utilisation_by_hour WITH (security_invoker = true) AS
SELECT hour, hardware, fleet.currency, fleet.seconds AS fleet_seconds,
       coalesce(used.seconds, 0) AS attributed_seconds,
       fleet.seconds - coalesce(used.seconds, 0) AS idle_seconds,
       round(coalesce(used.seconds, 0) / nullif(fleet.seconds, 0), 6) AS utilisation,
       fleet.cost AS fleet_cost,
       fleet.cost - fleet.cost * coalesce(used.seconds, 0) / nullif(fleet.seconds, 0) AS idle_cost
FROM (SELECT hour, hardware, max(currency) AS currency, sum(seconds) AS seconds, sum(cost) AS cost
      FROM pelton.worker_hour GROUP BY hour, hardware) AS fleet
LEFT JOIN (SELECT date_trunc('hour', finished_at) AS hour, hardware,
                  sum(prefill_us::numeric + decode_us) * 0.000001 AS seconds
           FROM pelton.usage GROUP BY 1, 2) AS used USING (hour, hardware);

CREATE VIEW pelton.utilisation_by_day WITH (security_invoker = true) AS
SELECT hour::date AS day, hardware, currency, sum(fleet_seconds) AS fleet_seconds,
       sum(attributed_seconds) AS attributed_seconds, sum(idle_seconds) AS idle_seconds,
       round(sum(attributed_seconds) / nullif(sum(fleet_seconds), 0), 6) AS utilisation,
       sum(fleet_cost) AS fleet_cost, sum(idle_cost) AS idle_cost
FROM pelton.utilisation_by_hour
GROUP BY day, hardware, currency;

-- Theoretical revenue: as if every token were sold at its list price.
CREATE VIEW pelton.hourly_balance WITH (security_invoker = true) AS
SELECT hour, currency, coalesce(fleet_cost, 0) AS fleet_cost,
       coalesce(theoretical_revenue, 0) AS theoretical_revenue,
       coalesce(billed_revenue, 0) AS billed_revenue,
       round((coalesce(theoretical_revenue, 0) - fleet_cost) * 100 / nullif(fleet_cost, 0), 2)
           AS theoretical_margin_percent
FROM (SELECT hour, currency, sum(cost) AS fleet_cost
      FROM pelton.worker_hour GROUP BY hour, currency) AS fleet
FULL JOIN (SELECT date_trunc('hour', charged_at) AS hour, currency,
                  sum(list_cost) AS theoretical_revenue, sum(billed_cost) AS billed_revenue
           FROM pelton.charge GROUP BY 1, 2) AS sold USING (hour, currency);

-- Cost of a million tokens, idle time included: what has to be earned per token to break even.
CREATE VIEW pelton.unit_cost_by_day WITH (security_invoker = true) AS
SELECT day, hardware, currency, fleet_cost, prompt_tokens, output_tokens,
       round(fleet_cost * 1000000 / nullif(prompt_tokens + output_tokens, 0), 6)
           AS cost_per_million_tokens,
       round(fleet_cost * 1000000 / nullif(output_tokens, 0), 6)
           AS cost_per_million_output_tokens,
       round((fleet_cost - idle_cost) * 1000000 / nullif(prompt_tokens + output_tokens, 0), 6)
           AS busy_cost_per_million_tokens
FROM pelton.utilisation_by_day
JOIN (SELECT finished_at::date AS day, hardware,
             sum(prompt_tokens_uncached::numeric + prompt_tokens_cached) AS prompt_tokens,
             sum(output_tokens) AS output_tokens
      FROM pelton.usage GROUP BY 1, 2) AS made USING (day, hardware);

GRANT SELECT ON pelton.worker_hour, pelton.nodes_by_hour, pelton.utilisation_by_hour,
    pelton.utilisation_by_day, pelton.hourly_balance, pelton.unit_cost_by_day TO pelton_reporter;

COMMIT;
