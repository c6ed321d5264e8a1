-- SPDX-License-Identifier: Apache-2.0
BEGIN;

DROP TABLE pelton.hardware_price;
DROP TABLE pelton.price;

COMMIT;
