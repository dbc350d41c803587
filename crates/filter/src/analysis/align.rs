//! Which rules two lists have in common, in the same order.

use std::collections::HashMap;

/// Largest table of the exact method, in entries.
const TABLE_MAX: usize = 1 << 20;

/// Pairs of indices of equal elements, both ascending. A longest sequence where the lists are
/// short, a good one where they are long.
pub fn align(a: &[u32], b: &[u32]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let mut pending = vec![(0, a.len(), 0, b.len())];
    while let Some((mut a_from, mut a_to, mut b_from, mut b_to)) = pending.pop() {
        while a_from < a_to && b_from < b_to && a[a_from] == b[b_from] {
            pairs.push((a_from, b_from));
            a_from += 1;
            b_from += 1;
        }
        while a_from < a_to && b_from < b_to && a[a_to - 1] == b[b_to - 1] {
            a_to -= 1;
            b_to -= 1;
            pairs.push((a_to, b_to));
        }
        let (left, right) = (&a[a_from..a_to], &b[b_from..b_to]);
        if left.is_empty() || right.is_empty() {
            continue;
        }
        let anchors = unique_common(left, right);
        if anchors.is_empty() {
            if left.len().saturating_mul(right.len()) <= TABLE_MAX {
                pairs.extend(
                    longest(left, right)
                        .into_iter()
                        .map(|(i, j)| (a_from + i, b_from + j)),
                );
            }
            continue;
        }
        let (mut i, mut j) = (a_from, b_from);
        for (anchor_i, anchor_j) in anchors {
            let (anchor_i, anchor_j) = (a_from + anchor_i, b_from + anchor_j);
            pending.push((i, anchor_i, j, anchor_j));
            pairs.push((anchor_i, anchor_j));
            (i, j) = (anchor_i + 1, anchor_j + 1);
        }
        pending.push((i, a_to, j, b_to));
    }
    pairs.sort_unstable();
    pairs
}

/// The longest ascending sequence of elements that both have exactly once.
fn unique_common(a: &[u32], b: &[u32]) -> Vec<(usize, usize)> {
    let mut places: HashMap<u32, (usize, usize, usize, usize)> = HashMap::new();
    for (at, &element) in a.iter().enumerate() {
        let place = places.entry(element).or_default();
        place.0 += 1;
        place.1 = at;
    }
    for (at, &element) in b.iter().enumerate() {
        if let Some(place) = places.get_mut(&element) {
            place.2 += 1;
            place.3 = at;
        }
    }
    let unique = places.values().filter(|place| place.0 == 1 && place.2 == 1);
    let mut pairs: Vec<(usize, usize)> = unique.map(|place| (place.1, place.3)).collect();
    pairs.sort_unstable();
    // Patience: the piles' tops ascend; each element remembers the top of the pile before.
    let mut tops: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (at, pair) in pairs.iter().enumerate() {
        let pile = tops.partition_point(|&top| pairs[top].1 < pair.1);
        before.push(pile.checked_sub(1).map(|pile| tops[pile]));
        if pile == tops.len() {
            tops.push(at);
        } else {
            tops[pile] = at;
        }
    }
    let mut chain = Vec::new();
    let mut next = tops.last().copied();
    while let Some(at) = next {
        chain.push(pairs[at]);
        next = before[at];
    }
    chain.reverse();
    chain
}

/// A longest common sequence, by the table of lengths.
fn longest(a: &[u32], b: &[u32]) -> Vec<(usize, usize)> {
    let width = b.len() + 1;
    let mut lengths = vec![0_u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            lengths[i * width + j] = if a[i] == b[j] {
                lengths[(i + 1) * width + j + 1] + 1
            } else {
                lengths[(i + 1) * width + j].max(lengths[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            pairs.push((i, j));
            i += 1;
            j += 1;
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_elements_keep_their_order() {
        assert_eq!(
            align(&[1, 2, 3, 4], &[1, 3, 4, 5]),
            [(0, 0), (2, 1), (3, 2)]
        );
        assert_eq!(align(&[7, 7, 1, 7], &[7, 1, 7, 7]).len(), 3);
        assert_eq!(align(&[], &[1]), []);
        assert_eq!(align(&[1, 2], &[2, 1]).len(), 1);
    }
}
