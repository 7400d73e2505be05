//! Lightpath's library beside the other file systems that a Rust program can keep in its own memory,
//! call by call, in nanoseconds. `lp-peers [--quick] [--json FILE]`.
#![forbid(unsafe_code)]

mod kernel;
mod memory_fs;
mod ours;
mod peer;
mod rsfs_mem;
mod virtual_fs_mem;

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, TableComponent, presets};
use peer::{CALLS, Peer, measure};
use std::path::PathBuf;
use std::time::Duration;

/// All samples of one call on one peer.
struct Figure {
    peer: &'static str,
    call: &'static str,
    nanoseconds: Vec<f64>,
    median: f64,
}

impl Figure {
    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "peer": self.peer,
            "call": self.call,
            "nanoseconds": self.nanoseconds,
            "median": self.median,
        })
    }
}

struct Settings {
    samples: usize,
    batch: Duration,
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let settings = settings()?;
    let mut figures: Vec<Figure> = Vec::new();
    for _ in 0..settings.samples {
        let batch = settings.batch;
        // Interleaved: a slow minute of the machine falls on all of them.
        note(&mut figures, kernel::Kernel::NAME, measure(&kernel::Kernel::new()?, batch)?);
        note(&mut figures, memory_fs::Memory::NAME, measure(&memory_fs::Memory::new(), batch)?);
        note(&mut figures, rsfs_mem::Rsfs::NAME, measure(&rsfs_mem::Rsfs::new(), batch)?);
        let wasmer = virtual_fs_mem::VirtualFs::new();
        note(&mut figures, virtual_fs_mem::VirtualFs::NAME, measure(&wasmer, batch)?);
        note(&mut figures, <&ours::Ours as Peer>::NAME, measure_ours(batch)?);
    }
    for figure in &mut figures {
        figure.median = median(&figure.nanoseconds);
    }
    println!("{}", table(&figures));
    if let Some(file) = settings.json {
        let figures: Vec<_> = figures.iter().map(Figure::json).collect();
        std::fs::write(&file, serde_json::to_string_pretty(&figures)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn measure_ours(batch: Duration) -> Result<[f64; CALLS.len()]> {
    let error = |errno| anyhow::anyhow!("{errno:?}");
    let fs = lightpath::Fs::new(64 << 20).map_err(error)?;
    measure(&&ours::Ours(fs.task().map_err(error)?), batch)
}

fn settings() -> Result<Settings> {
    let mut settings = Settings { samples: 5, batch: Duration::from_millis(10), json: None };
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--quick") => (settings.samples, settings.batch) = (3, Duration::from_millis(3)),
            Some("--json") => settings.json = Some(arguments.next().context("--json needs a file")?.into()),
            _ => bail!("usage: lp-peers [--quick] [--json FILE]"),
        }
    }
    Ok(settings)
}

fn note(figures: &mut Vec<Figure>, peer: &'static str, measured: [f64; CALLS.len()]) {
    for (call, value) in CALLS.into_iter().zip(measured) {
        match figures.iter_mut().find(|figure| figure.peer == peer && figure.call == call) {
            Some(figure) => figure.nanoseconds.push(value),
            None => figures.push(Figure { peer, call, nanoseconds: vec![value], median: value }),
        }
    }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn table(figures: &[Figure]) -> Table {
    let mut peers: Vec<&str> = Vec::new();
    for figure in figures {
        if !peers.contains(&figure.peer) {
            peers.push(figure.peer);
        }
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
    table.set_header(["ns"].into_iter().chain(peers.iter().copied()));
    for call in CALLS {
        let cell = |peer: &&str| {
            let figure = figures.iter().find(|figure| figure.peer == *peer && figure.call == call);
            figure.map_or("-".to_owned(), |figure| format!("{:.1}", figure.median))
        };
        table.add_row([call.to_owned()].into_iter().chain(peers.iter().map(cell)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
