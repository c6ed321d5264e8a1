-- SPDX-License-Identifier: Apache-2.0
-- Roles belong to the whole cluster, so another database may have made them already.
BEGIN;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['pelton_owner', 'pelton_ledger', 'pelton_reporter'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        END IF;
        -- The one who deploys need not be a superuser, CREATEROLE is enough.
        IF NOT pg_has_role(current_user, name, 'MEMBER') THEN
            EXECUTE format('GRANT %I TO %I', name, current_user);
        END IF;
    END LOOP;
END
$$;

-- GiST on plain scalars: needed by the exclusion constraints of prices and worker time.
CREATE EXTENSION IF NOT EXISTS btree_gist;

CREATE SCHEMA pelton AUTHORIZATION pelton_owner;
GRANT USAGE ON SCHEMA pelton TO pelton_ledger, pelton_reporter;
COMMENT ON SCHEMA pelton IS 'What was computed for whom, and what it costs.';

COMMIT;
