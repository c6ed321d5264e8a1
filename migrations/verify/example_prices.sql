-- SPDX-License-Identifier: Apache-2.0
SELECT 1 / (count(*) > 0)::int FROM pelton.price WHERE note = 'example';
SELECT 1 / (count(*) > 0)::int FROM pelton.hardware_price WHERE note = 'example';
