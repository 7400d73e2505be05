//! Lists the sites of objects: `cargo run -p lp-sites --example sites -- [--bundle FILE] OBJECT...`

use std::collections::BTreeMap;
use std::path::Path;

use lp_sites::{Bundle, Status, analyse, elf::Elf};

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "sites").peekable();
    let bundle = arguments.next_if(|argument| argument == "--bundle").and_then(|_| arguments.next());
    for path in arguments.filter(|argument| argument != "--build") {
        match &bundle {
            Some(bundle) => {
                match Bundle::open(Path::new(bundle)).and_then(|bundle| bundle.add(Path::new(&path))) {
                    Ok(Status::Refused(why)) => eprintln!("{path}: {why}"),
                    Ok(_) => {}
                    Err(error) => eprintln!("{path}: {error}"),
                }
            }
            None => list(&path),
        }
    }
}

fn list(path: &str) {
    let contents = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let elf = Elf::parse(&contents).unwrap_or_else(|error| panic!("{path}: {error}"));
    match analyse(&elf) {
        Ok(analysis) => {
            let mut counts = BTreeMap::<String, usize>::new();
            for site in &analysis.sites {
                println!("{:#x} {:?} {:?}", site.address, site.number, site.verdict);
                *counts.entry(format!("{:?}", site.verdict)).or_default() += 1;
            }
            let pages = analysis.pages(&elf).map(|pages| {
                pages.iter().map(|(at, bytes)| format!("{at:#x}+{}", bytes.len() / 4096)).collect::<Vec<_>>()
            });
            println!(
                "{path}: {} sites {counts:?} thunks {} pages {pages:?}",
                analysis.sites.len(),
                analysis.thunks.len()
            );
        }
        Err(refusal) => println!("{path}: {refusal}"),
    }
}
