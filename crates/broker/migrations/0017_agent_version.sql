-- Of which version the agent was when it last started, as it said. For people: nothing is decided by it.
ALTER TABLE agents ADD COLUMN version text;
