-- SPDX-License-Identifier: Apache-2.0
DROP TABLE pelton.worker_time;
