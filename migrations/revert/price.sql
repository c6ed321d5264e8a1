BEGIN;

DROP TABLE pelton.hardware_price;
DROP TABLE pelton.price;

COMMIT;
