-- What projects may do on which agents. Without a row the project `default` may do everything, any other nothing.
CREATE TABLE grants (
    id         uuid PRIMARY KEY,
    name       text COLLATE "C" NOT NULL UNIQUE,
    project    text NOT NULL REFERENCES projects (name),
    selector   text NOT NULL,
    namespaces text[] NOT NULL CHECK (cardinality(namespaces) > 0),
    kinds      text[] NOT NULL CHECK (cardinality(kinds) > 0),
    account    text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

ALTER TABLE outbox
    DROP CONSTRAINT outbox_kind_check,
    ADD CONSTRAINT outbox_kind_check CHECK (kind IN ('agent', 'stack', 'grant'));

-- Replicas check their picture in slices, by the last byte of the id, which is random.
CREATE INDEX agents_by_slice ON agents ((get_byte(uuid_send(id), 15)));
CREATE INDEX stacks_by_slice ON stacks ((get_byte(uuid_send(id), 15)));
