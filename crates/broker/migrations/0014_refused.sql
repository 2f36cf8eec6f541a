-- That somebody came in the name of an agent and could not prove it: the last time, and why. One of them for each agent, written
-- at most every ten seconds, so that nobody who cannot prove who he is fills the database by it.
ALTER TABLE agents ADD COLUMN refused_at timestamptz, ADD COLUMN refused_because text;
