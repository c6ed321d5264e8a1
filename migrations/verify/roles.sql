-- SPDX-License-Identifier: Apache-2.0
DO $$
BEGIN
    ASSERT has_schema_privilege('pelton_owner', 'pelton', 'CREATE');
    ASSERT has_schema_privilege('pelton_ledger', 'pelton', 'USAGE');
    ASSERT NOT has_schema_privilege('pelton_ledger', 'pelton', 'CREATE');
    ASSERT has_schema_privilege('pelton_reporter', 'pelton', 'USAGE');
END
$$;
