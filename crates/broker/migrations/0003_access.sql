-- Roles over the installation, tokens that can be revoked, keys of agents that can be changed and revoked, quotas.

ALTER TABLE api_tokens DROP CONSTRAINT api_tokens_role_check;
ALTER TABLE api_tokens
    ADD CONSTRAINT api_tokens_role_check CHECK (role IN ('viewer', 'deployer', 'owner', 'admin', 'auditor')),
    ADD COLUMN created_by text,
    ADD COLUMN revoked_at timestamptz;
CREATE INDEX api_tokens_by_expiry ON api_tokens (expires_at);

ALTER TABLE join_tokens
    ADD COLUMN rejoins uuid REFERENCES agents (id),
    ADD COLUMN revoked_at timestamptz;
CREATE INDEX join_tokens_by_expiry ON join_tokens (expires_at);

-- The key before this one stays valid for a while, so that an agent whose answer was lost is not locked out.
ALTER TABLE agents
    ADD COLUMN old_public_key bytea CHECK (length(old_public_key) = 32),
    ADD COLUMN old_key_until  timestamptz,
    ADD COLUMN revoked_at     timestamptz;

ALTER TABLE projects
    ADD COLUMN most_stacks               bigint NOT NULL DEFAULT 10000,
    ADD COLUMN most_submissions_per_hour bigint NOT NULL DEFAULT 10000000,
    ADD COLUMN most_stored_bytes         bigint NOT NULL DEFAULT 1099511627776,
    ADD COLUMN most_tokens               bigint NOT NULL DEFAULT 1000,
    ADD COLUMN most_webhooks             bigint NOT NULL DEFAULT 100;

-- What a project uses: the sum over its shards. A transaction adds to the shard of its own backend, so that two
-- submissions of one project do not wait for each other.
CREATE TABLE project_usage (
    project      text NOT NULL REFERENCES projects (name) ON DELETE CASCADE,
    shard        integer NOT NULL,
    stacks       bigint NOT NULL DEFAULT 0,
    stored_bytes bigint NOT NULL DEFAULT 0,
    tokens       bigint NOT NULL DEFAULT 0,
    webhooks     bigint NOT NULL DEFAULT 0,
    hour         timestamptz NOT NULL DEFAULT '-infinity',
    submissions  bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (project, shard)
) WITH (fillfactor = 50);

CREATE FUNCTION project_usage_add(
    of_project text, stacks bigint DEFAULT 0, stored_bytes bigint DEFAULT 0, tokens bigint DEFAULT 0,
    webhooks bigint DEFAULT 0, submissions bigint DEFAULT 0
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO project_usage AS u (project, shard, stacks, stored_bytes, tokens, webhooks, hour, submissions)
    VALUES ($1, pg_backend_pid() % 64, $2, $3, $4, $5, date_trunc('hour', now()), $6)
    ON CONFLICT (project, shard) DO UPDATE SET
        stacks = u.stacks + excluded.stacks,
        stored_bytes = u.stored_bytes + excluded.stored_bytes,
        tokens = u.tokens + excluded.tokens,
        webhooks = u.webhooks + excluded.webhooks,
        submissions = CASE WHEN u.hour = excluded.hour THEN u.submissions ELSE 0 END + excluded.submissions,
        hour = excluded.hour
$$;

CREATE FUNCTION stacks_are_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.deleted_at IS NULL THEN
        PERFORM project_usage_add(OLD.project, stacks => -1);
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.deleted_at IS NULL THEN
        PERFORM project_usage_add(NEW.project, stacks => 1);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER stacks_are_counted AFTER INSERT OR DELETE ON stacks
    FOR EACH ROW EXECUTE FUNCTION stacks_are_counted();
CREATE TRIGGER stacks_ended_are_counted AFTER UPDATE ON stacks
    FOR EACH ROW WHEN ((OLD.deleted_at IS NULL) <> (NEW.deleted_at IS NULL)) EXECUTE FUNCTION stacks_are_counted();

CREATE FUNCTION api_tokens_are_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.revoked_at IS NULL THEN
        PERFORM project_usage_add(OLD.project, tokens => -1);
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.revoked_at IS NULL THEN
        PERFORM project_usage_add(NEW.project, tokens => 1);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER api_tokens_are_counted AFTER INSERT OR DELETE ON api_tokens
    FOR EACH ROW EXECUTE FUNCTION api_tokens_are_counted();
CREATE TRIGGER api_tokens_revoked_are_counted AFTER UPDATE ON api_tokens
    FOR EACH ROW WHEN ((OLD.revoked_at IS NULL) <> (NEW.revoked_at IS NULL))
    EXECUTE FUNCTION api_tokens_are_counted();

CREATE FUNCTION deployment_objects_are_counted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM project_usage_add(NEW.project, stored_bytes => octet_length(NEW.content), submissions => 1);
    ELSE
        PERFORM project_usage_add(OLD.project, stored_bytes => -octet_length(OLD.content));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER deployment_objects_are_counted AFTER INSERT OR DELETE ON deployment_objects
    FOR EACH ROW EXECUTE FUNCTION deployment_objects_are_counted();

INSERT INTO project_usage (project, shard, stacks, stored_bytes, tokens)
SELECT p.name, 0,
       (SELECT count(*) FROM stacks s WHERE s.project = p.name AND s.deleted_at IS NULL),
       (SELECT coalesce(sum(octet_length(o.content)), 0) FROM deployment_objects o WHERE o.project = p.name),
       (SELECT count(*) FROM api_tokens t WHERE t.project = p.name)
FROM projects p;
