-- Who did what: rows that are only ever added, and a chain over them that is made afterwards, so that those who write
-- do not wait for each other.

-- A duty that one replica has at a time. Every write of the holder carries its token: one that was paused and has lost
-- the lease changes nothing any more.
CREATE TABLE leases (
    name       text PRIMARY KEY,
    holder     uuid NOT NULL,
    token      bigint NOT NULL,
    expires_at timestamptz NOT NULL
);

CREATE SEQUENCE audit_id AS bigint;
CREATE TABLE audit (
    id         bigint NOT NULL DEFAULT nextval('audit_id'),
    at         timestamptz NOT NULL DEFAULT now(),
    xid        xid8 NOT NULL DEFAULT pg_current_xact_id(),
    project    text NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('change', 'refused', 'secrets_read')),
    principal  text NOT NULL,
    name       text NOT NULL,
    method     text NOT NULL,
    route      text NOT NULL,
    path       text NOT NULL,
    address    text NOT NULL,
    status     integer NOT NULL,
    request_id text NOT NULL,
    before     bytea,
    after      bytea,
    PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);
CREATE TABLE audit_default PARTITION OF audit DEFAULT;
CREATE INDEX audit_by_project ON audit (project, id);
CREATE INDEX audit_by_xid ON audit (xid, id);

-- One link for each row, per project: hash = SHA-256 of the hash before and the row.
CREATE TABLE audit_chain (
    project  text NOT NULL,
    number   bigint NOT NULL,
    audit_id bigint NOT NULL UNIQUE,
    audit_at timestamptz NOT NULL,
    hash     bytea NOT NULL CHECK (length(hash) = 32),
    PRIMARY KEY (project, number)
);
CREATE TABLE audit_heads (
    project text PRIMARY KEY,
    number  bigint NOT NULL,
    hash    bytea NOT NULL
);
-- Up to where the chains go, in the order of transactions.
CREATE TABLE audit_cursor (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    xid xid8 NOT NULL DEFAULT '0',
    id  bigint NOT NULL DEFAULT 0
);
INSERT INTO audit_cursor DEFAULT VALUES;

-- What is old goes with its whole partition.
CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END
$$;
CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_is_not_emptied BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_chain_is_append_only BEFORE UPDATE OR DELETE ON audit_chain
    FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_chain_is_not_emptied BEFORE TRUNCATE ON audit_chain
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
