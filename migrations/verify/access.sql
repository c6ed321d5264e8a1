-- SPDX-License-Identifier: Apache-2.0
SELECT role_name, tenant FROM pelton.tenant_access WHERE false;
SELECT 1 / (count(*) = 6)::int FROM pg_class
WHERE relnamespace = 'pelton'::regnamespace AND relrowsecurity;
