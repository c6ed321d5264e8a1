-- SPDX-License-Identifier: Apache-2.0
BEGIN;
SET LOCAL ROLE pelton_owner;

CREATE TABLE pelton.price (
    price_id                   bigint         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind                       text           NOT NULL
        CHECK (kind IN ('list', 'contracted', 'batch-discounted')),
    tenant                     text           NOT NULL DEFAULT '*',
    model                      text           NOT NULL DEFAULT '*',
    hardware                   text           NOT NULL DEFAULT '*',
    validity                   tstzrange      NOT NULL,
    input_uncached_per_million numeric(20,10) NOT NULL CHECK (input_uncached_per_million >= 0),
    input_cached_per_million   numeric(20,10) NOT NULL CHECK (input_cached_per_million >= 0),
    output_per_million         numeric(20,10) NOT NULL CHECK (output_per_million >= 0),
    currency                   text           NOT NULL DEFAULT 'USD'
        CHECK (currency ~ '^[A-Z]{3}$'),
    note                       text           NOT NULL DEFAULT '',
    CHECK (NOT isempty(validity) AND NOT lower_inf(validity)),
    CHECK (kind <> 'list' OR tenant = '*'),
    EXCLUDE USING gist
        (kind WITH =, tenant WITH =, model WITH =, hardware WITH =, validity WITH &&)
);
COMMENT ON TABLE pelton.price IS
    'Price of tokens. "*" means any; the most specific row that is valid at admission counts: '
    'tenant before model before hardware.';
COMMENT ON COLUMN pelton.price.kind IS
    'list: published. contracted: agreed with the tenant, instead of list. batch-discounted: '
    'for class bulk, instead of both.';

CREATE TABLE pelton.hardware_price (
    hardware_price_id bigint         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hardware          text           NOT NULL DEFAULT '*',
    validity          tstzrange      NOT NULL,
    devices           integer        NOT NULL DEFAULT 1 CHECK (devices > 0),
    per_device_hour   numeric(20,10) NOT NULL CHECK (per_device_hour >= 0),
    currency          text           NOT NULL DEFAULT 'USD' CHECK (currency ~ '^[A-Z]{3}$'),
    note              text           NOT NULL DEFAULT '',
    CHECK (NOT isempty(validity) AND NOT lower_inf(validity)),
    EXCLUDE USING gist (hardware WITH =, validity WITH &&)
);
COMMENT ON TABLE pelton.hardware_price IS
    'What an hour of a worker costs us: devices × per_device_hour. A worker of class '
    '"hardware" holds "devices" of them.';

COMMIT;
