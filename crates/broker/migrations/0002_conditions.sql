-- What agents say of a stack at a glance. With a time of their own: a repair tells them, too, and changes no state.
ALTER TABLE stack_status
    ADD COLUMN conditions    jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN conditions_at timestamptz NOT NULL DEFAULT '-infinity';
