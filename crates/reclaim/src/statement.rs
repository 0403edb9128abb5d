//! Statements: what a group was charged for.

use alloc::vec::Vec;

use crate::backing::Backing;
use crate::class::CLASSES;
use crate::group::{GroupId, NIL};
use crate::groups::Groups;
use crate::nanos::Picos;

/// The account of one group. `charged + carved + left = budget`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The group's reclamation budget.
    pub budget: Picos,
    /// Charged to the group itself.
    pub charged: Picos,
    /// Set aside as budgets of its children.
    pub carved: Picos,
    /// What is left.
    pub left: Picos,
    /// The most that was ever charged to the group and set aside for children at once.
    pub peak: Picos,
    /// The groups that the rows cover: this one and all below it.
    pub groups: u64,
    /// Charges of this group and all below it, by class; classes with none are left out.
    pub rows: Vec<Row>,
}

impl Statement {
    /// Everything charged in the tree: what ending the group now is predicted to cost.
    ///
    /// A bound, though children's budgets allow more than is charged to them: from the mark on
    /// nothing in the tree can be charged any more (BRR §III charges before each allocation, and
    /// every handle to a marked group is stale), so what a child has left pays for nothing that
    /// exists. `charged + carved` is the bound that does not need a look at the tree.
    pub fn predicted(&self) -> Picos {
        Picos(
            self.rows
                .iter()
                .fold(0, |sum, row| sum.saturating_add(row.ps.0)),
        )
    }
}

/// Charges of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Name of the class.
    pub name: &'static str,
    /// Units charged.
    pub count: u64,
    /// Their charge.
    pub ps: Picos,
}

impl<B: Backing, L: Copy> Groups<B, L> {
    /// The account of a group, with the charges of all groups below it. Work: proportional to
    /// the groups below it.
    pub fn statement(&self, group: GroupId) -> Option<Statement> {
        let top = self.table.alive(group)?;
        let mut tally = [0u64; CLASSES];
        let mut groups = 0;
        let mut at = top;
        loop {
            groups += 1;
            let record = self.table.at(at);
            for (sum, count) in tally.iter_mut().zip(&record.tally) {
                *sum = sum.saturating_add(*count);
            }
            match self.table.after(top, at) {
                NIL => break,
                next => at = next,
            }
        }
        let rows = self.classes.indices().filter_map(|class| {
            let count = tally[usize::from(class)];
            let ps = Picos(count.saturating_mul(self.classes.ps(class)));
            (count > 0).then_some(Row {
                name: self.classes.name(class),
                count,
                ps,
            })
        });
        let budget = &self.table.at(top).budget;
        Some(Statement {
            budget: Picos(budget.total()),
            charged: Picos(budget.charged()),
            carved: Picos(budget.carved()),
            left: Picos(budget.left()),
            peak: Picos(budget.peak()),
            groups,
            rows: rows.collect(),
        })
    }
}
