-- SPDX-License-Identifier: Apache-2.0
SELECT incarnation, from_at, to_at, slot, hardware FROM pelton.worker_time WHERE false;
