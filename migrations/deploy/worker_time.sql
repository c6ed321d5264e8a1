-- SPDX-License-Identifier: Apache-2.0
BEGIN;
SET LOCAL ROLE pelton_owner;

CREATE TABLE pelton.worker_time (
    incarnation uuid        NOT NULL,
    from_at     timestamptz NOT NULL,
    to_at       timestamptz NOT NULL,
    slot        bigint      NOT NULL,
    hardware    text        NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (incarnation, from_at),
    CHECK (to_at >= from_at),
    -- An interval that was written twice, in whole or in part, must not be paid twice.
    EXCLUDE USING gist (incarnation WITH =, tstzrange(from_at, to_at) WITH &&)
);
CREATE INDEX worker_time_by_time ON pelton.worker_time (from_at);
COMMENT ON TABLE pelton.worker_time IS
    'Intervals in which a worker was up. One device set of class "hardware" each; what no '
    'request used of it is idle.';
COMMENT ON COLUMN pelton.worker_time.incarnation IS 'Random id of one run of a worker.';

GRANT SELECT, INSERT ON pelton.worker_time TO pelton_ledger;

COMMIT;
