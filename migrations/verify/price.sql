-- SPDX-License-Identifier: Apache-2.0
SELECT price_id, kind, tenant, model, hardware, validity FROM pelton.price WHERE false;
SELECT hardware_price_id, hardware, validity, per_device_hour
FROM pelton.hardware_price WHERE false;
