-- Who is told of what happens in a project.
CREATE TABLE webhooks (
    project          text NOT NULL REFERENCES projects (name),
    id               uuid NOT NULL,
    name             text COLLATE "C" NOT NULL,
    url              text NOT NULL,
    filter           jsonb NOT NULL,
    enabled          boolean NOT NULL DEFAULT true,
    disabled_because text,
    created_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, id),
    UNIQUE (project, name)
);

-- Several while a secret is being changed. Sealed with the key of the installation that key_id names.
CREATE TABLE webhook_secrets (
    project     text NOT NULL,
    webhook_id  uuid NOT NULL,
    id          uuid NOT NULL,
    key_id      text NOT NULL,
    sealed      bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    valid_until timestamptz,
    PRIMARY KEY (project, webhook_id, id),
    FOREIGN KEY (project, webhook_id) REFERENCES webhooks (project, id) ON DELETE CASCADE
);

-- Messages, written in the transaction of what they tell. One that is being sent is due again when its lease ends.
CREATE TABLE webhook_deliveries (
    project         text NOT NULL,
    webhook_id      uuid NOT NULL,
    id              uuid NOT NULL,
    event           text NOT NULL,
    body            jsonb NOT NULL,
    state           text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'dead')),
    created_at      timestamptz NOT NULL DEFAULT now(),
    due_at          timestamptz NOT NULL DEFAULT now(),
    attempts        integer NOT NULL DEFAULT 0,
    claim_token     uuid,
    last_attempt_at timestamptz,
    last_status     integer,
    last_error      text,
    last_millis     integer,
    last_answer     text,
    PRIMARY KEY (project, webhook_id, id),
    FOREIGN KEY (project, webhook_id) REFERENCES webhooks (project, id) ON DELETE CASCADE
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_due_by_webhook ON webhook_deliveries (project, webhook_id, due_at)
    WHERE state = 'pending';
CREATE INDEX webhook_deliveries_done ON webhook_deliveries (last_attempt_at) WHERE state <> 'pending';

-- Troubles that are suspected or told. No row: all is quiet.
CREATE TABLE webhook_alarms (
    project     text NOT NULL REFERENCES projects (name),
    stack_id    uuid NOT NULL,
    agent_id    uuid NOT NULL,
    trouble     text NOT NULL CHECK (trouble IN ('failure', 'drift')),
    told        boolean NOT NULL,
    since       timestamptz NOT NULL,
    last        timestamptz NOT NULL,
    count       integer NOT NULL,
    cause       text NOT NULL,
    sequence_id bigint NOT NULL,
    reason      text NOT NULL,
    message     text NOT NULL,
    look_at     timestamptz,
    PRIMARY KEY (project, stack_id, agent_id, trouble)
) WITH (fillfactor = 70);
CREATE INDEX webhook_alarms_due ON webhook_alarms (look_at) WHERE look_at IS NOT NULL;
