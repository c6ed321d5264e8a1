-- SPDX-License-Identifier: Apache-2.0
SELECT request_id, admitted_at, prompt_tokens_uncached, recorded_at FROM pelton.usage WHERE false;
SELECT correction_id, request_id, corrected_at FROM pelton.usage_correction WHERE false;
SELECT 1 / (months_ahead >= 3)::int FROM pelton.partition_health;
