-- An agent whose cluster does not come back is given up: by whom and why is kept, and nothing is owed there any more.
ALTER TABLE agents
    ADD COLUMN abandoned_at timestamptz,
    ADD COLUMN abandoned_by text,
    ADD COLUMN abandoned_because text,
    ADD CONSTRAINT abandoned_by_somebody
        CHECK (num_nulls(abandoned_at, abandoned_by, abandoned_because) IN (0, 3));
