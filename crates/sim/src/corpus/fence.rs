//! Requests that meet the fence: they are sent with the account of the agent.

use super::{Case, CorpusRequest, Entry, Fixture, Given, Uid, applied, entries, foreign, nothing};
use crate::server::FORGED_SEQUENCE;

/// Returns the requests; every namespace begins with `prefix`.
#[must_use]
pub fn fenced(prefix: &str) -> Vec<Entry> {
    entries(prefix, CASES)
}

fn unlabelled(fixture: &Fixture) -> Vec<Given> {
    vec![Given::Applied(fixture.map.clone()), Given::Unlabelled(fixture.map.key.clone())]
}

fn forged(fixture: &Fixture) -> Vec<Given> {
    vec![
        Given::Applied(fixture.map.clone()),
        Given::Sequence(fixture.map.key.clone(), FORGED_SEQUENCE.to_owned()),
    ]
}

fn unreadable(fixture: &Fixture) -> Vec<Given> {
    vec![
        Given::Applied(fixture.map.clone()),
        Given::Sequence(fixture.map.key.clone(), "9999999999999999999".to_owned()),
    ]
}

fn of_another_agent(fixture: &Fixture) -> Vec<Given> {
    vec![Given::OfAnotherAgent(fixture.map.clone())]
}

fn apply(fixture: &Fixture) -> CorpusRequest {
    CorpusRequest::Apply(fixture.changed(), Uid::Right)
}

fn dry_run(fixture: &Fixture) -> CorpusRequest {
    CorpusRequest::DryRun(fixture.changed(), Uid::Right)
}

fn delete(fixture: &Fixture) -> CorpusRequest {
    CorpusRequest::Delete(fixture.map.key.clone(), Uid::Right)
}

fn release(fixture: &Fixture) -> CorpusRequest {
    CorpusRequest::Release(fixture.map.key.clone(), Uid::Right)
}

const CASES: &[Case] = &[
    ("create", nothing, |fixture| CorpusRequest::Apply(fixture.map.clone(), Uid::None)),
    ("apply", applied, apply),
    ("release", applied, release),
    ("delete", applied, delete),
    ("adopt a foreign object", foreign, apply),
    ("dry run on a foreign object", foreign, dry_run),
    ("release a foreign object", foreign, release),
    ("delete a foreign object", foreign, delete),
    ("apply to an object without the label", unlabelled, apply),
    ("release an object without the label", unlabelled, release),
    ("delete an object without the label", unlabelled, delete),
    ("delete an object without the label, naming another uid", unlabelled, |fixture| {
        CorpusRequest::Delete(fixture.map.key.clone(), Uid::Wrong)
    }),
    ("apply to an object with a forged sequence", forged, apply),
    ("dry run on an object with a forged sequence", forged, dry_run),
    ("apply an invalid object to one with a forged sequence", forged, |fixture| {
        CorpusRequest::Apply(fixture.broken(), Uid::Right)
    }),
    ("release an object with a forged sequence", forged, release),
    ("delete an object with a forged sequence", forged, delete),
    ("apply to an object with a sequence that is too long", unreadable, apply),
    ("apply to an object of another agent", of_another_agent, apply),
    ("dry run on an object of another agent", of_another_agent, dry_run),
    ("release an object of another agent", of_another_agent, release),
    ("delete an object of another agent", of_another_agent, delete),
    ("delete an absent object", nothing, |fixture| {
        CorpusRequest::Delete(fixture.map.key.clone(), Uid::Wrong)
    }),
];
