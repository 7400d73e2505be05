//! The heat map: for each two system calls, the share of commuting pairs that are free of conflict.

use super::Findings;
use super::report::who;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Side of a cell, and space for the names, in pixels.
const CELL: usize = 20;
const NAMES: usize = 80;

/// The map, as SVG.
pub(super) fn map(findings: &Findings) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for kind in findings.pairs.iter().flat_map(|pair| pair.kinds) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let place = |kind: &str| kinds.iter().position(|other| *other == kind).unwrap_or_default();
    let mut cells: BTreeMap<(usize, usize), (usize, usize)> = BTreeMap::new();
    for pair in &findings.pairs {
        let [first, second] = pair.kinds.map(place);
        let cell = cells.entry((first.min(second), first.max(second))).or_default();
        cell.0 += usize::from(pair.fields.is_empty());
        cell.1 += 1;
    }
    let side = NAMES + kinds.len() * CELL;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {side} {}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"4\" y=\"16\">{}: % of \
         commuting pairs free of conflict</text>\n",
        side + 24,
        who(findings.actors)
    );
    // Writing to a string does not fail.
    for (index, kind) in kinds.iter().enumerate() {
        let along = NAMES + index * CELL + 14;
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{kind}</text>",
            NAMES - 4,
            along + 24
        );
        let turned = NAMES + 18;
        let _ = writeln!(text, "<text transform=\"translate({along} {turned}) rotate(-90)\">{kind}</text>");
    }
    for ((first, second), (free, all)) in cells {
        let percent = free * 100 / all;
        // From red through yellow to green.
        let hue = percent * 120 / 100;
        for (x, y) in [(first, second), (second, first)] {
            let (x, y) = (NAMES + x * CELL, NAMES + y * CELL + 24);
            let _ = writeln!(
                text,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"hsl({hue} 70% 70%)\"/>"
            );
            if percent < 100 {
                let (x, y) = (x + CELL / 2, y + 14);
                let _ = writeln!(
                    text,
                    "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" font-size=\"10\">{percent}</text>"
                );
            }
        }
    }
    text + "</svg>\n"
}
