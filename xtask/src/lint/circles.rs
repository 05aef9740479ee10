//! Circles of a directed graph.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The nodes that each node points to.
pub(crate) type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns a shortest circle through each node that lies on one; each circle once.
///
/// A circle starts with its smallest node and does not repeat it at the end.
pub(crate) fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let found: BTreeSet<_> = graph.keys().filter_map(|node| shortest(graph, node)).collect();
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|circle| (circle.len(), circle.clone()));
    found
}

/// Returns a shortest circle through a node, by a breadth-first search from the node to itself.
fn shortest(graph: &Graph, start: &String) -> Option<Vec<String>> {
    let mut from: BTreeMap<&String, &String> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for next in graph.get(node).into_iter().flatten().filter(|next| *next != node) {
            if next == start {
                let mut circle = vec![node.clone()];
                let mut last = node;
                while let Some(before) = from.get(last) {
                    circle.push((*before).clone());
                    last = before;
                }
                circle.reverse();
                return Some(rotated(circle));
            }
            if next != start && !from.contains_key(next) {
                from.insert(next, node);
                queue.push_back(next);
            }
        }
    }
    None
}

fn rotated(mut circle: Vec<String>) -> Vec<String> {
    let smallest = circle.iter().enumerate().min_by_key(|(_, node)| *node).map_or(0, |(at, _)| at);
    circle.rotate_left(smallest);
    circle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(edges: &[(&str, &str)]) -> Vec<String> {
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry(from.to_string()).or_default().insert(to.to_string());
        }
        circles(&graph).iter().map(|circle| circle.join(" ")).collect()
    }

    #[test]
    fn a_circle_is_found_once() {
        assert_eq!(of(&[("b", "c"), ("c", "a"), ("a", "b"), ("d", "a")]), ["a b c"]);
    }

    #[test]
    fn every_node_on_a_circle_is_in_one_of_them() {
        let edges = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "a"), ("x", "y"), ("y", "x")];
        assert_eq!(of(&edges), ["a b", "x y", "a b c"]);
    }

    #[test]
    fn a_graph_without_circles_has_none() {
        assert!(of(&[("a", "b"), ("b", "c"), ("a", "c"), ("a", "a")]).is_empty());
    }
}
