-- SPDX-License-Identifier: Apache-2.0
DROP VIEW pelton.focus_1_2;
