//! An edge in the making.

use crate::ledger::balance::delta::Delta;
use crate::ledger::sheet::{Edge, Term};

/// An edge in the making.
pub struct Draft {
    /// The edge so far.
    pub edge: Edge,
}

impl Draft {
    pub fn enter(&mut self, name: &str, proof: impl Into<String>, delta: Delta) {
        self.edge.entered.push(Term {
            name: name.into(),
            proof: proof.into(),
            count: delta.count.cast_signed(),
        });
        self.edge.bound += delta.skew;
    }

    pub fn leave(&mut self, name: impl Into<String>, proof: impl Into<String>, delta: Delta) {
        self.leave_signed(name, proof, delta.count.cast_signed());
        self.edge.bound += delta.skew;
    }

    pub fn leave_signed(&mut self, name: impl Into<String>, proof: impl Into<String>, count: i64) {
        if count != 0 {
            self.edge.left.push(Term {
                name: name.into(),
                proof: proof.into(),
                count,
            });
        }
    }

    pub fn unexplained(&self) -> i64 {
        let sum = |terms: &[Term]| terms.iter().map(|term| term.count).sum::<i64>();
        sum(&self.edge.entered) - sum(&self.edge.left)
    }

    pub fn close(mut self) -> Edge {
        self.edge.unexplained = self.unexplained();
        self.edge
    }

    /// Names a flow that nothing counts, once.
    pub fn open(&mut self, why: &str) {
        if !self.edge.open.iter().any(|known| known == why) {
            self.edge.open.push(why.into());
        }
    }
}
