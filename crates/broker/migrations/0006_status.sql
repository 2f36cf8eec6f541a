-- Reports and status at full size: events that can be followed and dropped by the day, counts that are kept and not
-- counted, errors by reason, presence, contents that have had their time.

-- Events are followed by (transaction, place), never by place alone: places are given out before commits. The default
-- is evaluated once for the rows that are there, so nothing is rewritten.
ALTER TABLE events ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX events_by_xid ON events (xid, recorded);
CREATE INDEX events_by_project ON events (project, xid, recorded);
DROP INDEX events_by_recorded;

-- What groups errors over the fleet: the digest of the reason with names and numbers taken out. And the newest object
-- that is known to have been written: what the agent may have to put back.
ALTER TABLE stack_status
    ADD COLUMN reason_key          bytea,
    ADD COLUMN agent_name          text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN applied_sequence_id bigint;
UPDATE stack_status t SET agent_name = a.name,
       applied_sequence_id = CASE WHEN transition IN ('applied', 'healthy', 'degraded') THEN sequence_id END
FROM agents a WHERE a.id = t.agent_id;
CREATE INDEX stack_status_by_reason ON stack_status (project, reason_key, stack_id, agent_name)
    WHERE reason_key IS NOT NULL;
CREATE INDEX stack_status_by_transition ON stack_status (project, stack_id, transition, agent_name);

CREATE TABLE reasons (
    project    text NOT NULL REFERENCES projects (name),
    key        bytea NOT NULL,
    reason     text NOT NULL,
    message    text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, key)
);

-- How many agents said what last, in shards: reports of a whole fleet about one stack do not wait for each other. A
-- shard alone says nothing and may be below zero; the sum is what counts.
CREATE TABLE status_counts (
    project     text NOT NULL,
    stack_id    uuid NOT NULL,
    sequence_id bigint NOT NULL,
    transition  text NOT NULL,
    reason_key  bytea NOT NULL DEFAULT '',
    shard       smallint NOT NULL,
    count       bigint NOT NULL,
    PRIMARY KEY (project, stack_id, sequence_id, transition, reason_key, shard)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX status_counts_by_reason ON status_counts (project, reason_key) WHERE reason_key <> '';

-- The shard of this transaction: one that nobody else is using, held until it ends. So no two transactions ever wait
-- for each other's counts in a circle, whatever the order in which they change them.
CREATE FUNCTION status_shard() RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
    shards CONSTANT integer := 16;
    class  CONSTANT integer := 1112690258;
    mine   text := current_setting('brokkr.status_shard', true);
    shard  integer := pg_backend_pid() % shards;
BEGIN
    IF mine <> '' THEN
        RETURN mine::smallint;
    END IF;
    FOR attempt IN 1..shards LOOP
        EXIT WHEN pg_try_advisory_xact_lock(class, shard);
        shard := (shard + 1) % shards;
    END LOOP;
    -- At once if it is held already; else all were taken, and this one is waited for.
    PERFORM pg_advisory_xact_lock(class, shard);
    PERFORM set_config('brokkr.status_shard', shard::text, true);
    RETURN shard;
END
$$;

-- A trigger, so that the counts follow whoever changes a status, in the same transaction.
CREATE FUNCTION stack_status_count() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    mine CONSTANT smallint := status_shard();
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO status_counts AS kept
        SELECT project, stack_id, sequence_id, transition, coalesce(reason_key, ''), mine, count(*)
        FROM new_rows GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (project, stack_id, sequence_id, transition, reason_key, shard)
            DO UPDATE SET count = kept.count + excluded.count;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO status_counts AS kept
        SELECT project, stack_id, sequence_id, transition, coalesce(reason_key, ''), mine, -count(*)
        FROM old_rows GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (project, stack_id, sequence_id, transition, reason_key, shard)
            DO UPDATE SET count = kept.count + excluded.count;
    ELSE
        INSERT INTO status_counts AS kept
        SELECT project, stack_id, sequence_id, transition, key, mine, sum(change)
        FROM (SELECT project, stack_id, sequence_id, transition, coalesce(reason_key, '') AS key, 1 AS change FROM new_rows
              UNION ALL
              SELECT project, stack_id, sequence_id, transition, coalesce(reason_key, ''), -1 FROM old_rows) changes
        GROUP BY 1, 2, 3, 4, 5 HAVING sum(change) <> 0 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (project, stack_id, sequence_id, transition, reason_key, shard)
            DO UPDATE SET count = kept.count + excluded.count;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER stack_status_count_inserted AFTER INSERT ON stack_status
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION stack_status_count();
CREATE TRIGGER stack_status_count_updated AFTER UPDATE ON stack_status
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION stack_status_count();
CREATE TRIGGER stack_status_count_deleted AFTER DELETE ON stack_status
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION stack_status_count();
INSERT INTO status_counts (project, stack_id, sequence_id, transition, shard, count)
SELECT project, stack_id, sequence_id, transition, 0, count(*) FROM stack_status GROUP BY 1, 2, 3, 4;

-- Presence. How often an agent asks, it says with each poll. That it fell silent is told once, and once that it is back.
ALTER TABLE agents
    ADD COLUMN poll_seconds integer NOT NULL DEFAULT 30,
    ADD COLUMN silent_since timestamptz;
CREATE INDEX agents_silent ON agents (silent_since) WHERE silent_since IS NOT NULL;
CREATE TABLE agent_events (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    agent_id   uuid NOT NULL REFERENCES agents (id),
    kind       text NOT NULL CHECK (kind IN ('silent', 'back')),
    last_seen  timestamptz NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    xid        xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX agent_events_by_agent ON agent_events (agent_id, at);
CREATE INDEX agent_events_by_age ON agent_events (at);

-- When a duty that one replica does for all was last done, and since when it is done without a pause.
CREATE TABLE duties (
    name    text PRIMARY KEY,
    done_at timestamptz NOT NULL DEFAULT '-infinity',
    since   timestamptz NOT NULL DEFAULT now()
);
INSERT INTO duties (name) VALUES ('silence'), ('tidy');

-- A content that has had its time goes; the object, its checksum and who submitted it stay.
ALTER TABLE deployment_objects ADD COLUMN content_dropped_at timestamptz;
CREATE INDEX deployment_objects_by_age ON deployment_objects (created_at) WHERE content_dropped_at IS NULL;
CREATE OR REPLACE FUNCTION deployment_objects_are_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    allowed deployment_objects := OLD;
BEGIN
    IF OLD.content_dropped_at IS NULL AND NEW.content_dropped_at IS NOT NULL THEN
        allowed.content := '';
        allowed.content_dropped_at := NEW.content_dropped_at;
        IF NEW IS NOT DISTINCT FROM allowed AND NOT EXISTS (
            SELECT FROM stacks s WHERE s.project = OLD.project AND s.id = OLD.stack_id
                                   AND s.newest_sequence_id = OLD.sequence_id) THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'deployment objects are immutable';
END
$$;
