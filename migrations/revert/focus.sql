DROP VIEW pelton.focus_1_2;
