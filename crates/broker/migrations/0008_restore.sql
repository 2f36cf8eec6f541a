-- After a restore: the hold, the raised epochs, what agents tell that they hold, and what is asked of them.

-- `asked` counts how often all agents were asked to tell what they hold.
ALTER TABLE installation
    ADD COLUMN held_since   timestamptz,
    ADD COLUMN held_because text,
    ADD COLUMN asked        bigint NOT NULL DEFAULT 0;

-- The count that the agent last answered to.
ALTER TABLE agents ADD COLUMN told bigint NOT NULL DEFAULT 0;
CREATE INDEX agents_by_told ON agents (told);

-- What the agent says of a stack that it holds; empty where it was not asked, or is too old to tell.
ALTER TABLE agent_holds
    ADD COLUMN sequence_id  bigint,
    ADD COLUMN checksum     bytea,
    ADD COLUMN told_project text,
    ADD COLUMN stack_name   text,
    ADD COLUMN removing     boolean,
    ADD COLUMN told_at      timestamptz;
CREATE INDEX agent_holds_told ON agent_holds (stack_id, sequence_id) WHERE sequence_id IS NOT NULL;

-- Set where an agent held a stack that the restored targets did not give it: kept, so that nothing is pruned.
ALTER TABLE stack_targets ADD COLUMN kept_at timestamptz;

-- Append-only: who raised the epoch, and where the ids went on.
CREATE TABLE epochs (
    epoch           bigint PRIMARY KEY,
    raised_at       timestamptz NOT NULL DEFAULT now(),
    raised_by       text NOT NULL,
    epoch_before    bigint NOT NULL,
    sequence_before bigint NOT NULL,
    sequence_after  bigint NOT NULL,
    held_because    text
);
