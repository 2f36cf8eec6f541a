//! Agents by stack and by the value of a label.
//!
//! For each stack, the agents are counted once by column and byte; only then does anything ask what a byte means. So the inner loop
//! has no hashing and no branches, whatever the number of versions and states.

use brokkr_api::fleet::{FleetCell, FleetColumn, FleetRow, MATRIX_SIDE};
use roaring::RoaringBitmap;

use super::{Condition, StackView, TargetGroup, condition};

/// The number of different bytes.
const BYTES: usize = 256;

/// Which column each agent is in.
#[derive(Clone, Debug)]
pub struct Columns {
    pub columns: Vec<FleetColumn>,
    /// The agents that are in any column.
    pub agents: RoaringBitmap,
    /// By slot. Agents that are in no column have the number after the last one.
    of: Vec<u8>,
}

impl Columns {
    /// Returns columns with these agents, of which each is in one column. `slots` is the number of slots in the index.
    #[must_use]
    pub fn new(columns: Vec<(FleetColumn, RoaringBitmap)>, slots: usize) -> Self {
        debug_assert!(columns.len() <= MATRIX_SIDE, "a number fits into a byte");
        let none = u8::try_from(columns.len()).unwrap_or(u8::MAX);
        let (mut of, mut agents) = (vec![none; slots], RoaringBitmap::new());
        for ((_, members), number) in columns.iter().zip(0u8..) {
            for slot in members {
                of[slot as usize] = number;
            }
            agents |= members;
        }
        let columns = columns.into_iter().map(|(column, _)| column).collect();
        Self { columns, agents, of }
    }

    /// Returns the column of the agent.
    fn of(&self, slot: u32) -> Option<usize> {
        let column = self.of.get(slot as usize).copied().map(usize::from)?;
        (column < self.columns.len()).then_some(column)
    }
}

/// Adds up one stack after the other, so that not all of them have to be in memory.
#[derive(Debug)]
pub struct MatrixBuilder<'a> {
    columns: &'a Columns,
    silent: &'a RoaringBitmap,
    /// Agents by column and byte. All are zero between two groups.
    counts: Vec<u32>,
    rows: Vec<FleetRow>,
    others: FleetRow,
}

impl<'a> MatrixBuilder<'a> {
    #[must_use]
    pub fn new(columns: &'a Columns, silent: &'a RoaringBitmap) -> Self {
        let width = columns.columns.len();
        let others = FleetRow {
            stack_id: None,
            stack_name: None,
            sequence_id: None,
            stacks: 0,
            cells: vec![FleetCell::default(); width],
        };
        // One column more, for agents that are in none.
        Self { columns, silent, counts: vec![0; (width + 1) * BYTES], rows: Vec::new(), others }
    }

    /// Adds a stack, unless it reaches no agent of any column.
    pub fn add(&mut self, stack: &StackView) {
        let mut cells = vec![FleetCell::default(); self.columns.columns.len()];
        for group in &stack.groups {
            self.count(stack, group);
            self.read(stack, group, &mut cells);
            // Most rows have a few versions, and so a few different bytes.
            self.counts.chunks_exact_mut(BYTES).for_each(|counts| counts[..stack.row.bytes()].fill(0));
            for slot in &group.agents & self.silent {
                if let Some(column) = self.columns.of(slot) {
                    cells[column].silent += 1;
                }
            }
        }
        if cells.iter().all(|cell| cell.agents == 0) {
            return;
        }
        self.rows.push(FleetRow {
            stack_id: Some(stack.id),
            stack_name: Some(stack.name.clone()),
            sequence_id: stack.newest,
            stacks: 1,
            cells,
        });
        // Seldom, because each time sorts the rows.
        if self.rows.len() > 4 * MATRIX_SIDE {
            self.fold();
        }
    }

    /// Returns the rows of the stacks with the most agents, by name, and one for all others.
    #[must_use]
    pub fn finish(mut self) -> Vec<FleetRow> {
        if self.rows.len() > MATRIX_SIDE || self.others.stacks > 0 {
            self.fold();
        }
        let mut rows = self.rows;
        rows.sort_by(|one, other| (&one.stack_name, one.stack_id).cmp(&(&other.stack_name, other.stack_id)));
        if self.others.stacks > 0 {
            rows.push(self.others);
        }
        rows
    }

    /// Counts the agents of the group by column and byte.
    fn count(&mut self, stack: &StackView, group: &TargetGroup) {
        let (of, counts) = (&self.columns.of, &mut self.counts);
        let none = self.columns.columns.len();
        // Most stacks of a large fleet reach all of it: then no set has to be walked.
        match stack.row.dense().filter(|_| self.columns.agents.is_subset(&group.agents)) {
            Some(bytes) => {
                let known = of.len().min(bytes.len());
                for (column, byte) in of[..known].iter().zip(bytes) {
                    counts[usize::from(*column) * BYTES + usize::from(*byte)] += 1;
                }
                // Agents that joined later than the last one that has reported.
                for column in &of[known..] {
                    counts[usize::from(*column) * BYTES] += 1;
                }
            }
            None => stack.row.visit(&group.agents, |slot, byte| {
                let column = of.get(slot as usize).map_or(none, |column| usize::from(*column));
                counts[column * BYTES + usize::from(byte)] += 1;
            }),
        }
    }

    /// Adds what the counted bytes mean to the cells.
    fn read(&self, stack: &StackView, group: &TargetGroup, cells: &mut [FleetCell]) {
        for (byte, reported) in stack.row.meanings() {
            let condition = condition(group.target, reported);
            let version = reported.map(|reported| reported.version);
            for (cell, counts) in cells.iter_mut().zip(self.counts.chunks_exact(BYTES)) {
                let agents = u64::from(counts[usize::from(byte)]);
                if agents == 0 {
                    continue;
                }
                cell.agents += agents;
                *match condition {
                    Condition::OnIntent => &mut cell.on_intent,
                    Condition::Pending => &mut cell.pending,
                    Condition::Failing => &mut cell.failing,
                    Condition::Blocked => &mut cell.blocked,
                    Condition::Unknown => &mut cell.unknown,
                } += agents;
                if version.is_some() && version == stack.newest {
                    cell.current += agents;
                } else if version.is_some() && version < stack.newest {
                    cell.older += agents;
                }
            }
        }
    }

    /// Adds the rows with the fewest agents to the last one.
    fn fold(&mut self) {
        let agents = |row: &FleetRow| row.cells.iter().map(|cell| cell.agents).sum::<u64>();
        self.rows.sort_by_cached_key(|row| (std::cmp::Reverse(agents(row)), row.stack_name.clone()));
        for row in self.rows.drain((MATRIX_SIDE - 1).min(self.rows.len())..) {
            self.others.stacks += row.stacks;
            self.others.cells.iter_mut().zip(&row.cells).for_each(|(sum, cell)| sum.add(cell));
        }
    }
}
