-- SPDX-License-Identifier: Apache-2.0
-- The 57 columns of FOCUS 1.2 (FinOps Open Cost and Usage Specification), one row for each UTC
-- hour, tenant, model, service class, price and meter. Columns without a meaning here are NULL of
-- their type, as the specification wants it. Billing periods are UTC months.
BEGIN;
SET LOCAL ROLE pelton_owner;

CREATE VIEW pelton.focus_1_2 WITH (security_invoker = true) AS
WITH metered AS (
    SELECT date_trunc('hour', charged_at, 'UTC') AS hour, charge_class, tenant, model, hardware,
           service_class, currency, list_id, contracted_id, billed_id, meter, sum(tokens) AS tokens
    FROM pelton.charge
    CROSS JOIN LATERAL (VALUES ('input', prompt_tokens_uncached),
                               ('input-cached', prompt_tokens_cached),
                               ('output', output_tokens)) AS m (meter, tokens)
    WHERE tokens <> 0
    GROUP BY hour, charge_class, tenant, model, hardware, service_class, currency, list_id,
             contracted_id, billed_id, meter
), priced AS (
    SELECT metered.*, tokens * 0.000001 AS millions, l.per_million AS list_per_million,
           c.per_million AS contracted_per_million, b.per_million AS billed_per_million, b.kind
    FROM metered
    LEFT JOIN LATERAL (
        SELECT CASE meter WHEN 'input' THEN input_uncached_per_million
                          WHEN 'input-cached' THEN input_cached_per_million
                          ELSE output_per_million END AS per_million
        FROM pelton.price WHERE price_id = list_id) AS l ON true
    LEFT JOIN LATERAL (
        SELECT CASE meter WHEN 'input' THEN input_uncached_per_million
                          WHEN 'input-cached' THEN input_cached_per_million
                          ELSE output_per_million END AS per_million
        FROM pelton.price WHERE price_id = contracted_id) AS c ON true
    LEFT JOIN LATERAL (
        SELECT CASE meter WHEN 'input' THEN input_uncached_per_million
                          WHEN 'input-cached' THEN input_cached_per_million
                          ELSE output_per_million END AS per_million, kind
        FROM pelton.price WHERE price_id = billed_id) AS b ON true
)
SELECT NULL::text AS "AvailabilityZone",
       millions * billed_per_million AS "BilledCost",
       tenant AS "BillingAccountId",
       tenant AS "BillingAccountName",
       'Tenant'::text AS "BillingAccountType",
       currency AS "BillingCurrency",
       date_trunc('month', hour, 'UTC') + interval '1 month' AS "BillingPeriodEnd",
       date_trunc('month', hour, 'UTC') AS "BillingPeriodStart",
       NULL::text AS "CapacityReservationId",
       NULL::text AS "CapacityReservationStatus",
       'Usage'::text AS "ChargeCategory",
       CASE charge_class WHEN 'correction' THEN 'Correction' END AS "ChargeClass",
       format('%s tokens of %s, %s', meter, model, service_class) AS "ChargeDescription",
       'Usage-Based'::text AS "ChargeFrequency",
       hour + interval '1 hour' AS "ChargePeriodEnd",
       hour AS "ChargePeriodStart",
       NULL::text AS "CommitmentDiscountCategory",
       NULL::text AS "CommitmentDiscountId",
       NULL::text AS "CommitmentDiscountName",
       NULL::numeric AS "CommitmentDiscountQuantity",
       NULL::text AS "CommitmentDiscountStatus",
       NULL::text AS "CommitmentDiscountType",
       NULL::text AS "CommitmentDiscountUnit",
       tokens AS "ConsumedQuantity",
       'Tokens'::text AS "ConsumedUnit",
       millions * contracted_per_million AS "ContractedCost",
       contracted_per_million AS "ContractedUnitPrice",
       millions * billed_per_million AS "EffectiveCost",
       NULL::text AS "InvoiceId",
       'Pelton'::text AS "InvoiceIssuerName",
       millions * list_per_million AS "ListCost",
       list_per_million AS "ListUnitPrice",
       CASE kind WHEN 'batch-discounted' THEN 'Other' ELSE 'Standard' END AS "PricingCategory",
       currency AS "PricingCurrency",
       contracted_per_million AS "PricingCurrencyContractedUnitPrice",
       millions * billed_per_million AS "PricingCurrencyEffectiveCost",
       list_per_million AS "PricingCurrencyListUnitPrice",
       millions AS "PricingQuantity",
       '1M Tokens'::text AS "PricingUnit",
       'Pelton'::text AS "ProviderName",
       'Pelton'::text AS "PublisherName",
       NULL::text AS "RegionId",
       NULL::text AS "RegionName",
       model AS "ResourceId",
       model AS "ResourceName",
       'Language model'::text AS "ResourceType",
       'AI and Machine Learning'::text AS "ServiceCategory",
       'Language model inference'::text AS "ServiceName",
       'Generative AI'::text AS "ServiceSubcategory",
       format('%s/%s', model, meter) AS "SkuId",
       meter AS "SkuMeter",
       jsonb_build_object('x_hardware', hardware, 'x_service_class', service_class, 'x_kind', kind)
           AS "SkuPriceDetails",
       billed_id::text AS "SkuPriceId",
       tenant AS "SubAccountId",
       tenant AS "SubAccountName",
       'Tenant'::text AS "SubAccountType",
       '{}'::jsonb AS "Tags"
FROM priced;

GRANT SELECT ON pelton.focus_1_2 TO pelton_reporter;

COMMIT;
