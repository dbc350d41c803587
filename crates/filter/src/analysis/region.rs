//! From diagrams to regions: the packets of each pair of decisions, how many they are, and one of
//! them.

use std::collections::HashMap;

use super::build::{Diagram, NodeId, SAME, as_terminal};
use super::cube::{Cube, is_uncertain};
use super::space::Field;
use super::vocabulary::Vocabulary;
use super::witness::{Witness, likely};

/// Facts about one terminal of one diagram.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    /// Number of packets; an unknown fact counts as half.
    pub packets: f64,
    /// Number of paths.
    pub paths: f64,
    /// Some path depends on no unknown fact.
    pub certain: bool,
    /// Some path does.
    pub uncertain: bool,
}

impl Flow {
    /// Adds that of another diagram.
    pub fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.paths += other.paths;
        self.certain |= other.certain;
        self.uncertain |= other.uncertain;
    }
}

/// A diagram with the edges that lead to each node.
pub struct Paths<'d> {
    diagram: &'d Diagram,
    parents: HashMap<NodeId, Vec<NodeId>>,
    /// By terminal.
    pub flows: HashMap<u32, Flow>,
}

/// A path: fields and the cells that it goes through.
type Path = Vec<(Field, Vec<(u32, u32)>)>;

impl<'d> Paths<'d> {
    /// Follows all paths from the root at once.
    pub fn new(diagram: &'d Diagram, vocabulary: &Vocabulary) -> Self {
        let mut all: HashMap<NodeId, Flow> = HashMap::new();
        let mut parents: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
        all.insert(
            diagram.root,
            Flow {
                packets: diagram.space.size(),
                paths: 1.0,
                certain: true,
                uncertain: false,
            },
        );
        for number in (0..diagram.nodes.len() as NodeId).rev() {
            let Some(&flow) = all.get(&number) else {
                continue;
            };
            let field = diagram.nodes[number as usize].field;
            let uncertain = is_uncertain(field, vocabulary);
            let total = diagram.space.domain(field).total();
            for (child, cells) in children(diagram, number) {
                let weight: f64 = cells
                    .iter()
                    .map(|&(first, last)| diagram.space.domain(field).weight(first, last))
                    .sum();
                all.entry(child).or_default().add(Flow {
                    packets: flow.packets * weight / total,
                    paths: flow.paths,
                    certain: flow.certain && !uncertain,
                    uncertain: flow.uncertain || uncertain,
                });
                parents.entry(child).or_default().push(number);
            }
        }
        let flows = all
            .into_iter()
            .filter_map(|(node, flow)| Some((as_terminal(node)?, flow)))
            .collect();
        Self {
            diagram,
            parents,
            flows,
        }
    }

    /// Up to `most` paths from the root to a terminal.
    fn to(&self, terminal: NodeId, most: usize) -> Vec<Path> {
        let mut found = Vec::new();
        let mut pending: Vec<(NodeId, Path)> = vec![(terminal, Vec::new())];
        while let Some((node, path)) = pending.pop() {
            if node == self.diagram.root {
                found.push(path);
                if found.len() == most {
                    break;
                }
                continue;
            }
            for &parent in self.parents.get(&node).into_iter().flatten() {
                let field = self.diagram.nodes[parent as usize].field;
                let cells = edges_to(self.diagram, parent, node);
                let mut path = path.clone();
                path.push((field, cells));
                pending.push((parent, path));
            }
        }
        found
    }

    /// Up to `most` cubes of a terminal's packets.
    pub fn cubes(&self, terminal: NodeId, most: usize, fragments: bool) -> Vec<Cube> {
        let space = &self.diagram.space;
        let cube = |path: Path| {
            let sets = path
                .into_iter()
                .map(|(field, cells)| (field, space.domain(field).values(&cells)));
            Cube::new(space.class, fragments, sets)
        };
        self.to(terminal, most).into_iter().map(cube).collect()
    }

    /// A packet of a terminal, one that depends on few facts.
    pub fn witness(&self, terminal: NodeId, vocabulary: &Vocabulary) -> Option<Witness> {
        const PATHS: usize = 64;
        let facts = |path: &Path| {
            path.iter()
                .filter(|(field, _)| is_uncertain(*field, vocabulary))
                .count()
        };
        let path = self.to(terminal, PATHS).into_iter().min_by_key(facts)?;
        let cells = path.iter().map(|(field, cells)| (*field, &cells[..]));
        Some(witness(self.diagram, cells, vocabulary))
    }
}

fn witness<'c>(
    diagram: &Diagram,
    path: impl Iterator<Item = (Field, &'c [(u32, u32)])>,
    vocabulary: &Vocabulary,
) -> Witness {
    packet(&diagram.space, path, vocabulary)
}

/// A packet whose fields are in these cells.
pub fn packet<'c>(
    space: &super::problem::Space,
    path: impl Iterator<Item = (Field, &'c [(u32, u32)])>,
    vocabulary: &Vocabulary,
) -> Witness {
    let mut witness = Witness::of_class(space.class, vocabulary);
    let mut fields: Vec<(Field, u128)> = Vec::new();
    for (field, cells) in path {
        let set = space.domain(field).values(cells);
        let wanted = match field {
            Field::INTERFACE => vocabulary.likely_interface() as u128,
            Field::RECEIVED_ON => vocabulary.interfaces.len() as u128,
            Field::RDOMAIN => vocabulary.rdomains.len() as u128,
            _ => likely(field, space.class),
        };
        let Some(&(low, high)) = set.ranges().first() else {
            continue;
        };
        let address = matches!(field, Field::SOURCE | Field::DESTINATION);
        let inside = if address && high - low > 2 {
            low + 1
        } else {
            low
        };
        fields.push((field, if set.contains(wanted) { wanted } else { inside }));
    }
    fields.sort_unstable();
    for (field, value) in fields {
        witness.set(field, value, vocabulary);
    }
    witness
}

/// The children of a node other than "the same", with the cells that lead there.
fn children(diagram: &Diagram, node: NodeId) -> Vec<(NodeId, Vec<(u32, u32)>)> {
    let mut places: HashMap<NodeId, usize> = HashMap::new();
    let mut children: Vec<(NodeId, Vec<(u32, u32)>)> = Vec::new();
    let mut first = 0;
    for &(last, child) in &diagram.nodes[node as usize].edges {
        if child != SAME {
            let place = *places.entry(child).or_insert_with(|| {
                children.push((child, Vec::new()));
                children.len() - 1
            });
            children[place].1.push((first, last));
        }
        first = last + 1;
    }
    children
}

fn edges_to(diagram: &Diagram, node: NodeId, child: NodeId) -> Vec<(u32, u32)> {
    let mut first = 0;
    let mut cells = Vec::new();
    for &(last, other) in &diagram.nodes[node as usize].edges {
        if other == child {
            cells.push((first, last));
        }
        first = last + 1;
    }
    cells
}
