DROP TABLE pelton.worker_time;
