-- Append-only: each step of a rollout, with what it was decided from. A trigger writes them, so that no step can be left out.
CREATE TABLE rollout_decisions (
    project     text NOT NULL,
    stack_id    uuid NOT NULL,
    sequence_id bigint NOT NULL,
    number      integer NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    state       text NOT NULL,
    wave        integer NOT NULL,
    figures     jsonb NOT NULL,
    pending     jsonb,
    stop_reason jsonb,
    PRIMARY KEY (project, stack_id, sequence_id, number),
    FOREIGN KEY (project, stack_id, sequence_id) REFERENCES rollouts (project, stack_id, sequence_id)
);

CREATE FUNCTION rollouts_decided() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rollout_decisions (project, stack_id, sequence_id, number, state, wave, figures, pending, stop_reason)
    SELECT NEW.project, NEW.stack_id, NEW.sequence_id, count(*), NEW.state, NEW.wave, NEW.figures, NEW.pending, NEW.stop_reason
    FROM rollout_decisions
    WHERE project = NEW.project AND stack_id = NEW.stack_id AND sequence_id = NEW.sequence_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER rollouts_decided AFTER UPDATE ON rollouts
    FOR EACH ROW WHEN (OLD.revision <> NEW.revision OR OLD.wave <> NEW.wave) EXECUTE FUNCTION rollouts_decided();
