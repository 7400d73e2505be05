//! The report as one page: no script, no other file, light or dark like the reader's system.

use crate::chart::{self, SCHEME, STYLE};
use crate::figures::{self, Goal, Reached};
use crate::report::{Better, Report, WorkloadReport};
use crate::svg::escape;
use crate::table::{number, row_label, times};
use std::fmt::Write;

const PAGE_STYLE: &str = "\
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}\
main{max-width:920px;margin:0 auto;padding:32px 20px 80px}h1{font-size:27px;margin:0 0 4px}h2{font-size:19px;margin:44px 0 2px}\
p{margin:4px 0 12px}.note{color:var(--muted)}svg{max-width:100%;height:auto;display:block;margin:10px 0}\
.legend{display:flex;gap:18px;flex-wrap:wrap;margin:14px 0;font-size:13.5px}.legend i{display:inline-block;width:13px;height:13px;border-radius:2px;margin-right:6px;vertical-align:-2px}\
.b-light{background:var(--light)}.b-base{background:var(--base)}.b-c1{background:var(--c1)}.b-c2{background:var(--c2)}.b-c3{background:var(--c3)}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(360px,100%),1fr));gap:6px 14px}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums;margin:8px 0}\
td,th{padding:3px 12px 3px 0;border-bottom:1px solid var(--grid);text-align:right;white-space:nowrap}th{font-weight:600;color:var(--muted)}\
td:first-child,th:first-child{text-align:left}.yes{color:var(--base)}.no{color:var(--light);font-weight:650}\
summary{cursor:pointer;color:var(--muted);font-size:13.5px}";

/// The whole page; with the figures to reach if `shows_goals`.
pub(crate) fn page(report: &Report, shows_goals: bool) -> String {
    let mut body = String::new();
    header(&mut body, report);
    legend(&mut body, report, report.places.iter().map(|place| place.name.as_str()));
    if let Some(plot) = chart::speedup(report, shows_goals) {
        body += &plot;
    }
    if shows_goals {
        goals(&mut body, report);
    }
    for workload in &report.workloads {
        section(&mut body, report, workload);
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Lightpath bench</title>\
         <style>{SCHEME}{STYLE}{PAGE_STYLE}</style></head>\n<body><main>\n{body}</main></body>\n</html>\n"
    )
}

fn header(body: &mut String, report: &Report) {
    let machine = &report.machine;
    let places: Vec<_> =
        report.places.iter().map(|place| format!("{} at {}", place.name, place.dir)).collect();
    let _ = writeln!(
        body,
        "<h1>Lightpath bench</h1>\n<p class=\"note\">{}, {} processors{}, {} MiB; {}; {}; {}; Lightpath {}; {}; load {} \
         before the first sample.<br>{}. The same compiled programs everywhere, samples interleaved.</p>",
        escape(&machine.cpu),
        machine.processors,
        if machine.virtual_machine { " (virtual)" } else { "" },
        machine.memory_mib,
        escape(&machine.kernel),
        escape(&machine.libc),
        escape(&machine.compiler),
        escape(&machine.lightpath),
        escape(&machine.date),
        machine.load,
        escape(&places.join(", ")),
    );
}

fn legend<'a>(body: &mut String, report: &Report, places: impl Iterator<Item = &'a str>) {
    body.push_str("<div class=\"legend\">");
    for place in places {
        let colour = chart::colour(report, place);
        let _ = write!(body, "<span><i class=\"b-{colour}\"></i>{}</span>", escape(place));
    }
    body.push_str("</div>\n");
}

fn goals(body: &mut String, report: &Report) {
    let verdicts = figures::verdicts(report);
    let reached = verdicts.iter().filter(|verdict| verdict.reached == Reached::Yes).count();
    let _ = writeln!(
        body,
        "<details><summary>Figures to reach: {reached} of {}</summary><div class=\"wide\"><table>\
         <tr><th></th><th>unit</th><th>{}</th><th>lightpath</th><th>wanted</th><th>measured</th><th></th></tr>",
        verdicts.len(),
        escape(report.baseline()),
    );
    for verdict in &verdicts {
        let (class, word) =
            if verdict.reached == Reached::Yes { ("yes", "reached") } else { ("no", "missed") };
        let label = match (verdict.target.goal, verdict.target.x) {
            (Goal::Scales(_), _) => format!("{}, two against one", verdict.label),
            (_, Some(x)) => format!("{}, N = {x}", verdict.label),
            _ => verdict.label.clone(),
        };
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{word}</td></tr>",
            escape(&label),
            escape(&verdict.unit),
            number(verdict.baseline),
            number(verdict.lightpath),
            escape(&verdict.wanted),
            escape(&verdict.measured),
        );
    }
    body.push_str("</table></div></details>\n");
}

fn section(body: &mut String, report: &Report, workload: &WorkloadReport) {
    let _ = writeln!(
        body,
        "<h2 id=\"{}\">{}</h2>\n<p class=\"note\">{}</p>",
        escape(&workload.name),
        escape(&workload.title),
        escape(&workload.detail)
    );
    if report.places.iter().all(|place| place.name != workload.baseline()) {
        legend(body, report, workload.places.iter().map(String::as_str));
    }
    let plain: Vec<_> = workload.series.iter().filter(|series| series.x.is_none()).collect();
    for better in [Better::Less, Better::More] {
        let group: Vec<_> = plain.iter().copied().filter(|series| series.better == better).collect();
        if !group.is_empty() {
            let word = if better == Better::Less { "Shorter is faster" } else { "Longer is faster" };
            let _ = writeln!(
                body,
                "<p class=\"note\">{word}; each figure to its own scale.</p>\n<div class=\"plots\">"
            );
            for series in group {
                body.push_str(&chart::bars(report, workload, series));
            }
            body.push_str("</div>\n");
        }
    }
    let mut metrics: Vec<&str> = Vec::new();
    for series in workload.series.iter().filter(|series| series.x.is_some()) {
        if !metrics.contains(&series.metric.as_str()) {
            metrics.push(&series.metric);
        }
    }
    if !metrics.is_empty() {
        body.push_str("<div class=\"plots\">\n");
        for metric in metrics {
            let curve: Vec<_> = workload
                .series
                .iter()
                .filter(|series| series.metric == metric && series.x.is_some())
                .collect();
            body.push_str(&chart::curves(report, workload, &curve));
        }
        body.push_str("</div>\n");
    }
    for failure in &workload.failures {
        let _ = writeln!(
            body,
            "<p class=\"no\">failed on {}: {}</p>",
            escape(&failure.place),
            escape(&failure.error)
        );
    }
    if !workload.left_out.is_empty() {
        let missing = workload.left_out.join(", ");
        let _ = writeln!(body, "<p>left out, not installed: {}</p>", escape(&missing));
    }
    numbers(body, workload);
}

fn numbers(body: &mut String, workload: &WorkloadReport) {
    if workload.series.is_empty() {
        return;
    }
    body.push_str(
        "<details><summary>Numbers</summary><div class=\"wide\"><table>\n<tr><th></th><th>unit</th>",
    );
    for place in &workload.places {
        let _ = write!(body, "<th>{}</th><th>spread</th>", escape(place));
        if place != workload.baseline() {
            body.push_str("<th>ratio</th>");
        }
    }
    body.push_str("</tr>\n");
    for series in &workload.series {
        let _ = write!(body, "<tr><td>{}</td><td>{}</td>", escape(&row_label(series)), escape(&series.unit));
        for place in &workload.places {
            match series.cell(place) {
                Some(cell) => {
                    let _ = write!(
                        body,
                        "<td>{}</td><td>{} to {}</td>",
                        number(cell.median),
                        number(cell.min),
                        number(cell.max)
                    );
                }
                None => body.push_str("<td>-</td><td></td>"),
            }
            if place != workload.baseline() {
                let ratio = series.cell(place).and_then(|cell| cell.ratio);
                let _ = write!(body, "<td>{}</td>", ratio.map_or("-".to_owned(), times));
            }
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</table></div></details>\n");
}
