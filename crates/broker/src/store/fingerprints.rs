//! Digests of the facts in the index, computed by the database: it returns a few figures, however many rows
//! there are. It hashes each agent and each stack as one line of text, which must equal the line of
//! `domain/fingerprint.rs`, column by column.

use std::ops::RangeInclusive;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{Fetch as _, Result};
use crate::domain::fingerprint::Fingerprint;

macro_rules! fingerprint_of {
    ($line:literal, $rest:literal) => {
        concat!(
            "SELECT count(*),
                    coalesce(bit_xor(('x' || encode(substring(sha256(convert_to(line, 'UTF8')) FOR 8), 'hex'))
                                     ::bit(64)::bigint), 0)
             FROM (SELECT concat_ws('|', ",
            $line,
            ") AS line ",
            $rest,
            ") lines"
        )
    };
}

const AGENTS: &str = fingerprint_of!(
    "a.id, a.name, a.status, a.labels, (extract(epoch FROM a.labels_changed_at) * 1000000)::bigint,
     encode(a.public_key, 'hex'), a.session_count, coalesce(a.session_instance::text, '-'),
     a.session_duplicated, a.rotation_asked_at IS NOT NULL,
     coalesce((extract(epoch FROM a.upgradable_since) * 1000000)::bigint::text, '-'),
     coalesce(a.upgrade_id::text, '-'), a.upgrade_id IS NOT NULL AND a.upgrade_ended,
     encode(sha256(coalesce((SELECT string_agg(uuid_send(h.stack_id), ''::bytea ORDER BY h.stack_id)
                             FROM agent_holds h WHERE h.agent_id = a.id AND h.ended_at IS NULL), ''::bytea)), 'hex'),
     (SELECT count(*) FROM agent_holds h WHERE h.agent_id = a.id AND h.ended_at IS NULL AND NOT h.confirmed)",
    "FROM agents a
     WHERE get_byte(uuid_send(a.id), 15) BETWEEN $1 AND $2 AND a.id <> ALL($3)"
);

const STACKS: &str = fingerprint_of!(
    "s.id, s.project, s.name, coalesce(s.newest_sequence_id::text, '-'),
     CASE WHEN s.staged_sequence_id IS NULL THEN '' ELSE coalesce((
         SELECT string_agg(r.sequence_id || '@' || r.revision, ',' ORDER BY r.sequence_id)
         FROM rollouts r WHERE r.project = s.project AND r.stack_id = s.id AND r.widens IS NULL
                           AND r.sequence_id > coalesce(s.newest_sequence_id, 0)
                           AND (r.sequence_id = s.staged_sequence_id OR r.clauses <> '[]')), '') END,
     coalesce((SELECT w.sequence_id || '@' || w.revision FROM rollouts w
               WHERE w.project = s.project AND w.stack_id = s.id AND w.sequence_id = s.widening_sequence_id), ''),
     coalesce((SELECT string_agg(t.agent_id || '@' || (extract(epoch FROM t.created_at) * 1000000)::bigint, ','
                                 ORDER BY t.agent_id)
               FROM stack_targets t WHERE t.project = s.project AND t.stack_id = s.id), ''),
     coalesce((SELECT string_agg(t.selector || '@' || (extract(epoch FROM t.created_at) * 1000000)::bigint, ','
                                 ORDER BY t.selector COLLATE \"C\")
               FROM stack_selectors t WHERE t.project = s.project AND t.stack_id = s.id), ''),
     (SELECT count(*) FROM prune_approvals p WHERE p.project = s.project AND p.stack_id = s.id
                                               AND p.sequence_id IN (s.newest_sequence_id, s.staged_sequence_id)),
     coalesce((SELECT string_agg(u.id::text, ',' ORDER BY u.id)
               FROM suspensions u WHERE u.project = s.project AND u.stack_id = s.id AND u.ended_at IS NULL), ''),
     coalesce((SELECT encode(sha256(convert_to(h.rules, 'UTF8')), 'hex') FROM health_rules h
               WHERE h.project = s.project AND h.stack_id = s.id), ''), s.drift",
    "FROM stacks s
     WHERE get_byte(uuid_send(s.id), 15) BETWEEN $1 AND $2 AND s.deleted_at IS NULL AND s.id <> ALL($3)"
);

/// Computes the digests of the agents and non-deleted stacks with ids that end in one of these bytes, except `without`.
pub async fn fingerprints_on_conn(
    conn: &mut PgConnection,
    slices: &RangeInclusive<u8>,
    without: &[Uuid],
) -> Result<(Fingerprint, Fingerprint)> {
    let mut found = [Fingerprint::default(); 2];
    for (statement, found) in [AGENTS, STACKS].into_iter().zip(&mut found) {
        let (lines, sum): (i64, i64) = sqlx::query_as(statement)
            .bind(i32::from(*slices.start()))
            .bind(i32::from(*slices.end()))
            .bind(without)
            .one(&mut *conn, "compute digests of the facts")
            .await?;
        *found = Fingerprint { lines, sum };
    }
    Ok((found[0], found[1]))
}
