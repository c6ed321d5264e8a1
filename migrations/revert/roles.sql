-- SPDX-License-Identifier: Apache-2.0
BEGIN;

DROP SCHEMA pelton;
-- The extension btree_gist stays: it may have been there before, and others may use it.

-- A role that another database still uses stays.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['pelton_reporter', 'pelton_ledger', 'pelton_owner'] LOOP
        BEGIN
            EXECUTE format('DROP ROLE %I', name);
        EXCEPTION WHEN dependent_objects_still_exist THEN
            RAISE NOTICE 'role % is used by another database and stays', name;
        END;
    END LOOP;
END
$$;

COMMIT;
