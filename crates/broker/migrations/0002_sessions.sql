-- Sessions of the console. A session has the role and the project of the API token that it was opened with, and ends with it. Only
-- the hash of its secret is stored.
CREATE TABLE sessions (
    id           uuid PRIMARY KEY,
    hash         bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    project      text NOT NULL,
    token_id     uuid NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    -- Written at most once a minute.
    last_used_at timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    FOREIGN KEY (project, token_id) REFERENCES api_tokens (project, id) ON DELETE CASCADE
);
CREATE INDEX sessions_by_token ON sessions (project, token_id);
