-- The schema of the broker. Everything that a project owns carries its project in the key; agents belong to the
-- installation. Later migrations expand, and contract one release later, so that two versions can run side by side.

-- Installation -------------------------------------------------------------------------------------------------------

-- `holds_request` counts how often all agents were asked to report what they hold. `position_key` proves which positions
-- were issued. It is made here and never changes, so that a restored database still recognises them; three random UUIDs
-- have more than 256 random bits.
CREATE TABLE installation (
    singleton     boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    id            uuid NOT NULL DEFAULT gen_random_uuid(),
    epoch         bigint NOT NULL DEFAULT 1,
    held_since    timestamptz,
    held_cause    jsonb,
    holds_request bigint NOT NULL DEFAULT 0,
    position_key  bytea NOT NULL CHECK (length(position_key) = 32) DEFAULT sha256(
        uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
    -- The timeline of PostgreSQL on which the last sequence id was issued.
    timeline      text,
    CHECK ((held_since IS NULL) = (held_cause IS NULL))
);
INSERT INTO installation DEFAULT VALUES;

-- Append-only: each time the epoch was raised after a restore, and where sequence ids continued.
CREATE TABLE epochs (
    epoch           bigint PRIMARY KEY,
    raised_at       timestamptz NOT NULL DEFAULT now(),
    raised_by       text NOT NULL,
    epoch_before    bigint NOT NULL,
    sequence_before bigint NOT NULL,
    sequence_after  bigint NOT NULL,
    held_because    text,
    reason          text CHECK (char_length(reason) BETWEEN 1 AND 1024)
);

-- A task that one replica owns at a time. Every write of the holder carries its token: a replica that was paused and has
-- lost the lease changes nothing any more.
CREATE TABLE leases (
    name       text PRIMARY KEY,
    holder     uuid NOT NULL,
    token      bigint NOT NULL,
    expires_at timestamptz NOT NULL
);

-- When a periodic task was last claimed by a replica, and since when it has run without a pause.
CREATE TABLE task_claims (
    name       text PRIMARY KEY,
    claimed_at timestamptz NOT NULL DEFAULT '-infinity',
    since      timestamptz NOT NULL DEFAULT now()
);
INSERT INTO task_claims (name) VALUES ('silent_agents'), ('retention');

-- Projects, quotas and grants ----------------------------------------------------------------------------------------

-- A restricted project may do only what its grants allow. The project `default` is not restricted before its first grant;
-- only an admin lifts the restriction: deleting the last grant does not.
CREATE TABLE projects (
    name                     text PRIMARY KEY,
    created_at               timestamptz NOT NULL DEFAULT now(),
    restricted               boolean NOT NULL DEFAULT true,
    max_stacks               bigint NOT NULL DEFAULT 10000,
    max_submissions_per_hour bigint NOT NULL DEFAULT 10000000,
    max_stored_bytes         bigint NOT NULL DEFAULT 1099511627776,
    max_tokens               bigint NOT NULL DEFAULT 1000,
    max_webhooks             bigint NOT NULL DEFAULT 100
);
INSERT INTO projects (name, restricted) VALUES ('default', false);

-- The usage of a project is the sum over its shards. A transaction adds to the shard of its own backend, so that two
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
INSERT INTO project_usage (project, shard) VALUES ('default', 0);

CREATE FUNCTION project_usage_add(
    of_project text, stacks bigint DEFAULT 0, stored_bytes bigint DEFAULT 0, tokens bigint DEFAULT 0,
    webhooks bigint DEFAULT 0, submissions bigint DEFAULT 0
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    -- In plpgsql, because PostgreSQL plans the queries of SQL functions again at each call.
    INSERT INTO project_usage AS u (project, shard, stacks, stored_bytes, tokens, webhooks, hour, submissions)
    VALUES ($1, pg_backend_pid() % 64, $2, $3, $4, $5, date_trunc('hour', now()), $6)
    ON CONFLICT (project, shard) DO UPDATE SET
        stacks = u.stacks + excluded.stacks,
        stored_bytes = u.stored_bytes + excluded.stored_bytes,
        tokens = u.tokens + excluded.tokens,
        webhooks = u.webhooks + excluded.webhooks,
        submissions = CASE WHEN u.hour = excluded.hour THEN u.submissions ELSE 0 END + excluded.submissions,
        hour = excluded.hour;
END $$;

-- What a project may do on which agents. Without a row, a restricted project may do nothing.
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

-- When agents may begin new versions: of all stacks, or of those of a project.
CREATE TABLE windows (
    id         uuid PRIMARY KEY,
    name       text COLLATE "C" NOT NULL UNIQUE,
    project    text REFERENCES projects (name),
    selector   text NOT NULL,
    rule       jsonb NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- Returns the windows for stacks of a project.
CREATE FUNCTION windows_of(text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('id', id, 'name', name, 'project', project, 'selector', selector, 'rule', rule)), '[]')
    FROM windows WHERE project IS NULL OR project = $1
$$;

-- Agents -------------------------------------------------------------------------------------------------------------

-- The previous key stays valid for a while, so that an agent that did not receive the response to a rotation is not locked
-- out. Without `key_since`, the key is as old as the agent. `version` is informational. `refused_at` and
-- `refused_because` describe the last assertion in the agent's name that was refused; written at most every ten seconds.
-- `holds_reported` is the `holds_request` that the agent last answered. `upgradable_since` is set while its last poll says that its owner allows upgrades;
-- `upgrade_id` is the last upgrade that it has reported a step of and is not offered again, and `upgrade_ended` whether that step was
-- an end.
CREATE TABLE agents (
    id                 uuid PRIMARY KEY,
    name               text COLLATE "C" NOT NULL UNIQUE,
    status             text NOT NULL CHECK (status IN ('ACTIVE', 'INACTIVE')),
    labels             jsonb NOT NULL DEFAULT '{}',
    annotations        jsonb NOT NULL DEFAULT '{}',
    version            text,
    namespace          text,
    public_key         bytea NOT NULL CHECK (length(public_key) = 32),
    key_since          timestamptz,
    old_public_key     bytea CHECK (length(old_public_key) = 32),
    old_key_until      timestamptz,
    rotation_asked_at  timestamptz,
    revoked_at         timestamptz,
    refused_at         timestamptz,
    refused_because    text,
    session_count      bigint NOT NULL DEFAULT 0,
    session_instance   uuid,
    session_duplicated boolean NOT NULL DEFAULT false,
    created_at         timestamptz NOT NULL DEFAULT now(),
    labels_changed_at  timestamptz NOT NULL DEFAULT now(),
    last_seen_at       timestamptz,
    poll_seconds       integer NOT NULL DEFAULT 30,
    silent_since       timestamptz,
    holds_reported     bigint NOT NULL DEFAULT 0,
    upgradable_since   timestamptz,
    upgrade_id         bigint,
    upgrade_ended      boolean NOT NULL DEFAULT false,
    abandoned_at       timestamptz,
    abandoned_by       text,
    abandoned_because  text,
    CONSTRAINT agents_abandoned_complete CHECK (num_nulls(abandoned_at, abandoned_by, abandoned_because) IN (0, 3))
) WITH (fillfactor = 85);
CREATE INDEX agents_silent ON agents (silent_since) WHERE silent_since IS NOT NULL;
-- Submissions look for agents whose own namespace they name. Nothing may be submitted into the default one at all.
CREATE INDEX agents_by_namespace ON agents (namespace) WHERE namespace <> 'brokkr-system';
CREATE INDEX agents_by_holds_reported ON agents (holds_reported);
-- Replicas compare their index with the database in slices, by the last byte of the id, which is random.
CREATE INDEX agents_by_slice ON agents ((get_byte(uuid_send(id), 15)));

-- When agents became silent and returned: one row each, whichever replica notices.
CREATE TABLE agent_events (
    id        uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    agent_id  uuid NOT NULL REFERENCES agents (id),
    kind      text NOT NULL CHECK (kind IN ('silent', 'back')),
    last_seen timestamptz NOT NULL,
    at        timestamptz NOT NULL DEFAULT now(),
    xid       xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX agent_events_by_agent ON agent_events (agent_id, at);
CREATE INDEX agent_events_by_age ON agent_events (at);

-- What agents claim to hold. A claim is confirmed if the stack targeted the agent when it was recorded; others count for
-- nothing until an admin decides. `released_sequence_id` is the newest version that the agent may read after it is no
-- longer a target. A claim that the agent no longer makes has ended; it is kept for a while, for late reports. No reference
-- to stacks: an agent may hold a stack that a restored database does not know. The columns from `sequence_id` on are what
-- the agent reported after a restore; null if it was not asked.
CREATE TABLE agent_holds (
    agent_id             uuid NOT NULL REFERENCES agents (id),
    project              text NOT NULL REFERENCES projects (name),
    stack_id             uuid NOT NULL,
    confirmed            boolean NOT NULL,
    released_sequence_id bigint NOT NULL DEFAULT 0,
    ended_at             timestamptz,
    sequence_id          bigint,
    checksum             bytea,
    reported_project     text,
    stack_name           text,
    removing             boolean,
    reported_at          timestamptz,
    PRIMARY KEY (agent_id, stack_id)
);
CREATE INDEX agent_holds_unconfirmed ON agent_holds (stack_id) WHERE NOT confirmed;
CREATE INDEX agent_holds_ended ON agent_holds (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX agent_holds_by_stack ON agent_holds (stack_id);
CREATE INDEX agent_holds_reported ON agent_holds (stack_id, sequence_id) WHERE sequence_id IS NOT NULL;

-- Tokens -------------------------------------------------------------------------------------------------------------

CREATE TABLE join_tokens (
    id          uuid PRIMARY KEY,
    hash        bytea NOT NULL UNIQUE,
    agent_name  text NOT NULL,
    labels      jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL,
    revoked_at  timestamptz,
    used_by_key bytea,
    agent_id    uuid REFERENCES agents (id),
    rejoins     uuid REFERENCES agents (id)
);
CREATE INDEX join_tokens_by_expiry ON join_tokens (expires_at);

CREATE TABLE api_tokens (
    project    text NOT NULL REFERENCES projects (name),
    id         uuid NOT NULL,
    name       text NOT NULL,
    role       text NOT NULL CHECK (role IN ('viewer', 'deployer', 'owner', 'admin', 'auditor')),
    hash       bytea NOT NULL UNIQUE,
    created_by text,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    PRIMARY KEY (project, id)
);
CREATE INDEX api_tokens_by_expiry ON api_tokens (expires_at);

CREATE FUNCTION api_tokens_count() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER api_tokens_count AFTER INSERT OR DELETE ON api_tokens
    FOR EACH ROW EXECUTE FUNCTION api_tokens_count();
CREATE TRIGGER api_tokens_count_revoked AFTER UPDATE ON api_tokens
    FOR EACH ROW WHEN ((OLD.revoked_at IS NULL) <> (NEW.revoked_at IS NULL)) EXECUTE FUNCTION api_tokens_count();

-- Stacks and deployment objects --------------------------------------------------------------------------------------

-- Every agent gets the version `newest_sequence_id`, unless a rollout releases a newer one to it. `staged_sequence_id` is the
-- last submitted version while not every agent gets it. `widening_sequence_id` is the rollout that releases the version
-- `newest_sequence_id` to agents that other targets have added, while not all of those get it.
CREATE TABLE stacks (
    project              text NOT NULL REFERENCES projects (name),
    id                   uuid NOT NULL,
    name                 text COLLATE "C" NOT NULL,
    labels               jsonb NOT NULL DEFAULT '{}',
    annotations          jsonb NOT NULL DEFAULT '{}',
    drift                text NOT NULL DEFAULT 'repair' CHECK (drift IN ('repair', 'report')),
    newest_sequence_id   bigint,
    staged_sequence_id   bigint CHECK (staged_sequence_id > newest_sequence_id),
    widening_sequence_id bigint CHECK (widening_sequence_id > newest_sequence_id),
    created_at           timestamptz NOT NULL DEFAULT now(),
    deleted_at           timestamptz,
    PRIMARY KEY (project, id)
);
CREATE UNIQUE INDEX stacks_unique_name ON stacks (project, name) WHERE deleted_at IS NULL;
CREATE INDEX stacks_by_name ON stacks (project, name, id);
CREATE INDEX stacks_by_id ON stacks (id);
CREATE INDEX stacks_by_slice ON stacks ((get_byte(uuid_send(id), 15)));

CREATE FUNCTION stacks_count() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER stacks_count AFTER INSERT OR DELETE ON stacks
    FOR EACH ROW EXECUTE FUNCTION stacks_count();
CREATE TRIGGER stacks_count_deleted AFTER UPDATE ON stacks
    FOR EACH ROW WHEN ((OLD.deleted_at IS NULL) <> (NEW.deleted_at IS NULL)) EXECUTE FUNCTION stacks_count();

-- `kept_at` is set if an agent held a stack that the restored targets did not include: kept, so that nothing is pruned.
CREATE TABLE stack_targets (
    project    text NOT NULL,
    stack_id   uuid NOT NULL,
    agent_id   uuid NOT NULL REFERENCES agents (id),
    created_at timestamptz NOT NULL DEFAULT now(),
    kept_at    timestamptz,
    PRIMARY KEY (project, stack_id, agent_id),
    FOREIGN KEY (project, stack_id) REFERENCES stacks (project, id)
);

CREATE INDEX stack_targets_by_agent ON stack_targets (agent_id);

CREATE TABLE stack_selectors (
    project    text NOT NULL,
    stack_id   uuid NOT NULL,
    selector   text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, stack_id, selector),
    FOREIGN KEY (project, stack_id) REFERENCES stacks (project, id)
);

-- One sequence over the whole installation. Gaps are normal; the row lock of a stack orders its ids.
CREATE SEQUENCE deployment_object_sequence AS bigint;

-- Returns the next sequence id. A promoted standby may lack the last ids that the former primary issued. So the first caller
-- on each timeline of PostgreSQL skips a million ids: no id is issued twice, even before the loss is noticed.
CREATE FUNCTION next_sequence_id() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    here text := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
BEGIN
    IF (SELECT timeline IS DISTINCT FROM here FROM installation) THEN
        PERFORM FROM installation WHERE timeline IS DISTINCT FROM here FOR UPDATE;
        IF FOUND THEN
            IF (SELECT timeline IS NOT NULL FROM installation) THEN
                PERFORM setval('deployment_object_sequence', nextval('deployment_object_sequence') + 1000000);
            END IF;
            UPDATE installation SET timeline = here;
        END IF;
    END IF;
    RETURN nextval('deployment_object_sequence');
END $$;

-- Retention and a purge empty `content`; the object, its checksum and its author stay. A deletion may leave the resources in the
-- clusters (`keeps_resources`): agents remove Brokkr's metadata instead of deleting them. `message` says why a version was
-- submitted, `git_commit` from which commit. A version that is urgent begins at any time, whatever the windows say.
CREATE TABLE deployment_objects (
    project            text NOT NULL,
    stack_id           uuid NOT NULL,
    sequence_id        bigint NOT NULL,
    checksum           bytea NOT NULL CHECK (length(checksum) = 32),
    parsed_digest      bytea NOT NULL CHECK (length(parsed_digest) = 32),
    is_deletion_marker boolean NOT NULL DEFAULT false,
    keeps_resources    boolean NOT NULL DEFAULT false,
    is_urgent          boolean NOT NULL DEFAULT false,
    -- From the annotations of the stack when it was submitted: for how long its waves wait for each other.
    wave_wait_seconds  integer CHECK (wave_wait_seconds BETWEEN 1 AND 86400),
    -- The Jobs that run again with it.
    rerun              jsonb,
    resources          integer NOT NULL,
    content            bytea NOT NULL,
    content_dropped_at timestamptz,
    submitted_by       text NOT NULL,
    message            text CHECK (char_length(message) BETWEEN 1 AND 1024),
    git_commit         text CHECK (git_commit ~ '^[0-9a-f]{7,64}$'),
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, stack_id, sequence_id),
    UNIQUE (sequence_id),
    FOREIGN KEY (project, stack_id) REFERENCES stacks (project, id),
    CONSTRAINT deployment_objects_keeps_resources CHECK (is_deletion_marker OR NOT keeps_resources)
);
CREATE INDEX deployment_objects_by_age ON deployment_objects (created_at) WHERE content_dropped_at IS NULL;

-- Immutable, except that retention or a purge may empty the content of an object that agents do not get any more.
CREATE FUNCTION deployment_objects_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    allowed deployment_objects := OLD;
BEGIN
    IF OLD.content_dropped_at IS NULL AND NEW.content_dropped_at IS NOT NULL THEN
        allowed.content := '';
        allowed.content_dropped_at := NEW.content_dropped_at;
        IF NEW IS NOT DISTINCT FROM allowed AND NOT EXISTS (
            SELECT FROM stacks s WHERE s.project = OLD.project AND s.id = OLD.stack_id
                                   AND OLD.sequence_id IN (s.newest_sequence_id, s.staged_sequence_id)) THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'deployment objects are immutable';
END
$$;
CREATE TRIGGER deployment_objects_immutable BEFORE UPDATE ON deployment_objects
    FOR EACH ROW EXECUTE FUNCTION deployment_objects_immutable();

CREATE FUNCTION deployment_objects_count() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM project_usage_add(NEW.project, stored_bytes => octet_length(NEW.content), submissions => 1);
    ELSE
        -- A deleted object, or one of which the content was dropped.
        PERFORM project_usage_add(OLD.project, stored_bytes => -octet_length(OLD.content));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER deployment_objects_count AFTER INSERT OR DELETE ON deployment_objects
    FOR EACH ROW EXECUTE FUNCTION deployment_objects_count();
CREATE TRIGGER deployment_objects_count_dropped AFTER UPDATE ON deployment_objects
    FOR EACH ROW WHEN (OLD.content_dropped_at IS NULL AND NEW.content_dropped_at IS NOT NULL)
    EXECUTE FUNCTION deployment_objects_count();

-- The release of a version to the agents of its stack. `clauses` name the agents, up to a place in an order that `seed`
-- determines; they get the version only while the rollout is open. `revision` counts the changes that replicas have to
-- know. `windows` are those at its begin: they decide which agents share a mark. `looked_at` is when the agents were last looked at, `watched_since` since when without a pause: only watched time counts.
--
-- A rollout releases the version with its own `sequence_id`. A widening has an id of its own: it releases the version `widens`,
-- which other agents have, to the agents that were not among the targets `had`.
CREATE TABLE rollouts (
    project            text NOT NULL,
    stack_id           uuid NOT NULL,
    sequence_id        bigint NOT NULL,
    widens             bigint,
    had                jsonb CHECK ((had IS NULL) = (widens IS NULL)),
    object_sequence_id bigint NOT NULL GENERATED ALWAYS AS (coalesce(widens, sequence_id)) STORED,
    base_sequence_id   bigint,
    seed               bigint NOT NULL CHECK (seed >= 0),
    policy             jsonb NOT NULL,
    created_by         text NOT NULL,
    state              text NOT NULL DEFAULT 'running' CHECK (
        state IN ('running', 'soaking', 'gated', 'paused', 'stopped', 'completed', 'superseded', 'aborted')),
    is_open            boolean NOT NULL GENERATED ALWAYS AS (state IN ('running', 'soaking', 'gated')) STORED,
    stop_reason        jsonb,
    wave               integer NOT NULL DEFAULT 0,
    clauses            jsonb NOT NULL DEFAULT '[]',
    soaked             interval NOT NULL DEFAULT '0',
    accepted_bad       bigint NOT NULL DEFAULT 0,
    accepted_excused   bigint NOT NULL DEFAULT 0,
    gate               jsonb NOT NULL DEFAULT '{}',
    windows            jsonb NOT NULL DEFAULT '[]',
    figures            jsonb NOT NULL DEFAULT
        '{"members": 0, "released": 0, "healthy": 0, "bad": 0, "excused": 0, "owed": 0, "waiting": 0, "in_flight": 0}',
    pending            jsonb,
    revision           bigint NOT NULL DEFAULT 1,
    looked_at          timestamptz,
    watched_since      timestamptz NOT NULL DEFAULT now(),
    created_at         timestamptz NOT NULL DEFAULT now(),
    state_changed_at   timestamptz NOT NULL DEFAULT now(),
    ended_at           timestamptz,
    xid                xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (project, stack_id, sequence_id),
    FOREIGN KEY (project, stack_id, object_sequence_id) REFERENCES deployment_objects (project, stack_id, sequence_id)
);
CREATE UNIQUE INDEX rollouts_by_sequence ON rollouts (project, sequence_id);
CREATE UNIQUE INDEX rollouts_active ON rollouts (project, stack_id) WHERE ended_at IS NULL;

-- Append-only: each raise of a mark, from which follows when the version was released to an agent.
CREATE TABLE rollout_raises (
    project     text NOT NULL,
    stack_id    uuid NOT NULL,
    sequence_id bigint NOT NULL,
    number      integer NOT NULL,
    selector    text,
    lane_begun  bigint,
    lane_now    bigint,
    upto        numeric(20) NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, stack_id, sequence_id, number),
    FOREIGN KEY (project, stack_id, sequence_id) REFERENCES rollouts (project, stack_id, sequence_id)
);

-- Images that agents are upgraded to, in waves. As for rollouts, `clauses` name the agents that an upgrade is offered to, by a place in
-- an order that `seed` determines; while it is open, and once it is completed, to all that `selector` matches. The ids are from the
-- sequence of the deployment objects, so that they continue after a restore.
CREATE TABLE agent_upgrades (
    id               bigint PRIMARY KEY,
    image            text NOT NULL,
    version          text NOT NULL,
    selector         text,
    seed             bigint NOT NULL CHECK (seed >= 0),
    policy           jsonb NOT NULL,
    created_by       text NOT NULL,
    state            text NOT NULL DEFAULT 'running' CHECK (
        state IN ('running', 'soaking', 'gated', 'paused', 'stopped', 'completed', 'superseded', 'aborted')),
    stop_reason      jsonb,
    wave             integer NOT NULL DEFAULT 0,
    clauses          jsonb NOT NULL DEFAULT '[]',
    soaked           interval NOT NULL DEFAULT '0',
    accepted_bad     bigint NOT NULL DEFAULT 0,
    accepted_excused bigint NOT NULL DEFAULT 0,
    gate             jsonb NOT NULL DEFAULT '{}',
    windows          jsonb NOT NULL DEFAULT '[]',
    figures          jsonb NOT NULL DEFAULT
        '{"members": 0, "released": 0, "healthy": 0, "bad": 0, "excused": 0, "owed": 0, "waiting": 0, "in_flight": 0}',
    pending          jsonb,
    revision         bigint NOT NULL DEFAULT 1,
    looked_at        timestamptz,
    watched_since    timestamptz NOT NULL DEFAULT now(),
    created_at       timestamptz NOT NULL DEFAULT now(),
    ended_at         timestamptz,
    xid              xid8 NOT NULL DEFAULT pg_current_xact_id()
);

-- Append-only: each raise of a mark, from which follows when an upgrade was offered to an agent.
CREATE TABLE agent_upgrade_raises (
    upgrade_id bigint NOT NULL REFERENCES agent_upgrades (id),
    number     integer NOT NULL,
    selector   text,
    lane_begun bigint,
    lane_now   bigint,
    upto       numeric(20) NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (upgrade_id, number)
);

-- The last step that an agent has reported; no row for an agent that has not begun. `reported_at` is by its clock. If the step is
-- `offered_again`, the agent gets the offer once more when it opens a session with another version.
CREATE TABLE agent_upgrade_reports (
    upgrade_id    bigint NOT NULL REFERENCES agent_upgrades (id),
    agent_id      uuid NOT NULL REFERENCES agents (id),
    step          text NOT NULL CHECK (step IN ('begun', 'taken_over', 'reconciled', 'restored', 'refused')),
    version       text NOT NULL,
    reason        jsonb,
    offered_again boolean NOT NULL,
    reported_at   timestamptz NOT NULL,
    received_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (upgrade_id, agent_id)
) WITH (fillfactor = 85);
CREATE INDEX agent_upgrade_reports_by_agent ON agent_upgrade_reports (agent_id, upgrade_id);

-- How new versions are rolled out: of the installation (without a project), of a project, or of a stack. Fields that a policy
-- leaves out come from the next wider one.
CREATE TABLE rollout_policies (
    project    text REFERENCES projects (name),
    stack_id   uuid CHECK (stack_id IS NULL OR project IS NOT NULL),
    policy     jsonb NOT NULL,
    changed_by text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (project, stack_id),
    FOREIGN KEY (project, stack_id) REFERENCES stacks (project, id)
);

-- How the health of custom kinds is read: in all stacks (without a project), or in one stack. `rules` are exactly the bytes that
-- agents get.
CREATE TABLE health_rules (
    project    text,
    stack_id   uuid,
    rules      text NOT NULL,
    changed_by text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((project IS NULL) = (stack_id IS NULL)),
    UNIQUE NULLS NOT DISTINCT (project, stack_id),
    FOREIGN KEY (project, stack_id) REFERENCES stacks (project, id)
);

-- Contents that a rollback has barred: the same bytes are refused on that stack until the bar is removed.
CREATE TABLE barred_contents (
    project     text NOT NULL,
    stack_id    uuid NOT NULL,
    checksum    bytea NOT NULL CHECK (length(checksum) = 32),
    sequence_id bigint NOT NULL,
    barred_by   text NOT NULL,
    reason      text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, stack_id, checksum),
    FOREIGN KEY (project, stack_id) REFERENCES stacks (project, id)
);

-- The number of objects that a large prune may delete, for one version and for one agent or all.
CREATE TABLE prune_approvals (
    project     text NOT NULL,
    stack_id    uuid NOT NULL,
    sequence_id bigint NOT NULL,
    agent_id    uuid REFERENCES agents (id),
    objects     integer NOT NULL CHECK (objects > 0),
    approved_by text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (project, stack_id, sequence_id, agent_id),
    FOREIGN KEY (project, stack_id) REFERENCES stacks (project, id)
);

-- What agents leave alone: a stack or one object of it, on one agent, on the agents with some labels, or on all. `left_seconds` is
-- counted down while a broker runs; `counted_at` is when that was last done.
CREATE TABLE suspensions (
    id           uuid PRIMARY KEY,
    project      text NOT NULL,
    stack_id     uuid NOT NULL,
    agent_id     uuid REFERENCES agents (id),
    selector     text,
    object       jsonb,
    seconds      integer NOT NULL CHECK (seconds > 0),
    left_seconds double precision NOT NULL,
    counted_at   timestamptz NOT NULL DEFAULT now(),
    reason       text NOT NULL,
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    ended_at     timestamptz,
    end_cause    text CHECK ((end_cause IS NULL) = (ended_at IS NULL)),
    ended_by     text,
    CHECK (agent_id IS NULL OR selector IS NULL),
    FOREIGN KEY (project, stack_id) REFERENCES stacks (project, id)
);
CREATE INDEX suspensions_of_stack ON suspensions (project, stack_id, id);
CREATE INDEX suspensions_of_agent ON suspensions (agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX suspensions_in_force ON suspensions (id) WHERE ended_at IS NULL;

-- Requests and the outbox --------------------------------------------------------------------------------------------

-- The key is stored hashed: the response of some requests is encrypted with it.
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

-- Notifications: "this agent changed", "this stack changed". Read by transaction id, never by `id > last`, because ids
-- are assigned before the commit and a reader would skip rows that commit late.
CREATE TABLE outbox (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    project text NOT NULL,
    kind    text NOT NULL CHECK (kind IN ('agent', 'stack', 'grant', 'window', 'health_rules', 'agent_upgrade')),
    key     uuid NOT NULL,
    at      timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX outbox_by_xid ON outbox (xid, id);
CREATE INDEX outbox_by_age ON outbox (at);

-- A replica commits a mark after it has read what it is about to show. Where the mark is missing, something that was shown is
-- missing. Ids grow with the clock, and also while it goes back, and end in a random number, so that another history has
-- other ids.
CREATE FUNCTION history_mark_at(timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
    RETURN floor(extract(epoch FROM $1) * 1000000)::bigint * 2048;
CREATE TABLE history_marks (id bigint PRIMARY KEY);
CREATE FUNCTION history_mark_next() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN greatest(history_mark_at(clock_timestamp()) + floor(random() * 2048)::bigint,
                    (SELECT max(id) + 1 + floor(random() * 1000000)::bigint FROM history_marks));
END $$;
ALTER TABLE history_marks ALTER COLUMN id SET DEFAULT history_mark_next();

-- Events and status --------------------------------------------------------------------------------------------------

-- Partitioned by the event's own time, so that a late repetition conflicts with its first copy. Followed by (xid,
-- recorded), never by `recorded` alone, which is assigned before the commit.
CREATE SEQUENCE event_recorded AS bigint;
CREATE TABLE events (
    project     text NOT NULL,
    id          uuid NOT NULL,
    at          timestamptz NOT NULL,
    recorded    bigint NOT NULL DEFAULT nextval('event_recorded'),
    xid         xid8 NOT NULL DEFAULT pg_current_xact_id(),
    stack_id    uuid NOT NULL,
    agent_id    uuid NOT NULL,
    sequence_id bigint NOT NULL,
    transition  text NOT NULL,
    reason      text NOT NULL,
    details     jsonb,
    message     text NOT NULL,
    objects     jsonb NOT NULL,
    hops        jsonb NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, id, at)
) PARTITION BY RANGE (at);
CREATE TABLE events_default PARTITION OF events DEFAULT;
CREATE INDEX events_by_xid ON events (xid, recorded);
CREATE INDEX events_by_project ON events (project, xid, recorded);
CREATE INDEX events_by_stack ON events (project, stack_id, recorded);
CREATE INDEX events_by_agent ON events (project, agent_id, recorded);

-- Reports from the future that were stored with the time of their arrival. A copy that arrives when its own time is no longer
-- in the future, or at a replica with another clock, does not conflict with the stored event.
CREATE TABLE clamped_reports (
    project     text NOT NULL,
    id          uuid NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, id)
);

-- The last report of an agent about a stack. `conditions` have their own time: a repair reports them without changing the
-- state. `reason_key` groups errors of the fleet. `applied_sequence_id` is the newest object known to be written. `since` is
-- when the version or the transition last changed, by this clock; `bad_before` says that the agent had failed with the version
-- before.
CREATE TABLE stack_status (
    project             text NOT NULL,
    stack_id            uuid NOT NULL,
    agent_id            uuid NOT NULL REFERENCES agents (id),
    agent_name          text COLLATE "C" NOT NULL DEFAULT '',
    sequence_id         bigint NOT NULL,
    applied_sequence_id bigint,
    transition          text NOT NULL,
    reason              text NOT NULL,
    details             jsonb,
    reason_key          bytea,
    message             text NOT NULL,
    objects             jsonb NOT NULL,
    hops                jsonb NOT NULL,
    ready               integer NOT NULL,
    total               integer NOT NULL,
    at                  timestamptz NOT NULL,
    since               timestamptz NOT NULL DEFAULT now(),
    bad_before          boolean NOT NULL DEFAULT false,
    conditions          jsonb NOT NULL DEFAULT '[]',
    conditions_at       timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (project, stack_id, agent_id)
) WITH (fillfactor = 85);
CREATE INDEX stack_status_by_reason ON stack_status (project, reason_key, stack_id, agent_name)
    WHERE reason_key IS NOT NULL;
CREATE INDEX stack_status_by_agent ON stack_status (agent_id);
CREATE INDEX stack_status_by_transition ON stack_status (project, stack_id, transition, agent_name);

CREATE TABLE reasons (
    project    text NOT NULL REFERENCES projects (name),
    key        bytea NOT NULL,
    reason     text NOT NULL,
    details    jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, key)
);

-- Counts over stack_status, in shards: reports of a whole fleet about one stack do not wait for each other. A single shard
-- means nothing and may be negative; only the sum counts.
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

-- Returns the shard of this transaction: one that no other transaction uses, locked until the end. So no two transactions
-- ever wait for each other's counts in a cycle, whatever the order in which they change them.
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
    -- Returns at once if the lock is already held; otherwise all shards are in use, and this waits for one.
    PERFORM pg_advisory_xact_lock(class, shard);
    PERFORM set_config('brokkr.status_shard', shard::text, true);
    RETURN shard;
END
$$;

-- A trigger, so that the counts follow every change of a status, in the same transaction.
CREATE FUNCTION stack_status_count() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    mine CONSTANT smallint := status_shard();
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO status_counts AS counts
        SELECT project, stack_id, sequence_id, transition, coalesce(reason_key, ''), mine, count(*)
        FROM new_rows GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (project, stack_id, sequence_id, transition, reason_key, shard)
            DO UPDATE SET count = counts.count + excluded.count;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO status_counts AS counts
        SELECT project, stack_id, sequence_id, transition, coalesce(reason_key, ''), mine, -count(*)
        FROM old_rows GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (project, stack_id, sequence_id, transition, reason_key, shard)
            DO UPDATE SET count = counts.count + excluded.count;
    ELSE
        INSERT INTO status_counts AS counts
        SELECT project, stack_id, sequence_id, transition, key, mine, sum(change)
        FROM (SELECT project, stack_id, sequence_id, transition, coalesce(reason_key, '') AS key, 1 AS change FROM new_rows
              UNION ALL
              SELECT project, stack_id, sequence_id, transition, coalesce(reason_key, ''), -1 FROM old_rows) changes
        GROUP BY 1, 2, 3, 4, 5 HAVING sum(change) <> 0 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (project, stack_id, sequence_id, transition, reason_key, shard)
            DO UPDATE SET count = counts.count + excluded.count;
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

-- Audit log ----------------------------------------------------------------------------------------------------------

-- Append-only. Repeated attempts of a caller that are refused for the same `refusal` share a row with a `count`. `reason` is
-- the text that an admin gave for a change. Partitioned by month, for retention. The hash chain over the rows is computed
-- afterwards, so that writers do not wait for each other.
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
    refusal    text NOT NULL DEFAULT '',
    count      bigint NOT NULL DEFAULT 1,
    reason     text NOT NULL DEFAULT '',
    before     bytea,
    after      bytea,
    PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);
CREATE TABLE audit_default PARTITION OF audit DEFAULT;
CREATE INDEX audit_by_project ON audit (project, id);
CREATE INDEX audit_by_xid ON audit (xid, id);
CREATE INDEX audit_floors ON audit (project, id) WHERE route = 'audit.floor';

-- One link per row and project: hash = SHA-256 of the previous hash and the row.
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
-- Up to where the rows are chained, in the order of transactions.
CREATE TABLE audit_cursor (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    xid       xid8 NOT NULL DEFAULT '0',
    id        bigint NOT NULL DEFAULT 0
);
INSERT INTO audit_cursor DEFAULT VALUES;

-- Old rows are dropped with their partition, once an entry 'audit.floor' in each chain records up to where. Their links stay.
CREATE FUNCTION audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END
$$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_append_only();
CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only();
CREATE TRIGGER audit_chain_append_only BEFORE UPDATE OR DELETE ON audit_chain
    FOR EACH ROW EXECUTE FUNCTION audit_append_only();
CREATE TRIGGER audit_chain_no_truncate BEFORE TRUNCATE ON audit_chain
    FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only();

-- Webhooks -----------------------------------------------------------------------------------------------------------

CREATE TABLE webhooks (
    project          text NOT NULL REFERENCES projects (name),
    id               uuid NOT NULL,
    name             text COLLATE "C" NOT NULL,
    url              text NOT NULL,
    format           text NOT NULL DEFAULT 'standard' CHECK (format IN ('standard', 'slack', 'teams', 'pagerduty')),
    filter           jsonb NOT NULL,
    enabled          boolean NOT NULL DEFAULT true,
    disabled_because text,
    created_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, id),
    UNIQUE (project, name)
);

-- Several during a rotation. Encrypted with the key of the installation that key_id names.
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

-- Messages, written in the transaction of the change they report. A message that is being sent is due again when its lease
-- ends.
CREATE TABLE webhook_deliveries (
    project         text NOT NULL,
    webhook_id      uuid NOT NULL,
    id              uuid NOT NULL,
    event           text NOT NULL,
    body            jsonb NOT NULL,
    -- Messages of one alert are delivered in their order.
    alert_id        uuid,
    state           text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'dead')),
    created_at      timestamptz NOT NULL DEFAULT now(),
    due_at          timestamptz NOT NULL DEFAULT now(),
    attempts        integer NOT NULL DEFAULT 0,
    claim_token     uuid,
    last_attempt_at timestamptz,
    last_status     integer,
    last_error      text,
    last_millis     integer,
    last_response   text,
    PRIMARY KEY (project, webhook_id, id),
    FOREIGN KEY (project, webhook_id) REFERENCES webhooks (project, id) ON DELETE CASCADE
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_due_by_webhook ON webhook_deliveries (project, webhook_id, due_at)
    WHERE state = 'pending';
CREATE INDEX webhook_deliveries_of_alert ON webhook_deliveries (project, webhook_id, alert_id, created_at, id)
    WHERE state = 'pending' AND alert_id IS NOT NULL;
CREATE INDEX webhook_deliveries_done ON webhook_deliveries (last_attempt_at) WHERE state <> 'pending';

-- Failures and drift of agents that are pending or last. No row: everything is fine. `cause` is what agents of one alert have in
-- common.
CREATE TABLE webhook_alarms (
    project       text NOT NULL REFERENCES projects (name),
    stack_id      uuid NOT NULL,
    agent_id      uuid NOT NULL,
    kind          text NOT NULL CHECK (kind IN ('failure', 'drift')),
    lasting       boolean NOT NULL,
    since         timestamptz NOT NULL,
    last          timestamptz NOT NULL,
    count         integer NOT NULL,
    trouble       text NOT NULL,
    cause         text NOT NULL,
    sequence_id   bigint NOT NULL,
    reason        text NOT NULL,
    details       jsonb,
    message       text NOT NULL,
    next_check_at timestamptz,
    PRIMARY KEY (project, stack_id, agent_id, kind)
) WITH (fillfactor = 70);
CREATE INDEX webhook_alarms_due ON webhook_alarms (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX webhook_alarms_lasting ON webhook_alarms (project, stack_id, cause) WHERE lasting;

-- What a webhook was sent about the agents of a stack with the same cause. Without `since`, no agent fails; with `alert_id`, an
-- alert is open, and `agents` is the largest number that was sent. Changed only by the holder of the lease `alerts`, in the
-- transaction that writes the message.
CREATE TABLE alerts (
    project     text NOT NULL,
    webhook_id  uuid NOT NULL,
    stack_id    uuid NOT NULL,
    cause       text NOT NULL,
    since       timestamptz,
    alert_id    uuid,
    agents      integer,
    calm_since  timestamptz,
    problem_at  timestamptz,
    resolved_at timestamptz,
    PRIMARY KEY (project, webhook_id, stack_id, cause),
    FOREIGN KEY (project, webhook_id) REFERENCES webhooks (project, id) ON DELETE CASCADE,
    CHECK ((alert_id IS NULL) = (agents IS NULL)),
    CHECK (alert_id IS NULL OR since IS NOT NULL)
) WITH (fillfactor = 70);

-- Partitions ---------------------------------------------------------------------------------------------------------

-- The tables that the functions below create and drop partitions of. No partition is dropped before all of its rows are
-- `min_days` old, so that the role of a broker that was taken over cannot delete newer ones. Only the owner changes this.
CREATE TABLE partition_limits (
    table_name text PRIMARY KEY,
    unit       text NOT NULL CHECK (unit IN ('day', 'month')),
    min_days   integer NOT NULL CHECK (min_days BETWEEN 1 AND 36500)
);
INSERT INTO partition_limits (table_name, unit, min_days) VALUES ('events', 'day', 1), ('audit', 'month', 31);

-- Returns the partition of a table for a day. In this range of days, each name belongs to one range of times.
CREATE FUNCTION partition_at(
    of_table text, day date,
    OUT name text, OUT first timestamptz, OUT next timestamptz, OUT min_days integer, OUT is_attached boolean
) LANGUAGE plpgsql AS $$
DECLARE
    unit  text;
    start timestamp;
BEGIN
    SELECT l.unit, l.min_days INTO unit, min_days FROM partition_limits l WHERE l.table_name = of_table;
    IF (day BETWEEN '1970-01-01' AND '9999-12-31' AND unit IS NOT NULL) IS NOT TRUE THEN
        RAISE EXCEPTION 'there are no partitions of % for %', of_table, day USING ERRCODE = 'invalid_parameter_value';
    END IF;
    start := date_trunc(unit, day::timestamp);
    name := of_table || to_char(start, CASE unit WHEN 'day' THEN '"_"YYYYMMDD' ELSE '"_"YYYYMM' END);
    first := start AT TIME ZONE 'UTC';
    next := (start + ('1 ' || unit)::interval) AT TIME ZONE 'UTC';
    is_attached := EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                           WHERE i.inhparent = of_table::regclass AND c.relname = name);
END
$$;

-- Creates the partition of a table for a day, if it does not exist. Rows of the default partition move there unchanged.
-- Returns whether it was created.
CREATE FUNCTION partition_create(of_table text, day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1s' AS $$
DECLARE
    part record;
BEGIN
    PERFORM pg_advisory_xact_lock(1112690259, hashtext(of_table));
    SELECT * INTO part FROM partition_at(of_table, day);
    IF part.is_attached THEN
        RETURN false;
    END IF;
    EXECUTE pg_catalog.format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', of_table || '_default');
    EXECUTE pg_catalog.format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part.name, of_table);
    -- No other session can write to the table while the trigger is disabled.
    IF of_table = 'audit' THEN
        ALTER TABLE audit_default DISABLE TRIGGER audit_append_only;
    END IF;
    EXECUTE pg_catalog.format('WITH moved AS (DELETE FROM %I WHERE at >= %L AND at < %L RETURNING *) INSERT INTO %I SELECT * FROM moved',
                   of_table || '_default', part.first, part.next, part.name);
    IF of_table = 'audit' THEN
        ALTER TABLE audit_default ENABLE TRIGGER audit_append_only;
    END IF;
    -- ATTACH does not block writes to the other partitions; CREATE … PARTITION OF would.
    EXECUTE pg_catalog.format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                   of_table, part.name, part.first, part.next);
    RETURN true;
END
$$;

-- Drops the partition of a table for a day, if all of its rows are old enough. If `entries` is given, it is dropped only if
-- it has this many rows; otherwise some arrived after they were counted. Returns whether it was dropped.
CREATE FUNCTION partition_drop(of_table text, day date, entries bigint DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1s' AS $$
DECLARE
    part record;
    found_entries bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(1112690259, hashtext(of_table));
    SELECT * INTO part FROM partition_at(of_table, day);
    IF part.next > now() - make_interval(hours => 24 * part.min_days) THEN
        RAISE EXCEPTION 'the partition % is not dropped before it is % days old', part.name, part.min_days
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT part.is_attached THEN
        RETURN false;
    END IF;
    IF entries IS NOT NULL THEN
        -- Blocks writers, but no readers: they lock the whole table first, and so does the drop.
        EXECUTE pg_catalog.format('LOCK TABLE %I IN SHARE MODE', part.name);
        EXECUTE pg_catalog.format('SELECT count(*) FROM %I', part.name) INTO found_entries;
        IF found_entries <> entries THEN
            RETURN false;
        END IF;
    END IF;
    EXECUTE pg_catalog.format('DROP TABLE %I', part.name);
    RETURN true;
END
$$;

-- The functions run as the owner of the tables, so they find only what is in this schema, whatever the caller has set.
DO $$
DECLARE
    called regprocedure;
BEGIN
    FOREACH called IN ARRAY ARRAY['partition_create(text, date)', 'partition_drop(text, date, bigint)']::regprocedure[] LOOP
        EXECUTE pg_catalog.format('ALTER FUNCTION %s SET search_path = %I, pg_temp', called, current_schema());
        EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', called);
    END LOOP;
END
$$;
