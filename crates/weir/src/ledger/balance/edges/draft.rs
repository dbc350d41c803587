//! An edge in the making.

use crate::ledger::balance::delta::Delta;
use crate::ledger::sheet::{Edge, Loss, Term};

/// An edge in the making.
pub struct Draft {
    /// The edge so far.
    pub edge: Edge,
}

/// A count as a term of a balance. No kernel counts beyond it; a recording may say so.
pub fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Draft {
    pub fn enter(&mut self, name: &str, proof: impl Into<String>, delta: Delta) {
        self.edge.entered.push(Term {
            name: name.into(),
            proof: proof.into(),
            count: signed(delta.count),
            most: None,
        });
        self.bound(delta.skew);
    }

    pub fn leave(&mut self, name: impl Into<String>, proof: impl Into<String>, delta: Delta) {
        self.leave_signed(name, proof, signed(delta.count));
        self.bound(delta.skew);
    }

    pub fn leave_signed(&mut self, name: impl Into<String>, proof: impl Into<String>, count: i64) {
        self.push(name.into(), proof.into(), count, None);
    }

    /// Losses, each under its reason.
    pub fn lose<'l>(&mut self, losses: impl IntoIterator<Item = &'l Loss>) {
        for loss in losses {
            self.leave_signed(loss.reason.clone(), loss.proof.clone(), signed(loss.count));
        }
    }

    /// A flow that no counter has alone, up to its limit: the packets that are unexplained so far.
    pub fn leave_rest(&mut self, name: &str, proof: &str, most: u64) {
        let rest = self.unexplained().clamp(0, signed(most));
        self.push(name.into(), proof.into(), rest, Some(most));
    }

    /// As [`Self::leave_rest`], for packets that left and never entered.
    pub fn return_rest(&mut self, name: &str, proof: &str, most: u64) {
        let rest = self.unexplained().clamp(-signed(most), 0);
        self.push(name.into(), proof.into(), rest, Some(most));
    }

    /// Widens the bound of the unexplained packets.
    pub fn bound(&mut self, packets: u64) {
        self.edge.bound = self.edge.bound.saturating_add(packets);
    }

    fn push(&mut self, name: String, proof: String, count: i64, most: Option<u64>) {
        if count != 0 {
            self.edge.left.push(Term {
                name,
                proof,
                count,
                most,
            });
        }
    }

    pub fn unexplained(&self) -> i64 {
        let sum = |terms: &[Term]| {
            let counts = terms.iter().map(|term| term.count);
            counts.fold(0, i64::saturating_add)
        };
        sum(&self.edge.entered).saturating_sub(sum(&self.edge.left))
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
