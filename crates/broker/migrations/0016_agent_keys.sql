-- Since when an agent has its key, and whether it was asked for a new one. Without a time, the key is as old as the agent.
ALTER TABLE agents ADD COLUMN key_since timestamptz, ADD COLUMN rotation_asked_at timestamptz;
