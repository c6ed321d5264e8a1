-- SPDX-License-Identifier: Apache-2.0
-- EXAMPLE PRICES. Invented, so that a fresh installation shows a report with numbers in it. Put
-- your own beside them: close these with an upper bound of validity, then insert yours from there.
BEGIN;
SET LOCAL ROLE pelton_owner;

INSERT INTO pelton.price (kind, model, validity, input_uncached_per_million,
                          input_cached_per_million, output_per_million, note) VALUES
    ('list', 'pelton-demo', '[2020-01-01 00:00+00,)', 0.55, 0.14, 2.19, 'example'),
    ('batch-discounted', 'pelton-demo', '[2020-01-01 00:00+00,)', 0.275, 0.07, 1.095, 'example'),
    ('list', '*', '[2020-01-01 00:00+00,)', 1.00, 0.25, 4.00, 'example');

INSERT INTO pelton.hardware_price (hardware, validity, devices, per_device_hour, note) VALUES
    ('cpu-2', '[2020-01-01 00:00+00,)', 2, 0.02, 'example'),
    ('*', '[2020-01-01 00:00+00,)', 1, 2.00, 'example');

COMMIT;
