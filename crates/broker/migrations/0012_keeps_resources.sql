-- A deletion may leave the resources in the clusters: agents take Brokkr's marks off instead of deleting them.
ALTER TABLE deployment_objects
    ADD COLUMN keeps_resources boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT only_a_deletion_keeps_resources CHECK (is_deletion_marker OR NOT keeps_resources);
