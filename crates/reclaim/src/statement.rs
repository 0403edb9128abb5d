//! Statements: the account of a group.

use alloc::vec::Vec;

use crate::backing::Backing;
use crate::cost::Mode;
use crate::group::{GroupId, NIL};
use crate::groups::Groups;
use crate::nanos::Picos;
use crate::tally::Tally;

/// The account of one group. `charged + carved + left = budget`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The group's reclamation budget.
    pub budget: Picos,
    /// Charged to the group itself.
    pub charged: Picos,
    /// Set aside as budgets of its children.
    pub carved: Picos,
    /// The rest of the budget.
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
    /// nothing in the tree can be charged (BRR §III charges before each allocation, and every
    /// handle to a marked group is stale), so what a child has left pays for nothing that exists.
    /// `charged + carved` is the bound that does not need a look at the tree.
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
    /// The account of a group, with the charges of all groups below it. Work: that of the
    /// classes for a root; proportional to the groups below it for any other group, and for
    /// every group in [`Mode::Individual`].
    pub fn statement(&self, group: GroupId) -> Option<Statement> {
        let top = self.table.alive(group)?;
        let record = self.table.at(top);
        let (tally, groups) = if record.root == top && self.config.mode == Mode::Grouped {
            let mut tally = *record.tally();
            tally.join(&self.arenas[record.arena as usize].below);
            (tally, 1 + u64::from(record.members()))
        } else {
            self.visit(top)
        };
        let rows = self.classes.indices().filter_map(|class| {
            let count = tally.of(class);
            let ps = Picos(count.saturating_mul(self.classes.ps(class)));
            (count > 0).then_some(Row {
                name: self.classes.name(class),
                count,
                ps,
            })
        });
        let budget = &record.budget;
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

    /// Units charged to a group and all groups below it, and how many groups these are.
    fn visit(&self, top: u32) -> (Tally, u64) {
        let (mut tally, mut groups) = (Tally::NONE, 0);
        let mut at = top;
        while at != NIL {
            groups += 1;
            tally.join(self.table.at(at).tally());
            at = self.table.after(top, at);
        }
        (tally, groups)
    }
}
