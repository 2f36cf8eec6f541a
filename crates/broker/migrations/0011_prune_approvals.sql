-- A large prune waits until somebody says that so many objects may go, for one version and for one agent or all.
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
