-- The whole schema of the first version. Every key of what a project owns carries its project;
-- agents belong to the installation. Later migrations expand, and contract one release later.

CREATE TABLE installation (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    id    uuid NOT NULL DEFAULT gen_random_uuid(),
    epoch bigint NOT NULL DEFAULT 1
);
INSERT INTO installation DEFAULT VALUES;

CREATE TABLE projects (
    name       text PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO projects (name) VALUES ('default');

CREATE TABLE agents (
    id                uuid PRIMARY KEY,
    name              text COLLATE "C" NOT NULL UNIQUE,
    status            text NOT NULL CHECK (status IN ('ACTIVE', 'INACTIVE')),
    labels            jsonb NOT NULL DEFAULT '{}',
    annotations       jsonb NOT NULL DEFAULT '{}',
    public_key        bytea NOT NULL CHECK (length(public_key) = 32),
    session_count     bigint NOT NULL DEFAULT 0,
    session_instance  uuid,
    session_tied      boolean NOT NULL DEFAULT false,
    created_at        timestamptz NOT NULL DEFAULT now(),
    labels_changed_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at      timestamptz
) WITH (fillfactor = 85);

-- No reference to stacks: an agent may hold what a restored broker does not know.
CREATE TABLE agent_holds (
    agent_id uuid NOT NULL REFERENCES agents (id),
    project  text NOT NULL REFERENCES projects (name),
    stack_id uuid NOT NULL,
    PRIMARY KEY (agent_id, stack_id)
);
CREATE INDEX agent_holds_by_stack ON agent_holds (stack_id);

CREATE TABLE join_tokens (
    id          uuid PRIMARY KEY,
    hash        bytea NOT NULL UNIQUE,
    agent_name  text NOT NULL,
    labels      jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL,
    used_by_key bytea,
    agent_id    uuid REFERENCES agents (id)
);

CREATE TABLE api_tokens (
    project    text NOT NULL REFERENCES projects (name),
    id         uuid NOT NULL,
    name       text NOT NULL,
    role       text NOT NULL CHECK (role IN ('viewer', 'deployer', 'owner', 'admin')),
    hash       bytea NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    PRIMARY KEY (project, id)
);

CREATE TABLE stacks (
    project            text NOT NULL REFERENCES projects (name),
    id                 uuid NOT NULL,
    name               text COLLATE "C" NOT NULL,
    labels             jsonb NOT NULL DEFAULT '{}',
    annotations        jsonb NOT NULL DEFAULT '{}',
    newest_sequence_id bigint,
    created_at         timestamptz NOT NULL DEFAULT now(),
    deleted_at         timestamptz,
    PRIMARY KEY (project, id)
);
CREATE UNIQUE INDEX stacks_living_name ON stacks (project, name) WHERE deleted_at IS NULL;
CREATE INDEX stacks_by_name ON stacks (project, name, id);
CREATE INDEX stacks_by_id ON stacks (id);

CREATE TABLE stack_targets (
    project    text NOT NULL,
    stack_id   uuid NOT NULL,
    agent_id   uuid NOT NULL REFERENCES agents (id),
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, stack_id, agent_id),
    FOREIGN KEY (project, stack_id) REFERENCES stacks (project, id)
);

CREATE TABLE stack_selectors (
    project    text NOT NULL,
    stack_id   uuid NOT NULL,
    selector   text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, stack_id, selector),
    FOREIGN KEY (project, stack_id) REFERENCES stacks (project, id)
);

-- One sequence over the whole broker. Gaps are normal; order within a stack comes from its row lock.
CREATE SEQUENCE deployment_object_sequence AS bigint;

CREATE TABLE deployment_objects (
    project            text NOT NULL,
    stack_id           uuid NOT NULL,
    sequence_id        bigint NOT NULL,
    checksum           bytea NOT NULL CHECK (length(checksum) = 32),
    parsed_digest      bytea NOT NULL CHECK (length(parsed_digest) = 32),
    is_deletion_marker boolean NOT NULL DEFAULT false,
    resources          integer NOT NULL,
    content            bytea NOT NULL,
    submitted_by       text NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, stack_id, sequence_id),
    UNIQUE (sequence_id),
    FOREIGN KEY (project, stack_id) REFERENCES stacks (project, id)
);

CREATE FUNCTION deployment_objects_are_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'deployment objects are immutable';
END
$$;
CREATE TRIGGER deployment_objects_are_immutable BEFORE UPDATE ON deployment_objects
    FOR EACH ROW EXECUTE FUNCTION deployment_objects_are_immutable();

-- The key is stored hashed: the answer of some requests is sealed with it.
CREATE TABLE idempotency_keys (
    project        text NOT NULL REFERENCES projects (name),
    principal      text NOT NULL,
    key            bytea NOT NULL,
    request_digest bytea NOT NULL,
    status         smallint,
    body           bytea,
    xid            xid8 NOT NULL DEFAULT pg_current_xact_id(),
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, principal, key)
);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

-- Partitioned by the event's own time, so that a late repetition meets its twin.
CREATE SEQUENCE event_recorded AS bigint;
CREATE TABLE events (
    project     text NOT NULL,
    id          uuid NOT NULL,
    at          timestamptz NOT NULL,
    recorded    bigint NOT NULL DEFAULT nextval('event_recorded'),
    stack_id    uuid NOT NULL,
    agent_id    uuid NOT NULL,
    sequence_id bigint NOT NULL,
    transition  text NOT NULL,
    reason      text NOT NULL,
    message     text NOT NULL,
    objects     jsonb NOT NULL,
    hops        jsonb NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, id, at)
) PARTITION BY RANGE (at);
CREATE TABLE events_default PARTITION OF events DEFAULT;
CREATE INDEX events_by_recorded ON events (project, recorded);
CREATE INDEX events_by_stack ON events (project, stack_id, recorded);
CREATE INDEX events_by_agent ON events (project, agent_id, recorded);

CREATE TABLE stack_status (
    project     text NOT NULL,
    stack_id    uuid NOT NULL,
    agent_id    uuid NOT NULL REFERENCES agents (id),
    sequence_id bigint NOT NULL,
    transition  text NOT NULL,
    reason      text NOT NULL,
    message     text NOT NULL,
    objects     jsonb NOT NULL,
    hops        jsonb NOT NULL,
    ready       integer NOT NULL,
    total       integer NOT NULL,
    at          timestamptz NOT NULL,
    PRIMARY KEY (project, stack_id, agent_id)
) WITH (fillfactor = 85);

-- Doorbells: "this agent changed", "this stack changed". Read by transaction id, never by `id > last`,
-- because ids are handed out before commits and a reader would pass over what commits late.
CREATE TABLE outbox (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    project text NOT NULL,
    kind    text NOT NULL CHECK (kind IN ('agent', 'stack')),
    key     uuid NOT NULL,
    at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX outbox_by_xid ON outbox (xid, id);
CREATE INDEX outbox_by_age ON outbox (at);
ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0.02);
