-- SPDX-License-Identifier: Apache-2.0
BEGIN;

REVOKE ALL ON pelton.usage, pelton.usage_correction, pelton.price, pelton.worker_time,
    pelton.hardware_price FROM pelton_reporter;
DROP POLICY ledger_writes ON pelton.usage;
DROP POLICY reporter_reads ON pelton.usage;
DROP POLICY reporter_reads ON pelton.usage_correction;
DROP POLICY reporter_reads ON pelton.price;
DROP POLICY ledger_writes ON pelton.worker_time;
DROP POLICY reporter_reads ON pelton.worker_time;
DROP POLICY reporter_reads ON pelton.hardware_price;
ALTER TABLE pelton.usage DISABLE ROW LEVEL SECURITY;
ALTER TABLE pelton.usage_correction DISABLE ROW LEVEL SECURITY;
ALTER TABLE pelton.price DISABLE ROW LEVEL SECURITY;
ALTER TABLE pelton.worker_time DISABLE ROW LEVEL SECURITY;
ALTER TABLE pelton.hardware_price DISABLE ROW LEVEL SECURITY;
DROP FUNCTION pelton.sees_all();
DROP TABLE pelton.tenant_access;

COMMIT;
