-- SPDX-License-Identifier: Apache-2.0
BEGIN;

DROP VIEW pelton.unit_cost_by_day;
DROP VIEW pelton.hourly_balance;
DROP VIEW pelton.utilisation_by_day;
DROP VIEW pelton.utilisation_by_hour;
DROP VIEW pelton.nodes_by_hour;
DROP VIEW pelton.worker_hour;

COMMIT;
