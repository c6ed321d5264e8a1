-- SPDX-License-Identifier: Apache-2.0
BEGIN;

DELETE FROM pelton.price WHERE note = 'example';
DELETE FROM pelton.hardware_price WHERE note = 'example';

COMMIT;
