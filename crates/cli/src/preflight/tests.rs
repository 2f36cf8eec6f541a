//! Every check, with data that passes it and data that does not.

use brokkr_api::health::Trouble;
use brokkr_api::reason::{Message, Reason};
use brokkr_api::status::ErrorExample;
use brokkr_api::system::{AgentVersion, DatabaseRole, Hold, HoldCause, MissingPrivilege};
use brokkr_api::tokens::Role;
use brokkr_api::{ErrorCode, Problem, SequenceId};

use super::*;
use crate::view::samples::{AGENT, STACK, ago, now, stack};

/// Returns data of a healthy broker.
fn healthy() -> PreflightData {
    let health = Ok(Health { whole: true, causes: Vec::new() });
    PreflightData {
        server: "https://brokkr.example/".into(),
        version: "0.1.0".into(),
        reached: Ok(()),
        caller: Ok(WhoAmI {
            token_id: STACK.parse().unwrap(),
            name: "ana".into(),
            project: "default".into(),
            role: Role::Admin,
            expires_at: None,
            server_version: "0.1.0".into(),
        }),
        replicas: vec![Replica { address: "192.0.2.1:8780".into(), health }],
        system: Ok(System {
            installation: STACK.parse().unwrap(),
            version: "0.1.0".into(),
            protocol: 1,
            oldest_protocol: 1,
            epoch: 1,
            position: "1.7".into(),
            hold: None,
            agents_to_report: 0,
            stacks_ahead: 0,
            stacks_unknown: 0,
            stacks_unconfirmed: 0,
            targets_kept: 0,
            raised: Vec::new(),
            agent_versions: vec![of(Some("0.1.0"), 42)],
            database_role: Some(role()),
        }),
        fleet: Ok(Fleet { agents: 42, ..Fleet::default() }),
        pending_deletions: Ok(Vec::new()),
        errors: Ok(Vec::new()),
        tokens: Ok(Vec::new()),
        hooks: Ok(vec![hook("ops", 0)]),
        audit: Ok(AuditProgress { links: 7, broken: None, is_complete: true }),
    }
}

fn role() -> DatabaseRole {
    DatabaseRole { name: "brokkr_serving".into(), owns_tables: false, missing: Vec::new() }
}

fn of(version: Option<&str>, agents: u64) -> AgentVersion {
    AgentVersion { version: version.map(ToOwned::to_owned), agents }
}

fn hook(name: &str, dead: usize) -> WebhookHealth {
    WebhookHealth { name: name.into(), disabled_because: None, dead, more: false }
}

fn token(name: &str, days: i64) -> ApiToken {
    ApiToken {
        id: AGENT.parse().unwrap(),
        project: "default".into(),
        name: name.into(),
        role: Role::Deployer,
        created_by: None,
        created_at: ago(100),
        expires_at: Some(ago(-days * 86_400)),
        revoked_at: None,
    }
}

fn waiting_prune() -> ErrorGroup {
    let example = ErrorExample {
        stack_id: STACK.parse().unwrap(),
        stack_name: "web".into(),
        agent_id: AGENT.parse().unwrap(),
        agent_name: "eu-1".into(),
        sequence_id: SequenceId(42),
        message: Message::default(),
        objects: Vec::new(),
    };
    ErrorGroup {
        reason: Reason::PruneNeedsApproval { delete: 60, total: 100 },
        message: "would delete …".into(),
        count: 2,
        stacks: 1,
        sequence_id: SequenceId(42),
        examples: vec![example],
    }
}

/// Returns one check after a change of the data; all others must stay ok.
fn changed(check: &str, change: impl FnOnce(&mut PreflightData)) -> (Verdict, String, Option<String>) {
    let mut data = healthy();
    change(&mut data);
    let mut found = checks(&data, now());
    let at = found.iter().position(|one| one.check == check).unwrap();
    let result = found.remove(at);
    assert!(found.iter().all(|one| one.verdict == Verdict::Ok), "{check}: {found:?}");
    (result.verdict, result.reason, result.next)
}

fn system(data: &mut PreflightData) -> &mut System {
    data.system.as_mut().unwrap()
}

fn fleet(data: &mut PreflightData) -> &mut Fleet {
    data.fleet.as_mut().unwrap()
}

#[test]
fn agents_of_other_versions_are_a_warning() {
    let mut data = healthy();
    let mut check = |versions: Vec<AgentVersion>| {
        data.system.as_mut().unwrap().agent_versions = versions;
        let check = fleet::versions(&data);
        (check.verdict, check.reason)
    };
    assert_eq!(check(vec![of(Some("0.1.0"), 7)]), (Verdict::Ok, "all agents have version 0.1.0".into()));
    assert_eq!(check(Vec::new()), (Verdict::Ok, "no agents yet".into()));
    let mixed = check(vec![of(Some("0.1.0"), 40), of(Some("0.0.9"), 2), of(None, 1)]);
    let reason = "the broker has version 0.1.0; agents by version: 40 0.1.0, 2 0.0.9, 1 unknown";
    assert_eq!(mixed, (Verdict::Warning, reason.into()));
}

#[test]
fn a_healthy_broker_passes_every_check() {
    let found = checks(&healthy(), now());
    assert_eq!(found.len(), 16);
    for check in &found {
        assert_eq!((check.verdict, &check.next), (Verdict::Ok, &None), "{check:?}");
    }
}

#[test]
fn each_problem_shows_in_its_own_check_with_a_reason_and_a_command() {
    type Change = fn(&mut PreflightData);
    let cases: &[(&str, Verdict, &str, &str, Change)] = &[
        ("caller", Verdict::Warning, "expires in 3d", "brokkr token create", |data| {
            data.caller.as_mut().unwrap().expires_at = Some(ago(-3 * 86_400));
        }),
        (
            "version",
            Verdict::Warning,
            "the broker has version 0.2.0, this program 0.1.0",
            "upgrade.md",
            |data| {
                system(data).version = "0.2.0".into();
                system(data).agent_versions = vec![of(Some("0.2.0"), 42)];
            },
        ),
        ("replicas", Verdict::Failed, "192.0.2.2:8780: this replica is stopping", "BrokkrNoBroker", |data| {
            let health = Err(FetchError::Failed { why: "this replica is stopping".into(), next: None });
            data.replicas.push(Replica { address: "192.0.2.2:8780".into(), health });
        }),
        (
            "replicas",
            Verdict::Failed,
            "192.0.2.1:8780: database: not read for 9 s",
            "BrokkrNoBroker",
            |data| {
                let causes = vec![Trouble { part: "database".into(), detail: "not read for 9 s".into() }];
                data.replicas[0].health = Ok(Health { whole: false, causes });
            },
        ),
        ("hold", Verdict::Failed, "because the agent shop-1", "epoch raise", |data| {
            let cause = HoldCause::Operator { reason: "the agent shop-1 has seen 1.900".into() };
            system(data).hold = Some(Hold::new(now(), cause));
        }),
        ("restore", Verdict::Failed, "2 stacks newer on agents", "brokkr admin ahead", |data| {
            system(data).stacks_ahead = 2;
        }),
        ("restore", Verdict::Failed, "1 stack on agents but not", "brokkr admin unknown", |data| {
            system(data).stacks_unknown = 1;
        }),
        ("restore", Verdict::Warning, "stacks yet: 3", "brokkr admin status", |data| {
            system(data).agents_to_report = 3;
        }),
        (
            "database-role",
            Verdict::Warning,
            "brokkr_serving owns the tables",
            "docs/how-to/separate-roles.md",
            |data| system(data).database_role = Some(DatabaseRole { owns_tables: true, ..role() }),
        ),
        (
            "database-role",
            Verdict::Failed,
            "brokkr_serving lacks INSERT on audit",
            "brokkr-broker migrate --serving-role brokkr_serving",
            |data| {
                let missing = vec![MissingPrivilege { object: "audit".into(), privilege: "INSERT".into() }];
                system(data).database_role = Some(DatabaseRole { missing, ..role() });
            },
        ),
        (
            "agents-silent",
            Verdict::Warning,
            "9 silent (a, b, c and 6 more) of 42",
            "--presence silent",
            |data| {
                let names = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
                fleet(data).silent = Group { number: 9, names };
            },
        ),
        (
            "agents-silent",
            Verdict::Warning,
            "1 never connected (new) of 42 agents",
            "--presence never",
            |data| {
                fleet(data).never = Group { number: 1, names: vec!["new".into()] };
            },
        ),
        (
            "agents-refused",
            Verdict::Failed,
            "requests of eu-1 are refused",
            "brokkr why agent/eu-1",
            |data| {
                fleet(data).refused = vec!["eu-1".into()];
            },
        ),
        ("agents-refused", Verdict::Warning, "not examined: 60 agents", "--presence silent", |data| {
            fleet(data).not_examined = 60;
        }),
        ("agents-revoked", Verdict::Warning, "1 (eu-9)", "brokkr agent list", |data| {
            fleet(data).revoked = vec!["eu-9".into()];
        }),
        ("deletions", Verdict::Warning, "still have web (deleted 5m ago)", "brokkr status 0190", |data| {
            let mut stack = stack("web", Some(7));
            stack.deleted_at = Some(ago(300));
            data.pending_deletions = Ok(vec![stack]);
        }),
        ("prunes", Verdict::Warning, "2 prunes, for example of web", "brokkr stack approve web", |data| {
            data.errors = Ok(vec![waiting_prune()]);
        }),
        ("tokens", Verdict::Warning, "expires: ci in 13d", "brokkr token list", |data| {
            data.tokens = Ok(vec![token("ci", 13), token("later", 15), token("gone", -1)]);
        }),
        (
            "webhooks",
            Verdict::Warning,
            "ops has at least 50 dead letters",
            "deliveries ops --state dead",
            |data| {
                data.hooks = Ok(vec![hook("mail", 0), WebhookHealth { more: true, ..hook("ops", 50) }]);
            },
        ),
        ("webhooks", Verdict::Warning, "ops is disabled: it answered 410", "webhook show ops", |data| {
            let disabled_because = Some("it answered 410".into());
            data.hooks = Ok(vec![WebhookHealth { disabled_because, ..hook("ops", 0) }]);
        }),
        ("audit", Verdict::Failed, "at entry 7: its entry was changed", "brokkr audit verify", |data| {
            let why = "its entry was changed".into();
            let broken = Some(BrokenLink { number: 7, audit_id: None, why });
            data.audit = Ok(AuditProgress { links: 6, broken, is_complete: true });
        }),
        ("audit", Verdict::Warning, "the first 200000 entries are valid", "brokkr audit verify", |data| {
            data.audit = Ok(AuditProgress { links: 200_000, broken: None, is_complete: false });
        }),
    ];
    for (check, verdict, reason, next, change) in cases {
        let (found, why, what) = changed(check, change);
        assert_eq!(found, *verdict, "{check}: {why}");
        assert!(why.contains(reason), "{check}: {why:?} does not say {reason:?}");
        let what = what.unwrap_or_default();
        assert!(what.contains(next), "{check}: {what:?} does not say {next:?}");
    }
}

#[test]
fn data_that_the_caller_may_not_read_is_never_ok() {
    let problem = Problem::new(ErrorCode::BRK1002, "requires the role admin");
    let refusal =
        || FetchError::from(ClientError::Problem { problem: Box::new(problem.clone()), retry_after: None });
    let mut data = healthy();
    data.system = Err(refusal());
    data.tokens = Err(refusal());
    let found = checks(&data, now());
    for check in found.iter().filter(|check| ["version", "hold", "restore", "tokens"].contains(&check.check))
    {
        assert_eq!(check.verdict, Verdict::Warning, "{check:?}");
        assert_eq!(check.reason, "not allowed: requires the role admin");
    }
}

#[test]
fn an_unreachable_broker_fails_once_and_the_rest_is_not_ok() {
    let reached = Err(FetchError::Failed { why: "connect: refused".into(), next: Some("check it".into()) });
    let nothing = || FetchError::Skipped;
    let data = PreflightData {
        reached,
        caller: Err(nothing()),
        replicas: Vec::new(),
        system: Err(nothing()),
        fleet: Err(nothing()),
        pending_deletions: Err(nothing()),
        errors: Err(nothing()),
        tokens: Err(nothing()),
        hooks: Err(nothing()),
        audit: Err(nothing()),
        ..healthy()
    };
    let found = checks(&data, now());
    assert_eq!((found[0].verdict, found[0].reason.as_str()), (Verdict::Failed, "connect: refused"));
    assert!(found[1..].iter().all(|check| check.verdict == Verdict::Warning), "{found:?}");
}
