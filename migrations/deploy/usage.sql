-- SPDX-License-Identifier: Apache-2.0
BEGIN;
SET LOCAL ROLE pelton_owner;

CREATE TABLE pelton.usage (
    request_id             uuid        NOT NULL,
    admitted_at            timestamptz NOT NULL,
    tenant                 text        NOT NULL,
    model                  text        NOT NULL,
    revision               text        NOT NULL,
    batch_id               text        NOT NULL,
    custom_id              text        NOT NULL,
    service_class          text        NOT NULL CHECK (service_class IN ('interactive', 'bulk')),
    status                 text        NOT NULL
        CHECK (status IN ('completed', 'failed', 'expired', 'cancelled')),
    attempt                integer     NOT NULL CHECK (attempt >= 0),
    prompt_tokens_uncached bigint      NOT NULL CHECK (prompt_tokens_uncached >= 0),
    prompt_tokens_cached   bigint      NOT NULL CHECK (prompt_tokens_cached >= 0),
    output_tokens          bigint      NOT NULL CHECK (output_tokens >= 0),
    prefill_us             bigint      NOT NULL CHECK (prefill_us >= 0),
    decode_us              bigint      NOT NULL CHECK (decode_us >= 0),
    queue_us               bigint      NOT NULL CHECK (queue_us >= 0),
    run_us                 bigint      NOT NULL CHECK (run_us >= 0),
    precision              text        NOT NULL,
    slot                   bigint      NOT NULL,
    hardware               text        NOT NULL,
    finished_at            timestamptz NOT NULL,
    recorded_at            timestamptz NOT NULL DEFAULT now(),
    -- A request has one row. admitted_at is the timestamp of the request's own message, the same
    -- whichever attempt answered it, so a second row of one request always meets the first.
    PRIMARY KEY (request_id, admitted_at)
) PARTITION BY RANGE (admitted_at);
CREATE INDEX usage_by_tenant ON pelton.usage (tenant, admitted_at);
CREATE INDEX usage_by_batch ON pelton.usage (batch_id);
COMMENT ON TABLE pelton.usage IS
    'One row for each finished request. Append only: what was wrong is corrected by a row in '
    'usage_correction.';
COMMENT ON COLUMN pelton.usage.prompt_tokens_uncached IS
    'Prompt tokens that were computed. The whole prompt is uncached + cached: no token is in both.';
COMMENT ON COLUMN pelton.usage.prefill_us IS
    'Device time of its prompt: its share of each step, so that the shares of a step add up to '
    'the step.';

-- Whatever no monthly partition takes lands here instead of blocking the ledger;
-- partition_health and the metric pelton_ledger_default_partition_rows watch it.
CREATE TABLE pelton.usage_default PARTITION OF pelton.usage DEFAULT;

CREATE TABLE pelton.usage_correction (
    correction_id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id             uuid        NOT NULL,
    admitted_at            timestamptz NOT NULL,
    prompt_tokens_uncached bigint      NOT NULL DEFAULT 0,
    prompt_tokens_cached   bigint      NOT NULL DEFAULT 0,
    output_tokens          bigint      NOT NULL DEFAULT 0,
    reason                 text        NOT NULL CHECK (reason <> ''),
    author                 text        NOT NULL DEFAULT session_user,
    corrected_at           timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (request_id, admitted_at) REFERENCES pelton.usage (request_id, admitted_at)
);
COMMENT ON TABLE pelton.usage_correction IS
    'Signed differences to a usage row. Priced as the row was, booked at corrected_at, so that '
    'a closed day never changes.';

-- Make the partitions of the current month and of the months after it, and give every month that
-- has rows in the default partition a partition of its own (they move there). Months are UTC: a
-- partition's bounds must not depend on who calls. Returns the names of what was made.
CREATE FUNCTION pelton.premake_partitions(months_ahead integer DEFAULT 3,
                                          at timestamptz DEFAULT now())
RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC'
AS $$
DECLARE
    first timestamptz;
    name text;
BEGIN
    IF months_ahead NOT BETWEEN 0 AND 120 THEN
        RAISE 'months_ahead is %, allowed are 0 to 120', months_ahead
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Two ledgers that start together must not both make a month.
    PERFORM pg_advisory_xact_lock(hashtext('pelton.premake_partitions'));
    FOR first IN
        SELECT date_trunc('month', at) + make_interval(months => n)
        FROM generate_series(0, months_ahead) AS n
        UNION
        -- A timestamp far off is somebody's broken clock and gets no table of its own.
        SELECT date_trunc('month', admitted_at) FROM pelton.usage_default
        WHERE admitted_at BETWEEN at - interval '10 years' AND at + interval '10 years'
        ORDER BY 1
    LOOP
        name := 'usage_' || to_char(first, 'YYYY_MM');
        CONTINUE WHEN to_regclass('pelton.' || name) IS NOT NULL;
        PERFORM pelton.make_partition(name, first, first + interval '1 month');
        RETURN NEXT name;
    END LOOP;
END
$$;

-- A month cannot get its partition while the default holds rows of it, so the default is set
-- aside, emptied of them, and attached again, all in the caller's transaction.
CREATE FUNCTION pelton.make_partition(name text, from_at timestamptz, to_at timestamptz)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    LOCK TABLE pelton.usage IN ACCESS EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT FROM pelton.usage_default
                   WHERE admitted_at >= from_at AND admitted_at < to_at) THEN
        EXECUTE format('CREATE TABLE pelton.%I PARTITION OF pelton.usage
                        FOR VALUES FROM (%L) TO (%L)', name, from_at, to_at);
        RETURN;
    END IF;
    -- Corrections refer to rows that are about to move; the check waits until they have arrived.
    ALTER TABLE pelton.usage_correction
        DROP CONSTRAINT usage_correction_request_id_admitted_at_fkey;
    ALTER TABLE pelton.usage DETACH PARTITION pelton.usage_default;
    EXECUTE format('CREATE TABLE pelton.%I PARTITION OF pelton.usage FOR VALUES FROM (%L) TO (%L)',
                   name, from_at, to_at);
    EXECUTE format('INSERT INTO pelton.%I SELECT * FROM pelton.usage_default
                    WHERE admitted_at >= %L AND admitted_at < %L', name, from_at, to_at);
    DELETE FROM pelton.usage_default WHERE admitted_at >= from_at AND admitted_at < to_at;
    ALTER TABLE pelton.usage ATTACH PARTITION pelton.usage_default DEFAULT;
    ALTER TABLE pelton.usage_correction
        ADD FOREIGN KEY (request_id, admitted_at)
            REFERENCES pelton.usage (request_id, admitted_at);
END
$$;

REVOKE ALL ON FUNCTION pelton.premake_partitions(integer, timestamptz) FROM PUBLIC;
REVOKE ALL ON FUNCTION pelton.make_partition(text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION pelton.premake_partitions(integer, timestamptz) TO pelton_ledger;
GRANT SELECT, INSERT ON pelton.usage TO pelton_ledger;

DO $$ BEGIN PERFORM pelton.premake_partitions(); END $$;

CREATE VIEW pelton.partition_health AS
SELECT (SELECT count(*) FROM pelton.usage_default) AS default_rows,
       (SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'pelton.usage'::regclass
          AND c.relname > 'usage_' || to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')
          AND c.relname ~ '^usage_\d{4}_\d{2}$') AS months_ahead;
COMMENT ON VIEW pelton.partition_health IS
    'default_rows above 0: rows that fit no month. months_ahead 0: the coming month has no '
    'partition yet.';
GRANT SELECT ON pelton.partition_health TO pelton_ledger;

COMMIT;
