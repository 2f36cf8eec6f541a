//! The privileges of the role that serves. The owner of the tables grants them with `migrate --serving-role`, and each start
//! checks them. The serving role cannot change tables, and can only append to the audit log.

use brokkr_api::system::{DatabaseRole, MissingPrivilege};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

use super::{Doing as _, Fetch as _, Result, Run as _, StoreError};

/// What `migrate` sets besides the schema. What is not given stays as it is.
#[derive(Clone, Debug, Default)]
pub struct ServingRole {
    /// The role to grant the privileges to.
    pub name: Option<String>,
    /// No partition of the audit log is dropped before all of its entries are this old.
    pub min_audit_days: Option<u32>,
}

#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the role {0:?} does not exist; create it with `CREATE ROLE … LOGIN`")]
    Unknown(String),
    #[error(
        "the role {0:?} owns the tables, is a member of the role that does, or is a superuser; the serving role must be \
         another one"
    )]
    Owner(String),
    #[error(
        "the role {role:?} may create objects in the schema {schema}, and could replace what the broker uses; run \
         `REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC`, and the same for the role itself if it was granted to it"
    )]
    Creates {
        role: String,
        /// Quoted where SQL needs it.
        schema: String,
    },
}

/// The privileges on tables. A table that is not listed is not used by a running broker.
const TABLES: &[(&[&str], &[&str])] = &[
    (&["SELECT"], &["_sqlx_migrations", "partition_limits"]),
    (
        &["SELECT", "INSERT"],
        &[
            "agent_upgrade_raises",
            "audit",
            "audit_chain",
            "epochs",
            "events",
            "rollout_decisions",
            "rollout_raises",
        ],
    ),
    (&["SELECT", "UPDATE"], &["audit_cursor", "installation", "task_claims"]),
    (&["SELECT", "DELETE"], &["events_default"]),
    (&["SELECT", "INSERT", "DELETE"], &["history_marks"]),
    (
        &["SELECT", "INSERT", "UPDATE"],
        &["agent_upgrades", "audit_heads", "deployment_objects", "project_usage", "rollouts"],
    ),
    (
        &["SELECT", "INSERT", "UPDATE", "DELETE"],
        &[
            "agent_events",
            "agent_holds",
            "agent_upgrade_reports",
            "agents",
            "alerts",
            "api_tokens",
            "barred_contents",
            "clamped_reports",
            "grants",
            "health_rules",
            "idempotency_keys",
            "join_tokens",
            "leases",
            "outbox",
            "projects",
            "prune_approvals",
            "reasons",
            "rollout_policies",
            "sessions",
            "stack_selectors",
            "stack_status",
            "stack_targets",
            "stacks",
            "status_counts",
            "suspensions",
            "webhook_alarms",
            "webhook_deliveries",
            "webhook_secrets",
            "webhooks",
            "windows",
        ],
    ),
];

/// `setval` needs UPDATE.
const SEQUENCES: &[(&str, &[&str])] = &[
    ("audit_id", &["USAGE"]),
    ("deployment_object_sequence", &["USAGE", "SELECT", "UPDATE"]),
    ("event_recorded", &["USAGE"]),
];

const FUNCTIONS: &[&str] = &["partition_create(text, date)", "partition_drop(text, date, bigint)"];

/// Returns the role of this connection, whether it owns the tables, and which privileges it lacks.
pub async fn privileges_check(pool: &PgPool) -> Result<DatabaseRole> {
    let action = "check the privileges of the database role";
    let mut needed: Vec<(&str, &str, &str)> = Vec::new();
    for (privileges, tables) in TABLES {
        needed.extend(tables.iter().flat_map(|table| privileges.iter().map(move |p| ("table", *table, *p))));
    }
    for (sequence, privileges) in SEQUENCES {
        needed.extend(privileges.iter().map(|privilege| ("sequence", *sequence, *privilege)));
    }
    needed.extend(FUNCTIONS.iter().map(|function| ("function", *function, "EXECUTE")));
    let column = |at: fn(&(&str, &str, &str)) -> String| needed.iter().map(at).collect::<Vec<_>>();
    // An object that does not exist gives NULL: another check finds that the schema is not migrated.
    let missing: Vec<(String, String)> = sqlx::query_as(
        "SELECT object, privilege FROM unnest($1::text[], $2::text[], $3::text[]) AS needed (kind, object, privilege)
         WHERE NOT CASE kind
            WHEN 'table' THEN has_table_privilege(to_regclass(object), privilege)
            WHEN 'sequence' THEN has_sequence_privilege(to_regclass(object), privilege)
            ELSE has_function_privilege(to_regprocedure(object), privilege) END",
    )
    .bind(column(|needed| needed.0.to_owned()))
    .bind(column(|needed| needed.1.to_owned()))
    .bind(column(|needed| needed.2.to_owned()))
    .all(pool, action)
    .await?;
    // True also for members of the owner and for superusers.
    let (name, owns_tables): (String, Option<bool>) = sqlx::query_as(
        "SELECT current_user::text,
                (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('audit'))",
    )
    .one(pool, action)
    .await?;
    let missing =
        missing.into_iter().map(|(object, privilege)| MissingPrivilege { object, privilege }).collect();
    Ok(DatabaseRole { name, owns_tables: owns_tables.unwrap_or_default(), missing })
}

/// Grants the serving role what it needs, and nothing else. Roles that were granted it before get what a migration has added.
pub async fn privileges_grant_on_conn(
    conn: &mut PgConnection,
    serving: &ServingRole,
) -> Result<(), GrantError> {
    let action = "grant privileges to the serving role";
    let mut transaction = conn.begin().await.doing(action)?;
    // Partitions are neither created nor dropped meanwhile.
    sqlx::query(
        "SELECT pg_advisory_xact_lock(1112690259, hashtext(table_name)) FROM partition_limits ORDER BY table_name",
    )
    .run(&mut *transaction, action)
    .await?;
    if let Some(days) = serving.min_audit_days {
        sqlx::query("UPDATE partition_limits SET min_days = $1 WHERE table_name = 'audit'")
            .bind(i32::try_from(days).unwrap_or(i32::MAX))
            .run(&mut *transaction, "set how long audit entries are kept at least")
            .await?;
    }
    let mut roles: Vec<String> = sqlx::query_scalar(
        "SELECT r.rolname::text FROM pg_proc p, aclexplode(p.proacl) granted JOIN pg_roles r ON r.oid = granted.grantee
         WHERE p.oid = 'partition_drop(text, date, bigint)'::regprocedure AND r.oid <> p.proowner",
    )
    .all(&mut *transaction, action)
    .await?;
    if let Some(name) = &serving.name {
        refuse_owner(&mut transaction, name).await?;
        refuse_creator(&mut transaction, name).await?;
        roles.push(name.clone());
    }
    for role in roles {
        for statement in statements(&mut transaction, &role).await? {
            sqlx::query(AssertSqlSafe(statement)).run(&mut *transaction, action).await?;
        }
    }
    Ok(transaction.commit().await.doing(action)?)
}

/// The privileges of an owner cannot be limited.
async fn refuse_owner(conn: &mut PgConnection, role: &str) -> Result<(), GrantError> {
    let owns: Option<bool> = sqlx::query_scalar(
        "SELECT pg_has_role(r.oid, c.relowner, 'MEMBER') FROM pg_roles r, pg_class c
         WHERE r.rolname = $1 AND c.oid = 'audit'::regclass",
    )
    .bind(role)
    .optional(conn, "find the serving role")
    .await?;
    match owns {
        None => Err(GrantError::Unknown(role.to_owned())),
        Some(true) => Err(GrantError::Owner(role.to_owned())),
        Some(false) => Ok(()),
    }
}

/// A database that was created by PostgreSQL 14 or older lets every role create objects in the schema `public`.
async fn refuse_creator(conn: &mut PgConnection, role: &str) -> Result<(), GrantError> {
    let (creates, schema): (bool, String) = sqlx::query_as(
        "SELECT has_schema_privilege($1::name, current_schema()::text, 'CREATE'), quote_ident(current_schema())",
    )
    .bind(role)
    .one(conn, "check whether the serving role may create objects")
    .await?;
    match creates {
        true => Err(GrantError::Creates { role: role.to_owned(), schema }),
        false => Ok(()),
    }
}

/// Returns the statements that give a role exactly its privileges.
async fn statements(conn: &mut PgConnection, role: &str) -> Result<Vec<String>> {
    let (role, schema, partitions): (String, String, Vec<String>) = sqlx::query_as(
        "SELECT quote_ident($1), quote_ident(current_schema()), coalesce(array_agg(i.inhrelid::regclass::text), '{}')
         FROM pg_inherits i WHERE i.inhparent IN (SELECT table_name::regclass FROM partition_limits)",
    )
    .bind(role)
    .one(conn, "list the partitions")
    .await?;
    let mut statements = vec![format!("GRANT USAGE ON SCHEMA {schema} TO {role}")];
    // Partitions are used through their table.
    let all = TABLES.iter().flat_map(|(_, tables)| tables.iter().map(ToString::to_string)).chain(partitions);
    statements.push(format!("REVOKE ALL ON {} FROM {role}", all.collect::<Vec<_>>().join(", ")));
    for (privileges, tables) in TABLES {
        statements.push(format!("GRANT {} ON {} TO {role}", privileges.join(", "), tables.join(", ")));
    }
    for (sequence, privileges) in SEQUENCES {
        statements.push(format!("GRANT {} ON SEQUENCE {sequence} TO {role}", privileges.join(", ")));
    }
    statements.push(format!("GRANT EXECUTE ON FUNCTION {} TO {role}", FUNCTIONS.join(", ")));
    Ok(statements)
}
