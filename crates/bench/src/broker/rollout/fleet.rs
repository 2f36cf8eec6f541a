//! An index with the same agents and stacks as the part `million`, without its database.

use std::sync::Arc;

use anyhow::Result;
use brokkr_api::agents::AgentStatus;
use brokkr_api::ids::Checksum;
use brokkr_api::names::DEFAULT_PROJECT;
use brokkr_api::protocol::holds_digest;
use brokkr_api::{AgentId, InstallationId, SequenceId, StackId};
use brokkr_broker::domain::facts::{AgentFacts, ObjectFacts, SelectorTarget, SessionFacts, StackFacts};
use brokkr_broker::domain::grants::Rules;
use brokkr_broker::domain::labels::Labeller;
use brokkr_broker::index::{Changes, Freshness, Index, Snapshot};
use jiff::Timestamp;

use crate::broker::args::BrokerArgs;
use crate::broker::million::SITE;

/// The first sequence id of the stacks of sites. Lower ones are of the stack that is rolled out.
const FIRST_OF_SITES: usize = 10;

/// Returns an index with this stack, which every agent holds, and with a stack for each site.
pub fn index(args: &BrokerArgs, installation: InstallationId, stack: StackFacts) -> Result<Arc<Index>> {
    let agents = agents(args.fleet, stack.id);
    let sites = (args.fleet / SITE).max(1);
    let of_sites = (0..args.stacks).map(|number| {
        let (name, selector) = (format!("stack-{number}"), format!("site=s{}", number % sites));
        self::stack(&name, &selector, object((FIRST_OF_SITES + number) as i64))
    });
    let stacks = std::iter::once(Ok(stack)).chain(of_sites).collect::<Result<_>>()?;
    let unrestricted = [DEFAULT_PROJECT.to_owned()].into();
    let rules = Some(Rules { unrestricted, ..Rules::default() });
    let index = Index::new(installation);
    let snapshot = Snapshot::new(Changes { agents, deleted_agents: Vec::new(), stacks, rules });
    index.replace(snapshot, Freshness::unread());
    Ok(Arc::new(index))
}

fn agents(count: usize, held: StackId) -> Vec<AgentFacts> {
    let (mut labeller, holds_digest) = (Labeller::default(), holds_digest([held]));
    let mut agents = Vec::with_capacity(count);
    for number in 0..count {
        let labels = [
            ("env", ["dev", "stage", "prod"][number % 3].to_owned()),
            ("region", format!("r{}", number % 40)),
            ("tier", format!("t{}", number % 7)),
            ("site", format!("s{}", number / SITE)),
        ];
        agents.push(AgentFacts {
            id: AgentId::generate(),
            name: format!("fleet-{number}"),
            status: AgentStatus::Active,
            labels: labels.iter().map(|(key, value)| labeller.label(key, value)).collect(),
            labels_changed_at: Timestamp::UNIX_EPOCH,
            public_key: [0; 32],
            session: SessionFacts { count: 1, ..SessionFacts::default() },
            new_key_wanted: false,
            upgrade: None,
            holds: vec![held],
            holds_digest,
            unconfirmed: Box::default(),
        });
    }
    agents
}

/// Returns a stack with one selector, of which every agent gets this version.
pub fn stack(name: &str, selector: &str, base: ObjectFacts) -> Result<StackFacts> {
    let mut stack = StackFacts::new(DEFAULT_PROJECT.to_owned(), StackId::generate(), name.to_owned())
        .with_base(Some(base));
    stack.selectors.push(SelectorTarget { selector: selector.parse()?, since: Timestamp::UNIX_EPOCH });
    Ok(stack)
}

/// Returns a version with one resource.
pub fn object(sequence: i64) -> ObjectFacts {
    ObjectFacts {
        sequence_id: SequenceId(sequence),
        checksum: Checksum::of(&sequence.to_be_bytes()),
        parsed_digest: Checksum::of(b"{}"),
        is_deletion_marker: false,
        keeps_resources: false,
        is_urgent: false,
        wave_wait_seconds: None,
        resources: 1,
        published_at: Timestamp::UNIX_EPOCH,
    }
}
