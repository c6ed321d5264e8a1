-- SPDX-License-Identifier: Apache-2.0
SELECT charge_class, charged_at, list_cost, contracted_cost, billed_cost
FROM pelton.charge WHERE false;
SELECT tenant, model, day, billed_cost, billed_per_million_tokens
FROM pelton.cost_by_tenant_model_day WHERE false;
SELECT tenant, batch_id, billed_cost FROM pelton.cost_by_batch WHERE false;
SELECT tenant, model, lines FROM pelton.unpriced_usage WHERE false;
