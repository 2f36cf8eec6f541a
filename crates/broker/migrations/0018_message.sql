-- A version may say why it was submitted and from which Git commit.
ALTER TABLE deployment_objects
    ADD COLUMN message text CHECK (char_length(message) BETWEEN 1 AND 1024),
    ADD COLUMN git_commit text CHECK (git_commit ~ '^[0-9a-f]{7,64}$');
