//! Counts of the agents, and which of them come next.

use std::collections::{BTreeSet, HashMap};

use brokkr_api::report::Transition;
use brokkr_api::rollouts::RolloutFigures;
use brokkr_api::windows::Opening;
use brokkr_api::{AgentId, Selector};
use jiff::Timestamp;

use super::verdict::{Contact, Verdict, VersionReport, verdict};
use crate::domain::release::Clause;
use crate::domain::windows::Lanes;

/// An agent that the stack targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub place: u64,
    /// Whether the current wave selects it.
    pub in_wave: bool,
    pub lanes: Lanes,
    /// Whether it may begin the version now.
    pub opening: Opening,
    /// What of the stack is suspended on it. The whole, if it cannot begin an upgrade.
    pub suspended: Option<Extent>,
    /// When the version was released to it, if it was.
    pub released_at: Option<Timestamp>,
    pub contact: Contact,
    /// Its last report about the version.
    pub report: Option<VersionReport>,
}

/// What of a stack is suspended on an agent: it cannot begin a version, or cannot complete it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Stack,
    Object,
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
    /// The lanes of the agents that may begin the version now.
    pub lanes: BTreeSet<Lanes>,
    /// When the next agents of the wave may begin that may not now.
    pub opens_at: Option<Timestamp>,
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
    /// Members that it is not released to, because they may not begin it now.
    pub shut: u64,
}

impl Survey {
    /// Counts an agent of the wave that could begin the version now, and that it is not released to.
    pub fn add_candidate(&mut self, place: u64) {
        self.figures.members += 1;
        self.wave.members += 1;
        self.wave.candidates += 1;
        self.candidates.push(place);
    }

    /// Counts an agent.
    pub fn add(&mut self, member: &Member, now: Timestamp) {
        self.figures.members += 1;
        self.wave.members += u64::from(member.in_wave);
        let is_shut = matches!(member.opening, Opening::Shut { .. });
        let is_connected = matches!(member.contact, Contact::Present(_) | Contact::Late(_));
        if !is_shut {
            self.lanes.insert(member.lanes);
        }
        let Some(released_at) = member.released_at else {
            // Like an agent that is not connected, it gets the version later.
            if member.suspended == Some(Extent::Stack) {
                return;
            }
            if let Opening::Shut { until } = member.opening {
                if !is_connected {
                    return;
                }
                self.wave.shut += u64::from(member.in_wave);
                let known = [self.opens_at, until.filter(|_| member.in_wave)].into_iter().flatten();
                self.opens_at = known.min();
                return;
            }
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
        // What the version has broken already is no less broken.
        let has_failed = member
            .report
            .as_ref()
            .is_some_and(|report| matches!(report.transition, Transition::Failed | Transition::Degraded));
        let is_held = member.suspended.is_some() && !has_failed;
        let verdict = match verdict(released_at, member.contact, member.report.as_ref(), now) {
            // Its window has closed before it began. If it has begun just before, it reports soon.
            Verdict::Bad if is_shut && member.report.is_none() && is_connected => Verdict::Owed,
            Verdict::Bad | Verdict::Waiting | Verdict::InFlight if is_held => Verdict::Owed,
            verdict => verdict,
        };
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
pub fn mark(candidates: &mut Vec<u64>, count: u64) -> Option<u64> {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(candidates.len());
    let last = count.checked_sub(1)?;
    let near = near(candidates, count);
    let candidates = if near.len() >= count { &mut { near } } else { candidates };
    Some(*candidates.select_nth_unstable(last).1)
}

/// Returns the candidates among which the first ones nearly always are: places are random, so that they are evenly spread. Selecting
/// among all of a million takes most of the time of a step.
fn near(candidates: &[u64], count: usize) -> Vec<u64> {
    let first = candidates.iter().min().copied().unwrap_or_default();
    let each = (u64::MAX - first) / u64::try_from(candidates.len()).unwrap_or(u64::MAX).max(1);
    let far = first.saturating_add(each.saturating_mul(2 * u64::try_from(count).unwrap_or(u64::MAX / 2)));
    candidates.iter().copied().filter(|place| *place <= far).collect()
}

/// The raises of the marks of a rollout: to which agents the version was released, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raises(Vec<(Marked, Vec<Raise>)>);

/// The agents that a mark is for.
type Marked = (Lanes, Option<Selector>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Raise {
    upto: u64,
    at: Timestamp,
}

impl Raises {
    /// Adds a raise. Those of one mark are added in the order in which they happened, so that they grow.
    pub fn push(&mut self, Clause { selector, lanes, upto }: Clause, at: Timestamp) {
        match self.0.iter_mut().find(|((lanes_of, of), _)| *of == selector && *lanes_of == lanes) {
            Some((_, raises)) => raises.push(Raise { upto, at }),
            None => self.0.push(((lanes, selector), vec![Raise { upto, at }])),
        }
    }

    /// Returns when the version was released to an agent at this place, of these lanes and with these labels.
    #[must_use]
    pub fn released_at(
        &self,
        place: u64,
        lanes: Lanes,
        matches: impl Fn(&Selector) -> bool,
    ) -> Option<Timestamp> {
        let of_mark = |((of, selector), raises): &(Marked, Vec<Raise>)| {
            let first = raises.get(raises.partition_point(|raise| raise.upto < place))?;
            (*of == lanes && selector.as_ref().is_none_or(&matches)).then_some(first.at)
        };
        self.0.iter().filter_map(of_mark).min()
    }
}
