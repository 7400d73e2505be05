//! The plots: the speed-up over the baseline, bars with their spread, curves against the number of workers
//! or files.

use crate::figures::{self, Goal, Verdict};
use crate::report::{Better, Report, Series, WorkloadReport};
use crate::svg::{Anchor, Svg};
use crate::table::{number, row_label, times};

/// The colours by name, light and dark.
pub(crate) const SCHEME: &str = "\
:root{--ink:#1b2430;--muted:#5c6a7c;--grid:#dde3ea;--paper:#ffffff;--light:#e4570b;--base:#62748a;--c1:#a9b7c6;--c2:#7aa7a0;--c3:#b59ac4}\
@media(prefers-color-scheme:dark){:root{--ink:#e7ecf2;--muted:#98a6b7;--grid:#2c3642;--paper:#12171d;--light:#ff8236;--base:#8ea2ba;--c1:#546475;--c2:#5f9c93;--c3:#9a7bb0}}";

/// Style of the plots, based on [`SCHEME`].
pub(crate) const STYLE: &str = "\
text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:var(--ink);font-size:12.5px}\
.paper{fill:var(--paper)}.small{font-size:11px;fill:var(--muted)}.value{font-size:11.5px;font-variant-numeric:tabular-nums}\
.strong{font-weight:650}.grid{stroke:var(--grid);stroke-width:1}.axis{stroke:var(--muted);stroke-width:1}\
.spread{stroke:var(--ink);stroke-width:1.1;opacity:.65}.goal{stroke:var(--ink);stroke-width:2}\
.f-light{fill:var(--light)}.f-base{fill:var(--base)}.f-c1{fill:var(--c1)}.f-c2{fill:var(--c2)}.f-c3{fill:var(--c3)}\
.l-light,.l-base,.l-c1,.l-c2,.l-c3{fill:none;stroke-width:2}\
.l-light{stroke:var(--light)}.l-base{stroke:var(--base)}.l-c1{stroke:var(--c1)}.l-c2{stroke:var(--c2)}.l-c3{stroke:var(--c3)}";

/// Width of each plot: a page shows two side by side, and a telephone one, nearly in full size.
const WIDTH: f64 = 440.0;

/// The suffix of a place's colour classes.
pub(crate) fn colour(report: &Report, place: &str) -> &'static str {
    let index = report.places.iter().position(|candidate| candidate.name == place).unwrap_or(0);
    match (place, index) {
        ("lightpath" | "now", _) => "light",
        (_, 0) => "base",
        (_, 1) => "c1",
        (_, 2) => "c2",
        _ => "c3",
    }
}

/// The plot of the targets that are speed-ups, as a standalone document.
pub(crate) fn speedup_document(report: &Report, shows_goals: bool) -> String {
    speedup_drawing(report, shows_goals).document(&without_variables(SCHEME, STYLE))
}

/// `style` with each `var(--name)` replaced by its light colour in `scheme`, because not every program that
/// draws SVG supports variables.
fn without_variables(scheme: &str, style: &str) -> String {
    let light =
        scheme.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(light, _)| light);
    light
        .split(';')
        .filter_map(|rule| rule.split_once(':'))
        .fold(style.to_owned(), |style, (name, colour)| style.replace(&format!("var({name})"), colour))
}

/// The same as an element of a page; none if the report has none of those figures.
pub(crate) fn speedup(report: &Report, shows_goals: bool) -> Option<String> {
    figures::verdicts(report)
        .iter()
        .any(|verdict| is_speedup(verdict.target.goal))
        .then(|| speedup_drawing(report, shows_goals).element())
}

fn is_speedup(goal: Goal) -> bool {
    matches!(goal, Goal::Faster(_))
}

fn speedup_drawing(report: &Report, shows_goals: bool) -> Svg {
    const ROW: f64 = 36.0;
    const TOP: f64 = 62.0;
    /// What is left of it right of the longest bar holds the ratio.
    const AREA: f64 = WIDTH - 58.0;
    let verdicts: Vec<_> =
        figures::verdicts(report).into_iter().filter(|v| is_speedup(v.target.goal)).collect();
    let goal_of = |goal| match goal {
        Goal::Faster(times) if shows_goals => times,
        _ => 0.0,
    };
    let most = verdicts.iter().map(|v| v.ratio.max(goal_of(v.target.goal))).fold(2.0, f64::max);
    let scale = |ratio: f64| (ratio / (most * 1.05)).min(1.0) * AREA;
    let bottom = TOP + ROW * verdicts.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 26.0);
    svg.text("strong", (0.0, 15.0), Anchor::Start, &format!("Times as fast as {}", report.baseline()));
    let machine = format!("{}, {}", report.machine.cpu, report.machine.kernel);
    svg.text("small", (0.0, 31.0), Anchor::Start, &machine);
    for tick in ticks(most * 1.05) {
        svg.line("grid", (scale(tick), TOP - 8.0), (scale(tick), bottom));
        svg.text("small", (scale(tick), TOP - 12.0), Anchor::Middle, &format!("{}x", tick_text(tick)));
    }
    for (index, verdict) in verdicts.iter().enumerate() {
        let goal = goal_of(verdict.target.goal);
        speedup_row(&mut svg, report, (verdict, goal), TOP + ROW * index as f64, scale);
    }
    let goals = if shows_goals { "; tick: the figure to reach" } else { "" };
    svg.text("small", (0.0, bottom + 18.0), Anchor::Start, &format!("medians; thin line: spread{goals}"));
    svg
}

/// A figure's label and absolute values, and below them its bar. A `goal` of 0 is not shown.
fn speedup_row(
    svg: &mut Svg,
    report: &Report,
    (verdict, goal): (&Verdict, f64),
    y: f64,
    scale: impl Fn(f64) -> f64,
) {
    let ratio = verdict.ratio;
    let label = match verdict.target.x {
        Some(x) => format!("{}, N = {x}", verdict.label),
        None => verdict.label.clone(),
    };
    svg.text("", (0.0, y + 12.0), Anchor::Start, &label);
    let absolute = format!("{} → {} {}", number(verdict.baseline), number(verdict.lightpath), verdict.unit);
    svg.text("small", (WIDTH, y + 12.0), Anchor::End, &absolute);
    svg.rect("f-light", (0.0, y + 18.0), (scale(ratio), 13.0), &format!("{label}: {}", times(ratio)));
    let series = report.series(verdict.target.workload, verdict.target.metric, verdict.target.x);
    let mut end = scale(ratio);
    if let Some(cell) = series.and_then(|series| series.cell("lightpath")) {
        let better = Better::of_unit(&verdict.unit);
        let edges =
            [cell.min, cell.max].map(|value| scale(better.ratio(value, verdict.baseline).unwrap_or(0.0)));
        svg.line("spread", (edges[0], y + 24.5), (edges[1], y + 24.5));
        end = end.max(edges[0]).max(edges[1]);
    }
    for (class, ratio) in [("axis", 1.0), ("goal", goal)].into_iter().filter(|(_, ratio)| *ratio != 0.0) {
        svg.line(class, (scale(ratio), y + 16.0), (scale(ratio), y + 33.0));
        end = end.max(scale(ratio));
    }
    svg.text("value strong", (end + 7.0, y + 29.0), Anchor::Start, &times(ratio));
}

/// About five round numbers from 0 to `most`.
fn ticks(most: f64) -> Vec<f64> {
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= rough).unwrap_or(rough);
    (1..).map(|n| f64::from(n) * step).take_while(|tick| *tick <= most).collect()
}

/// A figure: a bar with its spread for each place.
pub(crate) fn bars(report: &Report, workload: &WorkloadReport, series: &Series) -> String {
    const BAR: f64 = 11.0;
    const TOP: f64 = 20.0;
    /// What is left of it right of the longest bar holds the value and the ratio.
    const AREA: f64 = WIDTH - 172.0;
    let mut svg = Svg::new(WIDTH, TOP + series.cells.len() as f64 * (BAR + 3.0) + 6.0);
    svg.text("", (0.0, 13.0), Anchor::Start, &row_label(series));
    // A disk that is a hundred times slower would leave nothing visible of the others, so its bar is
    // truncated.
    let known = |place: &str| series.cell(place).map_or(0.0, |cell| cell.max);
    let compared = known(workload.baseline()).max(known("lightpath"));
    let most = series.cells.iter().map(|cell| cell.max).fold(f64::MIN_POSITIVE, f64::max).min(compared * 2.5);
    let scale = |value: f64| (value / most).min(1.0) * AREA;
    let mut y = TOP;
    for cell in &series.cells {
        let shown = format!("{} {}", number(cell.median), series.unit);
        let title = format!("{}: {shown} ({} to {})", cell.place, number(cell.min), number(cell.max));
        let class = format!("f-{}", colour(report, &cell.place));
        svg.rect(&class, (0.0, y), (scale(cell.median), BAR), &title);
        svg.line("spread", (scale(cell.min), y + BAR / 2.0), (scale(cell.max), y + BAR / 2.0));
        let ratio = cell.ratio.filter(|_| cell.place != workload.baseline());
        let text = ratio.map_or(shown.clone(), |ratio| format!("{shown}  ({})", times(ratio)));
        let class = if cell.place == "lightpath" { "value strong" } else { "value" };
        svg.text(class, (scale(cell.max) + 7.0, y + BAR - 1.5), Anchor::Start, &text);
        y += BAR + 3.0;
    }
    svg.element()
}

/// One figure against the number of workers or files: a curve for each place, points with their spread.
pub(crate) fn curves(report: &Report, workload: &WorkloadReport, series: &[&Series]) -> String {
    const SIZE: (f64, f64) = (WIDTH, 280.0);
    let (left, right, top, bottom) = (54.0, SIZE.0 - 16.0, 40.0, SIZE.1 - 38.0);
    let mut svg = Svg::new(SIZE.0, SIZE.1);
    let Some(first) = series.first() else { return svg.element() };
    let positions: Vec<u32> = series.iter().filter_map(|series| series.x).collect();
    // The number grows by a factor from point to point, so the points are evenly spaced.
    let place_x = |x: u32| {
        let index = positions.iter().position(|p| *p == x).unwrap_or(0) as f64;
        left + 14.0 + index / (positions.len().max(2) - 1) as f64 * (right - left - 28.0)
    };
    let most = series.iter().flat_map(|s| &s.cells).map(|cell| cell.max).fold(f64::MIN_POSITIVE, f64::max);
    let least = series.iter().flat_map(|s| &s.cells).map(|cell| cell.min).fold(f64::INFINITY, f64::min);
    let axis = Axis::fit(least, most, first.better);
    let place_y = |value: f64| bottom - axis.share(value) * (bottom - top);
    svg.text("strong", (0.0, 15.0), Anchor::Start, &first.label);
    svg.text("small", (0.0, 31.0), Anchor::Start, &first.unit);
    for tick in axis.ticks() {
        svg.line("grid", (left, place_y(tick)), (right, place_y(tick)));
        svg.text("small", (left - 6.0, place_y(tick) + 4.0), Anchor::End, &tick_text(tick));
    }
    for x in &positions {
        svg.text("small", (place_x(*x), bottom + 16.0), Anchor::Middle, &x.to_string());
    }
    svg.line("axis", (left, bottom), (right, bottom));
    for place in &workload.places {
        let colour = colour(report, place);
        let cells: Vec<_> = series.iter().filter_map(|s| Some((place_x(s.x?), s.cell(place)?))).collect();
        let points: Vec<_> = cells.iter().map(|(x, cell)| (*x, place_y(cell.median))).collect();
        svg.path_through(&format!("l-{colour}"), &points);
        for (x, cell) in cells {
            svg.line("spread", (x, place_y(cell.min)), (x, place_y(cell.max)));
            let title = format!("{place}: {} {}", number(cell.median), first.unit);
            svg.dot(&format!("f-{colour}"), (x, place_y(cell.median)), &title);
        }
    }
    svg.element()
}

fn tick_text(tick: f64) -> String {
    if tick >= 1000.0 {
        return number(tick);
    }
    let text = format!("{tick:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The scale of a plot's values.
enum Axis {
    /// From 0 to this: for rates, whose magnitude matters.
    Linear(f64),
    /// Whole powers of ten: for times, which grow with that number.
    Log(f64, f64),
}

impl Axis {
    fn fit(least: f64, most: f64, better: Better) -> Self {
        match better {
            Better::More => Self::Linear(most * 1.05),
            Better::Less => Self::Log(least.log10().floor(), most.log10().ceil()),
        }
    }

    /// Position of `value` on the axis, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        match self {
            Self::Linear(most) => value / most,
            Self::Log(low, high) => (value.log10() - low) / (high - low).max(1.0),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        match self {
            Self::Linear(most) => [0.0].into_iter().chain(ticks(*most)).collect(),
            Self::Log(low, high) => (*low as i32..=*high as i32).map(|power| 10f64.powi(power)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_alone_has_no_variables() {
        let style = without_variables(SCHEME, STYLE);
        assert!(!style.contains("var(") && style.contains("#e4570b"), "{style}");
    }

    #[test]
    fn tick_labels_show_no_rounding_error() {
        assert_eq!(
            [0.0, 0.001, 0.1 + 0.2, 20.0, 2000.0].map(tick_text),
            ["0", "0.001", "0.3", "20", "2,000"]
        );
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(15.0), [5.0, 10.0, 15.0]);
        assert_eq!(ticks(2.1), [0.5, 1.0, 1.5, 2.0]);
        for most in [0.3, 1.0, 7.7, 420.0] {
            assert!((2..=6).contains(&ticks(most).len()), "{most}");
        }
    }
}
