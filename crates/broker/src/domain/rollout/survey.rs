//! Counts of the agents, and which of them come next.

use std::collections::HashMap;

use brokkr_api::rollouts::RolloutFigures;
use brokkr_api::{AgentId, Selector};
use jiff::Timestamp;

use super::verdict::{Contact, Verdict, VersionReport, verdict};

/// An agent that the stack targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub place: u64,
    /// Whether the current wave selects it.
    pub in_wave: bool,
    /// When the version was released to it, if it was.
    pub released_at: Option<Timestamp>,
    pub contact: Contact,
    /// Its last report about the version.
    pub report: Option<VersionReport>,
}

/// Which agents of the installation are connected, as far as the database knows.
#[derive(Clone, Debug, Default)]
pub struct Contacts {
    /// The agents that are not connected, or may not be.
    pub absent: HashMap<AgentId, Contact>,
    /// When agents returned lately.
    pub returned: HashMap<AgentId, Timestamp>,
}

/// What the database knows about the agents of a rollout.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    pub raises: Raises,
    pub reports: HashMap<AgentId, VersionReport>,
    pub contacts: &'a Contacts,
    /// Since when the agents have been looked at without a pause.
    pub watched_since: Timestamp,
}

/// What is known about all members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub figures: RolloutFigures,
    pub wave: WaveFigures,
    /// The places of the candidates of the wave.
    pub candidates: Vec<u64>,
}

/// The members that the current wave selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaveFigures {
    pub members: u64,
    /// Members that the version is released to, and that can prove it: without those that are owed or excused.
    pub released: u64,
    /// Those of them that are bad.
    pub bad: u64,
    /// Members that could begin the version now, and that it is not released to.
    pub candidates: u64,
    /// Members that it is not released to, and that have missed some polls.
    pub late: u64,
}

impl Survey {
    /// Counts an agent.
    pub fn add(&mut self, member: &Member, now: Timestamp) {
        self.figures.members += 1;
        self.wave.members += u64::from(member.in_wave);
        let Some(released_at) = member.released_at else {
            match member.contact {
                Contact::Present(_) if member.in_wave => {
                    self.wave.candidates += 1;
                    self.candidates.push(member.place);
                }
                Contact::Late(_) if member.in_wave => self.wave.late += 1,
                _ => {}
            }
            return;
        };
        let verdict = verdict(released_at, member.contact, member.report.as_ref(), now);
        let figures = &mut self.figures;
        figures.released += 1;
        *match verdict {
            Verdict::Healthy => &mut figures.healthy,
            Verdict::Bad => &mut figures.bad,
            Verdict::Excused => &mut figures.excused,
            Verdict::Owed => &mut figures.owed,
            Verdict::Waiting => &mut figures.waiting,
            Verdict::InFlight => &mut figures.in_flight,
        } += 1;
        if member.in_wave && !matches!(verdict, Verdict::Owed | Verdict::Excused) {
            self.wave.released += 1;
            self.wave.bad += u64::from(verdict == Verdict::Bad);
        }
    }
}

/// Returns the place up to which the mark has to be raised to include `count` of the candidates.
#[must_use]
pub fn mark(candidates: &mut [u64], count: u64) -> Option<u64> {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(candidates.len());
    let last = count.checked_sub(1)?;
    Some(*candidates.select_nth_unstable(last).1)
}

/// The raises of the marks of a rollout: to which agents the version was released, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raises(Vec<(Option<Selector>, Vec<Raise>)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Raise {
    upto: u64,
    at: Timestamp,
}

impl Raises {
    /// Adds a raise. Those of one selector are added in the order in which they happened, so that their marks grow.
    pub fn push(&mut self, selector: Option<Selector>, upto: u64, at: Timestamp) {
        match self.0.iter_mut().find(|(known, _)| *known == selector) {
            Some((_, raises)) => raises.push(Raise { upto, at }),
            None => self.0.push((selector, vec![Raise { upto, at }])),
        }
    }

    /// Returns when the version was released to an agent at this place with these labels.
    #[must_use]
    pub fn released_at(&self, place: u64, matches: impl Fn(&Selector) -> bool) -> Option<Timestamp> {
        let of_selector = |(selector, raises): &(Option<Selector>, Vec<Raise>)| {
            let first = raises.get(raises.partition_point(|raise| raise.upto < place))?;
            selector.as_ref().is_none_or(&matches).then_some(first.at)
        };
        self.0.iter().filter_map(of_selector).min()
    }
}
