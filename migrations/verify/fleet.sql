-- SPDX-License-Identifier: Apache-2.0
SELECT hour, slot, seconds, cost FROM pelton.worker_hour WHERE false;
SELECT hour, hardware, nodes_mean FROM pelton.nodes_by_hour WHERE false;
SELECT hour, hardware, utilisation, idle_cost FROM pelton.utilisation_by_hour WHERE false;
SELECT day, hardware, utilisation, idle_cost FROM pelton.utilisation_by_day WHERE false;
SELECT hour, fleet_cost, theoretical_revenue FROM pelton.hourly_balance WHERE false;
SELECT day, hardware, cost_per_million_tokens FROM pelton.unit_cost_by_day WHERE false;
