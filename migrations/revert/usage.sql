-- SPDX-License-Identifier: Apache-2.0
BEGIN;

DROP VIEW pelton.partition_health;
DROP FUNCTION pelton.premake_partitions(integer, timestamptz);
DROP FUNCTION pelton.make_partition(text, timestamptz, timestamptz);
DROP TABLE pelton.usage_correction;
DROP TABLE pelton.usage;

COMMIT;
