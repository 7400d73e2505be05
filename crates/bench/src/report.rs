//! The result of a bench: figures with all their samples, and their origin.

use crate::machine::Machine;
use serde::{Deserialize, Serialize};

/// Version of the JSON format.
pub(crate) const SCHEMA: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) schema: u32,
    pub(crate) command: Vec<String>,
    pub(crate) machine: Machine,
    /// The places of the files, in display order; the first is the baseline of the targets.
    pub(crate) places: Vec<PlaceInfo>,
    pub(crate) workloads: Vec<WorkloadReport>,
}

/// A place as named in the report.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct PlaceInfo {
    /// "tmpfs", "ext4", ... or "lightpath"; unique in a report.
    pub(crate) name: String,
    pub(crate) dir: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WorkloadReport {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) detail: String,
    /// Names of what is compared, in display order; the first is the baseline of the ratios.
    pub(crate) places: Vec<String>,
    pub(crate) series: Vec<Series>,
    pub(crate) failures: Vec<Failure>,
    /// What was not measured because something it needs is not installed.
    #[serde(default)]
    pub(crate) left_out: Vec<String>,
}

/// One figure in every place, at one number of workers or files if it has one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) metric: String,
    pub(crate) label: String,
    /// Processes or threads.
    pub(crate) x: Option<u32>,
    pub(crate) unit: String,
    pub(crate) better: Better,
    pub(crate) cells: Vec<Cell>,
}

/// A series' samples in one place.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) place: String,
    pub(crate) samples: Vec<f64>,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// How many times better than the baseline place (above 1 is faster): the median of the rounds' ratios.
    pub(crate) ratio: Option<f64>,
}

/// A workload that failed somewhere.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) place: String,
    pub(crate) error: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    Less,
    More,
}

impl Better {
    /// Lower is better for times, higher for rates.
    pub(crate) fn of_unit(unit: &str) -> Self {
        if unit.ends_with("/s") { Self::More } else { Self::Less }
    }

    /// How many times better `value` is than `baseline`.
    pub(crate) fn ratio(self, value: f64, baseline: f64) -> Option<f64> {
        let ratio = match self {
            Self::Less => baseline / value,
            Self::More => value / baseline,
        };
        ratio.is_finite().then_some(ratio)
    }
}

/// How many times better `now` is than `before`: the median over the rounds. The samples of one round are
/// taken one after the other, so a slow minute of the machine affects both and their ratio stays.
pub(crate) fn paired(better: Better, now: &Cell, before: &Cell) -> Option<f64> {
    let rounds = now.samples.iter().zip(&before.samples);
    let ratios: Option<Vec<_>> = rounds.map(|(now, before)| better.ratio(*now, *before)).collect();
    ratios.filter(|ratios| !ratios.is_empty()).map(|ratios| median(&ratios))
}

/// The median of `samples`; for an even number, the mean of the middle two.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

impl Cell {
    fn of(place: &str, samples: Vec<f64>) -> Self {
        Self {
            place: place.to_owned(),
            median: median(&samples),
            min: samples.iter().copied().fold(f64::INFINITY, f64::min),
            max: samples.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            samples,
            ratio: None,
        }
    }
}

impl Series {
    pub(crate) fn cell(&self, place: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.place == place)
    }
}

impl WorkloadReport {
    pub(crate) fn baseline(&self) -> &str {
        &self.places[0]
    }
}

impl Report {
    pub(crate) fn series(&self, workload: &str, metric: &str, x: Option<u32>) -> Option<&Series> {
        let workload = self.workloads.iter().find(|candidate| candidate.name == workload)?;
        workload.series.iter().find(|series| series.metric == metric && series.x == x)
    }

    pub(crate) fn baseline(&self) -> &str {
        &self.places[0].name
    }
}

/// One line of a workload program's output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    pub(crate) metric: String,
    pub(crate) x: Option<u32>,
    pub(crate) unit: String,
    pub(crate) value: f64,
}

impl Figure {
    /// Reads `METRIC \t X \t UNIT \t VALUE`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        let (metric, x, unit, value) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let x = if x == "-" { None } else { Some(x.parse().ok()?) };
        let value: f64 = value.parse().ok()?;
        let whole = fields.next().is_none() && value.is_finite();
        whole.then(|| Self { metric: metric.to_owned(), x, unit: unit.to_owned(), value })
    }
}

/// Collects the figures of one workload as they arrive, sample by sample and place by place.
#[derive(Default)]
pub(crate) struct Gatherer {
    rows: Vec<Row>,
}

/// One figure's samples so far, for each place that has any.
struct Row {
    figure: Figure,
    samples: Vec<(String, Vec<f64>)>,
}

impl Gatherer {
    pub(crate) fn add(&mut self, place: &str, figure: Figure) {
        let known =
            self.rows.iter().position(|row| row.figure.metric == figure.metric && row.figure.x == figure.x);
        let at = known.unwrap_or_else(|| {
            self.rows.push(Row { figure: figure.clone(), samples: Vec::new() });
            self.rows.len() - 1
        });
        let cells = &mut self.rows[at].samples;
        match cells.iter_mut().find(|(name, _)| name == place) {
            Some((_, samples)) => samples.push(figure.value),
            None => cells.push((place.to_owned(), vec![figure.value])),
        }
    }

    /// The series, with ratios to the first of `places`, cells in the order of `places`.
    pub(crate) fn finish(self, places: &[String], label: fn(&str) -> String) -> Vec<Series> {
        let baseline = &places[0];
        self.rows
            .into_iter()
            .map(|Row { figure, samples: mut cells }| {
                cells.sort_by_key(|(name, _)| places.iter().position(|place| place == name));
                let better = Better::of_unit(&figure.unit);
                let mut cells: Vec<_> =
                    cells.into_iter().map(|(place, samples)| Cell::of(&place, samples)).collect();
                if let Some(at) = cells.iter().position(|cell| cell.place == *baseline) {
                    let ratios: Vec<_> = cells.iter().map(|cell| paired(better, cell, &cells[at])).collect();
                    cells.iter_mut().zip(ratios).for_each(|(cell, ratio)| cell.ratio = ratio);
                }
                Series {
                    label: label(&figure.metric),
                    metric: figure.metric,
                    x: figure.x,
                    unit: figure.unit,
                    better,
                    cells,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_lines_are_read_or_refused() {
        let figure = Figure::parse("lseek_procs\t100\ts\t2.5").unwrap();
        assert_eq!((figure.x, figure.value), (Some(100), 2.5));
        for line in ["", "a\t-\ts", "a\t-\ts\tnan", "a\tx\ts\t1", "a\t-\ts\t1\t2"] {
            assert_eq!(Figure::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn ratios_say_how_many_times_better() {
        let places = ["tmpfs", "lightpath"].map(str::to_owned);
        let mut gatherer = Gatherer::default();
        for (place, line) in [
            ("lightpath", "lseek\t-\tns\t10"),
            ("tmpfs", "lseek\t-\tns\t90"),
            ("tmpfs", "lseek\t-\tns\t110"),
            ("lightpath", "lseek\t-\tns\t10"),
            ("tmpfs", "rate\t-\tKB/s\t100"),
            ("lightpath", "rate\t-\tKB/s\t300"),
        ] {
            gatherer.add(place, Figure::parse(line).unwrap());
        }
        let series = gatherer.finish(&places, str::to_owned);
        assert_eq!(series[0].cells[0].place, "tmpfs");
        assert_eq!(
            (series[0].cells[0].min, series[0].cells[0].median, series[0].cells[0].max),
            (90.0, 100.0, 110.0)
        );
        assert_eq!(series[0].cell("lightpath").unwrap().ratio, Some(10.0));
        assert_eq!(series[1].cell("lightpath").unwrap().ratio, Some(3.0));
    }
}
