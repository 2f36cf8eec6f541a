//! The bytes of a row against a plain map, and the views against counting one agent after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use brokkr_api::envelope::Removal;
use brokkr_api::fleet::{FleetAgents, FleetCell, FleetColumn, MATRIX_SIDE};
use brokkr_api::{SequenceId, StackId};
use proptest::prelude::*;
use roaring::RoaringBitmap;

use super::matrix::{Columns, MatrixBuilder};
use super::row::OutcomeRow;
use super::summary::SummaryBuilder;
use super::{Condition, Outcome, Reported, StackView, Target, TargetGroup, condition};

const SLOTS: u32 = 40;
const OUTCOMES: [Outcome; 7] = [
    Outcome::Applied,
    Outcome::Healthy,
    Outcome::Degraded,
    Outcome::Failed,
    Outcome::Blocked,
    Outcome::Removed,
    Outcome::Unknown,
];

fn reported(version: i64, outcome: Outcome) -> Reported {
    Reported { version: SequenceId(version), outcome }
}

fn a_report(versions: i64) -> impl Strategy<Value = Option<Reported>> {
    let report = (1..=versions, prop::sample::select(&OUTCOMES[..]));
    prop::option::weighted(0.8, report.prop_map(|(version, outcome)| reported(version, outcome)))
}

type Reports = BTreeMap<u32, Option<Reported>>;

fn reports(slots: u32, versions: i64) -> impl Strategy<Value = Reports> {
    prop::collection::btree_map(0..slots, a_report(versions), 0..20)
}

fn change(row: &mut OutcomeRow, changes: &Reports, slots: usize, kept: &[SequenceId]) {
    let changes: Vec<_> = changes.iter().map(|(slot, reported)| (*slot, *reported)).collect();
    row.change(&changes, slots, kept);
}

fn all(row: &OutcomeRow, slots: u32) -> Reports {
    let mut seen = Reports::new();
    row.visit(&(0..slots).collect(), |slot, byte| {
        seen.insert(slot, row.decode(byte));
    });
    seen
}

proptest! {
    #[test]
    fn a_row_is_the_last_report_of_each_agent(
        batches in prop::collection::vec(reports(SLOTS, 31), 1..12),
        // Sparse to the end, dense from some batch on, and dense from the start.
        slots in prop::sample::select(&[10_000usize, 200, 40][..]),
    ) {
        let (mut row, mut expected) = (OutcomeRow::default(), Reports::new());
        for batch in &batches {
            change(&mut row, batch, slots, &[]);
            expected.extend(batch.clone());
            for slot in 0..SLOTS {
                let last = expected.get(&slot).copied().flatten();
                prop_assert_eq!(row.reported(slot), last, "slot {}", slot);
            }
            let seen: Vec<_> = all(&row, SLOTS).into_iter().filter_map(|(slot, last)| Some((slot, last?))).collect();
            let wanted: Vec<_> = expected.iter().filter_map(|(slot, last)| Some((*slot, (*last)?))).collect();
            prop_assert_eq!(&seen, &wanted);
            let reporters: RoaringBitmap = wanted.iter().map(|(slot, _)| *slot).collect();
            prop_assert_eq!(row.reporters(), reporters);
            prop_assert_eq!(row.is_empty(), wanted.is_empty());
        }
    }

    #[test]
    fn too_many_versions_share_a_number_and_those_that_are_wanted_do_not(
        batches in prop::collection::vec(reports(SLOTS, 80), 1..12),
        slots in prop::sample::select(&[10_000usize, 40][..]),
    ) {
        let kept = [SequenceId(1), SequenceId(80)];
        let (mut row, mut expected) = (OutcomeRow::default(), Reports::new());
        for batch in &batches {
            change(&mut row, batch, slots, &kept);
            expected.extend(batch.clone());
            for (slot, last) in &expected {
                let (last, here) = (*last, row.reported(*slot));
                prop_assert_eq!(here.map(|here| here.outcome), last.map(|last| last.outcome));
                let (Some(last), Some(here)) = (last, here) else { continue };
                let is_merged = here.version == SequenceId(0);
                prop_assert!(is_merged || here.version == last.version, "{:?} for {:?}", here, last);
                prop_assert!(!is_merged || !kept.contains(&last.version), "{:?}", last);
            }
        }
    }

    #[test]
    fn the_views_are_what_one_finds_agent_by_agent(fleet in a_fleet()) {
        let columns = columns(&fleet);
        let silent: RoaringBitmap = fleet.silent.iter().copied().collect();
        let (mut matrix, mut summary) = (MatrixBuilder::new(&columns, &silent), SummaryBuilder::new(SLOTS as usize));
        let mut expected_rows = Vec::new();
        let mut worst: BTreeMap<u32, Condition> = BTreeMap::new();
        for (number, stack) in fleet.stacks.iter().enumerate() {
            let view = view(number, stack);
            matrix.add(&view);
            summary.add(&view);
            let mut cells = [FleetCell::default(); 3];
            for (slot, group) in &stack.groups {
                let (target, last) = (TARGETS[*group], stack.reports.get(slot).copied().flatten());
                let found = condition(target, last);
                let before = worst.entry(*slot).or_insert(Condition::OnIntent);
                *before = (*before).max(found);
                if let Some(column) = fleet.columns.get(slot) {
                    count(&mut cells[*column], found, last, fleet.silent.contains(slot));
                }
            }
            if cells.iter().any(|cell| cell.agents > 0) {
                expected_rows.push((Some(view.name), cells.to_vec()));
            }
        }
        let rows: Vec<_> = matrix.finish().into_iter().map(|row| (row.stack_name, row.cells)).collect();
        prop_assert_eq!(rows, expected_rows);
        let (stacks, counts) = summary.finish(&silent);
        prop_assert_eq!(stacks, fleet.stacks.len() as u64);
        let mut expected = FleetAgents { agents: worst.len() as u64, ..FleetAgents::default() };
        for (slot, worst) in worst {
            *match worst {
                _ if fleet.silent.contains(&slot) => &mut expected.silent,
                Condition::OnIntent => &mut expected.on_intent,
                Condition::Unknown => &mut expected.unknown,
                Condition::Pending => &mut expected.pending,
                Condition::Blocked => &mut expected.blocked,
                Condition::Failing => &mut expected.failing,
            } += 1;
        }
        prop_assert_eq!(counts, expected);
    }
}

/// What agents should have of each stack: its newest version, the one before, its removal, or nothing.
const TARGETS: [Target; 4] = [
    Some((SequenceId(3), None)),
    Some((SequenceId(2), None)),
    Some((SequenceId(3), Some(Removal::Deleted))),
    None,
];

#[derive(Clone, Debug)]
struct Fleet {
    /// The column of each agent that is in one of three.
    columns: BTreeMap<u32, usize>,
    silent: Vec<u32>,
    stacks: Vec<Stack>,
}

#[derive(Clone, Debug)]
struct Stack {
    /// The target of each agent that the stack reaches.
    groups: BTreeMap<u32, usize>,
    reports: Reports,
    is_dense: bool,
}

fn a_fleet() -> impl Strategy<Value = Fleet> {
    let everyone = prop::collection::vec(0..TARGETS.len(), SLOTS as usize)
        .prop_map(|targets| (0u32..).zip(targets).collect::<BTreeMap<u32, usize>>());
    let some = prop::collection::btree_map(0..SLOTS, 0..TARGETS.len(), 0..20);
    // All agents have the same target, as in most stacks.
    let same = Just((0..SLOTS).map(|slot| (slot, 0)).collect::<BTreeMap<u32, usize>>());
    let stack = (prop_oneof![everyone, some, same], reports(SLOTS, 4), any::<bool>())
        .prop_map(|(groups, reports, is_dense)| Stack { groups, reports, is_dense });
    let columns = prop::collection::btree_map(0..SLOTS, 0..3usize, 0..SLOTS as usize);
    let silent = prop::collection::btree_set(0..SLOTS, 0..5);
    (columns, silent, prop::collection::vec(stack, 0..4)).prop_map(|(columns, silent, stacks)| Fleet {
        columns,
        silent: silent.into_iter().collect(),
        stacks,
    })
}

fn columns(fleet: &Fleet) -> Columns {
    let members = |number: usize| -> RoaringBitmap {
        fleet.columns.iter().filter(|(_, column)| **column == number).map(|(slot, _)| *slot).collect()
    };
    let column = |number: usize| (FleetColumn::Value { value: number.to_string() }, members(number));
    Columns::new((0..3).map(column).collect(), SLOTS as usize)
}

fn view(number: usize, stack: &Stack) -> StackView {
    let mut row = OutcomeRow::default();
    change(&mut row, &stack.reports, if stack.is_dense { 1 } else { 10_000 }, &[]);
    let group = |target: usize| {
        let agents = stack.groups.iter().filter(|(_, group)| **group == target).map(|(slot, _)| *slot);
        TargetGroup { agents: agents.collect(), target: TARGETS[target] }
    };
    StackView {
        id: StackId::generate(),
        name: format!("stack-{number}"),
        newest: Some(SequenceId(3)),
        groups: (0..TARGETS.len()).map(group).collect(),
        row: Arc::new(row),
    }
}

fn count(cell: &mut FleetCell, found: Condition, last: Option<Reported>, is_silent: bool) {
    cell.agents += 1;
    *match found {
        Condition::OnIntent => &mut cell.on_intent,
        Condition::Unknown => &mut cell.unknown,
        Condition::Pending => &mut cell.pending,
        Condition::Blocked => &mut cell.blocked,
        Condition::Failing => &mut cell.failing,
    } += 1;
    cell.silent += u64::from(is_silent);
    cell.current += u64::from(last.is_some_and(|last| last.version == SequenceId(3)));
    cell.older += u64::from(last.is_some_and(|last| last.version < SequenceId(3)));
}

#[test]
fn a_row_takes_a_byte_for_each_slot_or_a_few_for_each_report() {
    const MANY: u32 = 1_000_000;
    let report = |slot: u32| (slot, Some(reported(1, Outcome::Healthy)));
    let (mut few, mut all) = (OutcomeRow::default(), OutcomeRow::default());
    let hundred: Vec<_> = (0..100).map(|number| report(number * 10_000)).collect();
    few.change(&hundred, MANY as usize, &[]);
    let million: Vec<_> = (0..MANY).map(report).collect();
    all.change(&million, MANY as usize, &[]);
    assert!(few.memory() < 2_000, "{} bytes", few.memory());
    assert!(all.memory() < MANY as usize + 2_000, "{} bytes", all.memory());
}

#[test]
fn stacks_without_a_row_of_their_own_are_added_up_in_the_last_one() {
    let everyone: RoaringBitmap = (0..SLOTS).collect();
    let columns = Columns::new(vec![(FleetColumn::All, everyone)], SLOTS as usize);
    let silent = RoaringBitmap::new();
    for stacks in [MATRIX_SIDE, MATRIX_SIDE + 1, 10 * MATRIX_SIDE] {
        let mut matrix = MatrixBuilder::new(&columns, &silent);
        for number in 0..stacks {
            // The first ones reach the most agents.
            let reached = if number < 3 { SLOTS } else { 1 };
            let groups = (0..reached).map(|slot| (slot, 0)).collect();
            matrix.add(&view(number, &Stack { groups, reports: Reports::new(), is_dense: false }));
        }
        let rows = matrix.finish();
        assert_eq!(rows.len(), MATRIX_SIDE, "{stacks} stacks");
        assert_eq!(rows.iter().map(|row| row.stacks).sum::<u64>(), stacks as u64);
        let agents: u64 = rows.iter().map(|row| row.cells[0].agents).sum();
        assert_eq!(agents, 3 * u64::from(SLOTS) + stacks as u64 - 3);
        for name in ["stack-0", "stack-1", "stack-2"] {
            assert!(rows.iter().any(|row| row.stack_name.as_deref() == Some(name)), "{name}");
        }
        let others = rows.iter().filter(|row| row.stack_id.is_none()).count();
        assert_eq!(others, usize::from(stacks > MATRIX_SIDE));
        assert_eq!(rows[MATRIX_SIDE - 1].stack_id.is_none(), stacks > MATRIX_SIDE, "it is the last");
    }
}

#[test]
fn a_version_that_is_older_than_all_others_takes_no_number_from_them() {
    let mut row = OutcomeRow::default();
    let newer: Vec<_> =
        (1u32..32).map(|slot| (slot, Some(reported(i64::from(slot) + 100, Outcome::Healthy)))).collect();
    row.change(&newer, 40, &[]);
    row.change(&[(0, Some(reported(1, Outcome::Failed)))], 40, &[]);
    assert_eq!(row.reported(0), Some(reported(0, Outcome::Failed)), "older than all");
    assert_eq!(row.reported(1), Some(reported(101, Outcome::Healthy)));
    row.change(&[(0, Some(reported(200, Outcome::Applied)))], 40, &[]);
    assert_eq!(row.reported(0), Some(reported(200, Outcome::Applied)));
    assert_eq!(row.reported(1), Some(reported(0, Outcome::Healthy)), "the oldest one");
}
