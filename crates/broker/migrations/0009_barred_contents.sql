-- Contents that a roll-back has barred: the same bytes are refused on that stack until somebody lifts the bar.
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
