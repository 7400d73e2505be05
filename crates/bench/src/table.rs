//! The report as tables for a terminal.

use crate::figures::{self, Goal, Reached};
use crate::report::{Cell, Report, Series, WorkloadReport};
use comfy_table::{CellAlignment, Table, TableComponent, presets};

/// Every workload's table, with a heading, and the failures.
pub(crate) fn render(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "{} ({} processors{}), {}, {}\n",
        machine.cpu,
        machine.processors,
        if machine.virtual_machine { ", virtual" } else { "" },
        machine.kernel,
        machine.libc
    );
    for workload in &report.workloads {
        text += &format!("\n{}\n{}\n", workload.title, workload.detail);
        if !workload.series.is_empty() {
            text += &format!("{}\n", workload_table(workload));
        }
        for failure in &workload.failures {
            text += &format!("failed on {}: {}\n", failure.place, failure.error);
        }
        if !workload.left_out.is_empty() {
            text += &format!("left out, not installed: {}\n", workload.left_out.join(", "));
        }
    }
    text
}

fn workload_table(workload: &WorkloadReport) -> Table {
    let mut table = bare_table();
    let mut header = vec!["".to_owned(), "unit".to_owned()];
    for place in &workload.places {
        header.push(place.clone());
        header.push("(spread)".to_owned());
        if place != workload.baseline() {
            header.push("ratio".to_owned());
        }
    }
    table.set_header(header);
    for series in &workload.series {
        let mut row = vec![row_label(series), series.unit.clone()];
        for place in &workload.places {
            let cell = series.cell(place);
            row.push(cell.map_or("-".to_owned(), |cell| number(cell.median)));
            row.push(cell.map_or(String::new(), spread));
            if place != workload.baseline() {
                row.push(cell.and_then(|cell| cell.ratio).map_or("-".to_owned(), times));
            }
        }
        table.add_row(row);
    }
    align_numbers(&mut table);
    table
}

/// The target figures; empty if the report has none of them.
pub(crate) fn render_figures(report: &Report) -> String {
    let verdicts = figures::verdicts(report);
    if verdicts.is_empty() {
        return String::new();
    }
    let mut table = bare_table();
    table.set_header(["", "unit", report.baseline(), "lightpath", "wanted", "measured", ""]);
    for verdict in &verdicts {
        let label = match (verdict.target.goal, verdict.target.x) {
            (Goal::Scales(_), _) => format!("{}, two against one", verdict.label),
            (_, Some(x)) => format!("{}, N = {x}", verdict.label),
            _ => verdict.label.clone(),
        };
        table.add_row([
            label,
            verdict.unit.clone(),
            number(verdict.baseline),
            number(verdict.lightpath),
            verdict.wanted.clone(),
            verdict.measured.clone(),
            if verdict.reached == Reached::Yes { "reached" } else { "MISSED" }.to_owned(),
        ]);
    }
    align_numbers(&mut table);
    let reached = verdicts.iter().filter(|verdict| verdict.reached == Reached::Yes).count();
    format!(
        "\nFigures to reach, medians of one run side by side\n{table}\n{reached} of {} reached\n",
        verdicts.len()
    )
}

fn bare_table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
    table
}

fn align_numbers(table: &mut Table) {
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((1, 1));
    }
}

/// A series' label, with its number of workers or files.
pub(crate) fn row_label(series: &Series) -> String {
    match series.x {
        Some(x) => format!("{}, N = {x}", series.label),
        None => series.label.clone(),
    }
}

fn spread(cell: &Cell) -> String {
    format!("{}..{}", number(cell.min), number(cell.max))
}

/// Three significant digits, or all digits before the point, grouped by three.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    match magnitude {
        m if m >= 999.5 => grouped(value.round() as i64),
        m if m >= 99.95 => format!("{value:.0}"),
        m if m >= 9.995 => format!("{value:.1}"),
        m if m >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

/// A ratio as "9.8x".
pub(crate) fn times(ratio: f64) -> String {
    if ratio >= 9.95 { format!("{ratio:.1}x") } else { format!("{ratio:.2}x") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let shown: Vec<_> = [0.00123, 0.5, 9.994, 9.996, 99.96, 999.6, 1_234_567.0].map(number).into();
        assert_eq!(shown, ["0.0012", "0.50", "9.99", "10.0", "100", "1,000", "1,234,567"]);
    }
}
