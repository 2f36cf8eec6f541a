//! Rules for migrations after the first one, which run while brokers serve: no statement may rewrite or scan an existing table
//! under a lock that stops writers. The check reads the text of the statements; it knows the usual mistakes, not all of them.

use std::fs;

use anyhow::Result;

const NO_TRANSACTION: &str = "-- no-transaction";

/// Returns the statements in upper case, with single spaces, without comments. Semicolons in function bodies do not count.
fn statements(sql: &str) -> Vec<String> {
    let code: Vec<&str> = sql.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    let code = code.join(" ").to_uppercase();
    let outside: String = code.split("$$").step_by(2).collect::<Vec<_>>().join("$$");
    let tidy = |statement: &str| statement.split_whitespace().collect::<Vec<_>>().join(" ");
    outside.split(';').map(tidy).filter(|statement| !statement.is_empty()).collect()
}

/// Returns the table that a statement changes, if it takes a lock on it that stops readers or writers.
fn locked_table(statement: &str) -> Option<&str> {
    if let Some(rest) = statement.strip_prefix("ALTER TABLE ") {
        let rest = rest.strip_prefix("IF EXISTS ").unwrap_or(rest);
        return rest.strip_prefix("ONLY ").unwrap_or(rest).split(' ').next();
    }
    let is_trigger = statement.starts_with("CREATE TRIGGER") || statement.starts_with("DROP TRIGGER");
    let is_index = statement.starts_with("CREATE INDEX") || statement.starts_with("CREATE UNIQUE INDEX");
    let (_, on) = statement.split_once(" ON ").filter(|_| is_trigger || is_index)?;
    on.split([' ', '(']).next()
}

/// Returns why a statement must not run on a large table, if it must not.
fn objection(statement: &str) -> Option<&'static str> {
    let has = |text: &str| statement.contains(text);
    let is_alter = statement.starts_with("ALTER TABLE");
    let default = statement.split_once(" DEFAULT ").map(|(_, value)| value.replace("NOW()", ""));
    match () {
        () if has("INDEX ") && (has("CREATE INDEX") || has("UNIQUE INDEX")) && !has(" CONCURRENTLY ") => {
            Some("create the index CONCURRENTLY")
        }
        () if is_alter && has(" SET NOT NULL") => {
            Some("add a CHECK constraint that is NOT VALID, and validate it later")
        }
        () if is_alter && has(" ALTER COLUMN ") && has(" TYPE ") => {
            Some("add a new column instead of changing the type")
        }
        () if is_alter && has(" ADD COLUMN ") && default.is_some_and(|value| value.contains('(')) => {
            Some("a default that is computed for each row rewrites the table")
        }
        () if is_alter && has(" ADD COLUMN ") && has(" GENERATED ") => {
            Some("a generated column rewrites the table")
        }
        () if is_alter
            && (has(" PRIMARY KEY") || has(" ADD UNIQUE") || has(" UNIQUE ("))
            && !has(" USING INDEX ") =>
        {
            Some("create a unique index CONCURRENTLY, and add the constraint USING INDEX")
        }
        () if is_alter && (has(" CHECK ") || has(" REFERENCES ")) && !has(" NOT VALID") => {
            Some("add the constraint NOT VALID, and validate it in a later migration")
        }
        () if is_alter
            && (has(" SET TABLESPACE") || has(" SET LOGGED") || has(" SET UNLOGGED") || has(" CLUSTER ")) =>
        {
            Some("it rewrites the table")
        }
        () if statement.starts_with("LOCK")
            || statement.starts_with("TRUNCATE")
            || statement.starts_with("CLUSTER") =>
        {
            Some("it stops writers")
        }
        () if statement.starts_with("VACUUM FULL")
            || (statement.starts_with("REINDEX") && !has(" CONCURRENTLY ")) =>
        {
            Some("it stops writers")
        }
        () => None,
    }
}

/// Returns why a migration must not run while brokers serve.
fn objections(sql: &str) -> Vec<String> {
    let statements = statements(sql);
    let created: Vec<&str> = statements
        .iter()
        .filter_map(|statement| statement.strip_prefix("CREATE TABLE ")?.split([' ', '(']).next())
        .collect();
    let old = |statement: &&String| !locked_table(statement).is_some_and(|table| created.contains(&table));
    let mut found: Vec<String> = statements
        .iter()
        .filter(old)
        .filter_map(|statement| objection(statement).map(|why| format!("{statement}: {why}")))
        .collect();
    if sql.starts_with(NO_TRANSACTION) && statements.len() != 1 {
        found.push("a migration without a transaction has one statement".to_owned());
    }
    if statements.iter().any(|statement| statement.contains(" CONCURRENTLY "))
        && !sql.starts_with(NO_TRANSACTION)
    {
        found.push(format!("CONCURRENTLY needs {NO_TRANSACTION:?} in the first line"));
    }
    if statements.iter().any(|statement| statement.contains(" VALIDATE CONSTRAINT ")) && statements.len() != 1
    {
        found.push(
            "a constraint is validated in a migration of its own: earlier statements keep their locks"
                .to_owned(),
        );
    }
    // A lock on one table is kept while the migration waits for the next.
    let mut locked: Vec<&str> =
        statements.iter().filter(old).filter_map(|statement| locked_table(statement)).collect();
    locked.sort_unstable();
    locked.dedup();
    if locked.len() > 1 {
        found.push(format!("change one existing table in each migration, not {}", locked.join(", ")));
    }
    found
}

#[test]
fn no_migration_stops_writers_of_a_large_table() -> Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if !path.ends_with("0001_schema.sql") {
            let found = objections(&fs::read_to_string(&path)?);
            assert!(found.is_empty(), "{}: {found:#?}", path.display());
        }
    }
    Ok(())
}

#[test]
fn statements_that_stop_writers_are_recognised() {
    for (sql, why) in [
        ("CREATE INDEX by_time ON events (at)", "CONCURRENTLY"),
        ("CREATE UNIQUE INDEX by_time ON events (at)", "CONCURRENTLY"),
        ("CREATE INDEX CONCURRENTLY by_time ON agents (at)", "first line"),
        (
            "-- no-transaction\nCREATE INDEX CONCURRENTLY a ON b (c); CREATE INDEX CONCURRENTLY d ON b (e)",
            "one statement",
        ),
        ("ALTER TABLE stacks ALTER COLUMN name SET NOT NULL", "NOT VALID"),
        ("ALTER TABLE stacks ALTER COLUMN name TYPE varchar", "new column"),
        ("ALTER TABLE stacks ADD COLUMN key uuid DEFAULT gen_random_uuid()", "rewrites"),
        ("ALTER TABLE stacks ADD COLUMN n bigint GENERATED ALWAYS AS IDENTITY", "rewrites"),
        ("ALTER TABLE stacks ADD UNIQUE (name)", "USING INDEX"),
        ("ALTER TABLE stacks ADD CONSTRAINT short CHECK (length(name) < 9)", "NOT VALID"),
        ("ALTER TABLE stacks ADD COLUMN owner text REFERENCES projects (name)", "NOT VALID"),
        (
            "ALTER TABLE stacks\n  ADD CONSTRAINT short CHECK (true) NOT VALID; ALTER TABLE stacks VALIDATE CONSTRAINT short",
            "of its own",
        ),
        ("ALTER TABLE stacks ADD COLUMN a text; ALTER TABLE agents ADD COLUMN a text", "AGENTS, STACKS"),
        ("LOCK TABLE stacks", "stops writers"),
        ("VACUUM FULL stacks", "stops writers"),
    ] {
        let found = objections(sql);
        assert!(found.iter().any(|objection| objection.contains(why)), "{sql}: {found:?}");
    }
    for sql in [
        "-- no-transaction\n-- An index.\nCREATE INDEX CONCURRENTLY IF NOT EXISTS by_time ON agents (at);",
        "ALTER TABLE stacks ADD COLUMN note text NOT NULL DEFAULT '', ADD COLUMN at timestamptz DEFAULT now();",
        "ALTER TABLE stacks ADD CONSTRAINT short CHECK (length(name) < 9) NOT VALID;",
        "ALTER TABLE stacks VALIDATE CONSTRAINT short;",
        "CREATE TABLE notes (id uuid PRIMARY KEY, stack uuid CHECK (true)); CREATE INDEX notes_by_stack ON notes (stack);",
        "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN LOCK TABLE x; END $$; -- LOCK TABLE x;",
    ] {
        assert_eq!(objections(sql), [""; 0], "{sql}");
    }
}
