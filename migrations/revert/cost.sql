-- SPDX-License-Identifier: Apache-2.0
BEGIN;

DROP VIEW pelton.unpriced_usage;
DROP VIEW pelton.cost_by_batch;
DROP VIEW pelton.cost_by_tenant_model_day;
DROP VIEW pelton.charge;

COMMIT;
