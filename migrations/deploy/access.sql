-- SPDX-License-Identifier: Apache-2.0
-- Who sees what. The ledger writes everything; a reporter reads the tenants it was given. Views
-- are security_invoker, so these policies hold through every one of them.
BEGIN;
SET LOCAL ROLE pelton_owner;

CREATE TABLE pelton.tenant_access (
    role_name name NOT NULL,
    tenant    text NOT NULL,
    PRIMARY KEY (role_name, tenant)
);
COMMENT ON TABLE pelton.tenant_access IS
    'Tenants that the members of a role may read; tenant "*": all of them, the fleet and its '
    'prices too. Grant pelton_reporter to the role as well.';

ALTER TABLE pelton.tenant_access ENABLE ROW LEVEL SECURITY;
-- pg_roles first: a row may name a role that is gone, and pg_has_role() fails for that.
CREATE POLICY own_rows ON pelton.tenant_access TO pelton_reporter
    USING (role_name IN (SELECT r.rolname FROM pg_roles r
                         WHERE pg_has_role(current_user, r.oid, 'USAGE')));

CREATE FUNCTION pelton.sees_all() RETURNS boolean LANGUAGE sql STABLE AS
    $$ SELECT EXISTS (SELECT FROM pelton.tenant_access WHERE tenant = '*') $$;

ALTER TABLE pelton.usage ENABLE ROW LEVEL SECURITY;
CREATE POLICY ledger_writes ON pelton.usage TO pelton_ledger USING (true) WITH CHECK (true);
CREATE POLICY reporter_reads ON pelton.usage FOR SELECT TO pelton_reporter
    USING (tenant IN (SELECT a.tenant FROM pelton.tenant_access a)
           OR (SELECT pelton.sees_all()));

ALTER TABLE pelton.usage_correction ENABLE ROW LEVEL SECURITY;
CREATE POLICY reporter_reads ON pelton.usage_correction FOR SELECT TO pelton_reporter
    USING (EXISTS (SELECT FROM pelton.usage u
                   WHERE u.request_id = usage_correction.request_id
                     AND u.admitted_at = usage_correction.admitted_at));

ALTER TABLE pelton.price ENABLE ROW LEVEL SECURITY;
CREATE POLICY reporter_reads ON pelton.price FOR SELECT TO pelton_reporter
    USING (tenant = '*' OR tenant IN (SELECT a.tenant FROM pelton.tenant_access a)
           OR (SELECT pelton.sees_all()));

ALTER TABLE pelton.worker_time ENABLE ROW LEVEL SECURITY;
CREATE POLICY ledger_writes ON pelton.worker_time TO pelton_ledger USING (true) WITH CHECK (true);
CREATE POLICY reporter_reads ON pelton.worker_time FOR SELECT TO pelton_reporter
    USING ((SELECT pelton.sees_all()));

ALTER TABLE pelton.hardware_price ENABLE ROW LEVEL SECURITY;
CREATE POLICY reporter_reads ON pelton.hardware_price FOR SELECT TO pelton_reporter
    USING ((SELECT pelton.sees_all()));

GRANT SELECT ON pelton.tenant_access, pelton.usage, pelton.usage_correction, pelton.price,
    pelton.worker_time, pelton.hardware_price TO pelton_reporter;

COMMIT;
