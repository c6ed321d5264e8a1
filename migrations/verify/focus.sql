-- SPDX-License-Identifier: Apache-2.0
SELECT 1 / (count(*) = 57)::int FROM information_schema.columns
WHERE table_schema = 'pelton' AND table_name = 'focus_1_2';
