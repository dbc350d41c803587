//! One element of each list of a rule.

use std::rc::Rc;
use std::sync::Arc;

use crate::lex::At;
use crate::parse::syntax::{Host, IcmpType, Id, Interface, Node, Port};
use crate::rule::Family;

/// An element of a list, or the only one of a dimension without a list.
pub(super) struct Choice<'r, T> {
    pub node: Option<&'r Node<T>>,
    pub index: u32,
    pub count: u32,
}

impl<T> Clone for Choice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Choice<'_, T> {}

impl<T> Choice<'_, T> {
    pub fn value(&self) -> Option<&T> {
        self.node.map(|node| &node.value)
    }

    pub fn at(&self) -> Option<&Rc<At>> {
        self.node.map(|node| &node.at)
    }
}

/// The elements of a dimension, or one that is none.
pub(super) fn choices<T>(list: &[Node<T>]) -> impl Iterator<Item = Choice<'_, T>> {
    let none = list.is_empty().then_some(Choice {
        node: None,
        index: 0,
        count: 0,
    });
    let count = list.len() as u32;
    let some = list.iter().enumerate().map(move |(index, node)| Choice {
        node: Some(node),
        index: index as u32,
        count,
    });
    none.into_iter().chain(some)
}

/// One element of each dimension.
pub(super) struct Combination<'r> {
    pub interface: Choice<'r, Interface>,
    pub protocol: Choice<'r, u8>,
    pub icmp: Choice<'r, IcmpType>,
    pub source: Choice<'r, Host>,
    pub destination: Choice<'r, Host>,
    pub source_port: Choice<'r, Port>,
    pub destination_port: Choice<'r, Port>,
    pub os: Choice<'r, Arc<str>>,
    pub user: Choice<'r, Id>,
    pub group: Choice<'r, Id>,
}

/// One element of each dimension of `from` and `to`.
pub(super) struct Peers<'r> {
    pub source: Choice<'r, Host>,
    pub destination: Choice<'r, Host>,
    pub source_port: Choice<'r, Port>,
    pub destination_port: Choice<'r, Port>,
    pub os: Choice<'r, Arc<str>>,
}

/// The family that all addresses share, if the rule has none.
pub(super) fn decide_family(hosts: &[Node<Host>], family: &mut Option<Family>) {
    if family.is_some() {
        return;
    }
    let mut families = hosts.iter().map(|node| node.value.family);
    if let Some(first) = families.next()
        && families.all(|other| other == first)
    {
        *family = first;
    }
}
