//! Checks what the documents say about the code: links lead somewhere, the tour's files and functions exist,
//! and `tests/README.md` leads from each call to its tests. `LIGHTPATH_BLESS=1` rewrites that table.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use lp_tests::sources::{files, groups, makes, names, read, root, stem, times};

/// Each text between `open` and `close`.
fn between<'t>(text: &'t str, open: &str, close: &str) -> Vec<&'t str> {
    text.split(open).skip(1).filter_map(|rest| rest.split_once(close)).map(|(inside, _)| inside).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut documents: Vec<PathBuf> = ["", "docs", "docs/adr", "docs/bench", "tests"]
        .iter()
        .flat_map(|directory| files(directory, ".md"))
        .collect();
    documents.retain(|path| root().join(path).is_file());
    assert!(documents.len() > 20, "only {} documents", documents.len());
    let mut links = 0;
    for document in documents {
        let directory = document.parent().unwrap_or(Path::new(""));
        for target in between(&read(&document), "](", ")") {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || target.contains("://") {
                continue;
            }
            links += 1;
            assert!(root().join(directory).join(file).exists(), "{}: {target}", document.display());
        }
    }
    assert!(links > 50, "only {links} links");
}

#[test]
fn files_that_documents_name_are_there() {
    let directories = ["", "docs", "docs/adr", "docs/bench"];
    let mut named = 0;
    for document in directories.iter().flat_map(|directory| files(directory, ".md")) {
        for tick in between_ticks(&read(&document)) {
            let is_file =
                ["crates/", "tests/", "scripts/", "docs/"].iter().any(|start| tick.starts_with(start))
                    && tick
                        .rsplit_once('.')
                        .is_some_and(|(_, end)| ["rs", "c", "sh", "toml", "md"].contains(&end))
                    && !tick.contains(['*', ' ', '{'])
                    && !tick.contains("NAME");
            if is_file {
                named += 1;
                assert!(root().join(&tick).exists(), "{}: {tick}", document.display());
            }
        }
    }
    assert!(named > 50, "only {named} files");
}

#[test]
fn the_index_has_all_decisions() {
    let index = read("docs/adr/README.md");
    for decision in files("docs/adr", ".md").iter().filter(|path| stem(path) != "README") {
        let (text, name) = (read(decision), stem(decision));
        let (number, title) =
            text.lines().next().and_then(|line| line.strip_prefix("# ")?.split_once(". ")).unwrap();
        assert!(index.contains(&format!("- [{number}]({name}.md) {title}\n")), "docs/adr/README.md: {name}");
        assert!(text.contains("\nStatus: "), "{name} has no status");
    }
}

#[test]
fn the_tour_names_what_is_there() {
    let tour = read("docs/tour.md");
    let mut functions = 0;
    // A step, or the text after the steps, is a paragraph; its functions are in one of its files.
    let mut last: Vec<String> = Vec::new();
    for paragraph in tour.split("\n\n").flat_map(|block| block.split("\n1. ").flat_map(steps)) {
        let ticked = between_ticks(&paragraph);
        let named: Vec<String> =
            ticked.iter().filter(|tick| tick.contains('/') && tick.ends_with(".rs")).cloned().collect();
        if !named.is_empty() {
            last.extend(named.iter().filter(|name| *name != "tests/tests/documents.rs").map(read));
        }
        for function in ticked.iter().filter_map(|tick| tick.strip_prefix("fn ")) {
            functions += 1;
            let is_there = last.iter().any(|text| {
                text.split(&format!("fn {function}")).skip(1).any(|rest| rest.starts_with(['(', '<']))
            });
            assert!(is_there, "docs/tour.md: no file named so far has fn {function}");
        }
    }
    assert!(functions > 10, "only {functions} functions");
}

/// The numbered steps of a list.
fn steps(block: &str) -> Vec<String> {
    let mut steps = vec![String::new()];
    for line in block.lines() {
        let is_step = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        if is_step {
            steps.push(String::new());
        }
        if let Some(step) = steps.last_mut() {
            step.push_str(line);
            step.push('\n');
        }
    }
    steps
}

fn between_ticks(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(|tick| tick.replace('\n', " ")).collect()
}

/// The tests of a call.
#[derive(Default)]
struct Row {
    /// Sorted by how often they make the call.
    conformance: Vec<(Reverse<usize>, String)>,
    library: BTreeSet<String>,
    programs: BTreeSet<String>,
    explorer: bool,
    budget: bool,
}

#[test]
fn every_call_leads_to_its_tests() {
    let rows = rows();
    assert!(rows.len() > 150, "only {} calls", rows.len());
    let text = table(&rows);
    let path = root().join("tests/README.md");
    if std::env::var_os("LIGHTPATH_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "tests/README.md is old: LIGHTPATH_BLESS=1 cargo test -p lp-tests --test documents"
    );
    let untested: Vec<&str> = rows
        .iter()
        .filter(|(_, row)| row.conformance.is_empty() && row.programs.is_empty())
        .map(|(call, _)| call.as_str())
        .collect();
    assert!(untested.is_empty(), "calls without a test: {untested:?}");
}

fn rows() -> BTreeMap<String, Row> {
    let groups = groups();
    let library: Vec<(String, String)> =
        files("crates/vfs/tests", ".rs").iter().map(|path| (stem(path), read(path))).collect();
    let mut programs: Vec<(String, String)> = ["tests/programs", "crates/gate/tests/programs"]
        .iter()
        .flat_map(|directory| files(directory, ".c"))
        .map(|path| (format!("{}.c", stem(&path)), read(path)))
        .collect();
    programs.extend(["differ", "odd"].map(|folder| {
        (folder.to_owned(), files(&format!("tests/programs/{folder}"), ".c").iter().map(read).collect())
    }));
    let explorer = read("crates/explore/src/calls.rs");
    let budgets = read("crates/audit/budgets.toml");
    let calls = read("crates/gate/src/high/table/calls.rs");
    let numbers =
        calls.lines().filter_map(|line| line.trim().strip_prefix("__NR_")?.split_once(": Handled("));
    let mut rows = BTreeMap::new();
    for (call, _) in numbers {
        let names = names(call);
        let row: &mut Row = rows.entry(call.to_owned()).or_default();
        for (group, body) in &groups {
            let times = names.iter().map(|name| times(body, name)).sum();
            if times > 0 {
                row.conformance.push((Reverse(times), group.clone()));
            }
        }
        row.conformance.sort();
        let of_library = library.iter().filter(|(_, text)| makes(text, call));
        row.library.extend(of_library.map(|(name, _)| name.clone()));
        let of_programs = programs.iter().filter(|(_, text)| names.iter().any(|name| makes(text, name)));
        row.programs.extend(of_programs.map(|(name, _)| name.clone()));
        row.explorer = names.iter().any(|name| explorer.contains(&format!("door.{name}(")));
        row.budget = names.iter().any(|name| budgets.contains(&format!("call = \"{name}\"")));
    }
    rows
}

fn table(rows: &BTreeMap<String, Row>) -> String {
    let mut text = String::from(
        "# Tests by call\n\n\
         From a call that the gate handles to what tests it. `cargo test --release -p lp-tests --test documents`\n\
         fails when the table is old, or when a call has no test.\n\n\
         - **conformance**: groups of `tests/programs/conform`, run on tmpfs and on a mount and compared:\n  \
         `cargo test --release -p lp-tests --test conform GROUP`\n\
         - **library**: `crates/vfs/tests/NAME.rs`, through the library door:\n  \
         `cargo test --release -p lp-vfs --test NAME`\n\
         - **programs**: `tests/programs/NAME` and `crates/gate/tests/programs/NAME`, which tests of these crates run\n\
         - **explorer**: stopped, killed and signalled at each instruction of calls that make it, which\n  \
         `lp-explore --list` names: `just explore --victim NAME`\n\
         - **budget**: instructions counted: `cargo run --release -p lp-audit -- show`\n\n\
         | call | conformance | library | programs | explorer | budget |\n|---|---|---|---|---|---|\n",
    );
    let list = |names: Vec<&String>| {
        let shown: Vec<&str> = names.iter().take(6).map(|name| name.as_str()).collect();
        let more = if names.len() > 6 { format!(" and {} more", names.len() - 6) } else { String::new() };
        format!("{}{more}", shown.join(", "))
    };
    let mark = |is: bool| if is { "yes" } else { "" };
    for (call, row) in rows {
        let conformance = list(row.conformance.iter().map(|(_, group)| group).collect());
        let [library, programs] = [&row.library, &row.programs].map(|names| list(names.iter().collect()));
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "| {call} | {conformance} | {library} | {programs} | {} | {} |",
            mark(row.explorer),
            mark(row.budget)
        );
    }
    text
}

/// Each row of docs/differences.md names a test that is there, or says that it has none. The number of those
/// that have none may not grow.
#[test]
fn every_difference_names_its_test() {
    let tests = named_tests();
    let text = read("docs/differences.md");
    let mut lines = text.lines().peekable();
    let (mut untested, mut unnamed) = (0, Vec::new());
    while let Some(line) = lines.next() {
        // A table's first line is its head, and the second is drawn.
        let is_head = lines.peek().is_some_and(|next| next.starts_with("|---")) || line.starts_with("|---");
        if !line.starts_with('|') || is_head {
            continue;
        }
        if line.contains("no test") {
            untested += 1;
        } else if !between_ticks(line).iter().any(|tick| names_a_test(&tests, tick)) {
            unnamed.push(line.split('|').nth(1).unwrap_or_default().trim());
        }
    }
    assert!(unnamed.is_empty(), "rows without a test: {unnamed:#?}");
    assert!(untested <= UNTESTED, "{untested} rows have no test, more than {UNTESTED}");
}

/// Rows of docs/differences.md that no test shows.
const UNTESTED: usize = 42;

/// The names of conformance groups, of cases of `differ`, of test functions, and of the files of tests.
fn named_tests() -> BTreeSet<String> {
    let mut names: BTreeSet<String> = groups().into_iter().map(|(name, _)| name).collect();
    for path in files("tests/programs/differ", ".c") {
        names.extend(between(&read(&path), "\nCASE(", ")").into_iter().map(str::to_owned));
    }
    let file_name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for (directory, ending) in [("tests/programs", ".c"), ("tests/sessions", ".sh")] {
        names.extend(files(directory, ending).iter().map(file_name));
    }
    for directory in ["tests/tests", "crates/lightpath/tests", "crates/vfs/tests", "crates/gate/tests/run"] {
        for path in files(directory, ".rs") {
            names.insert(file_name(&path));
            // A helper with the name of a call is none.
            let is_test = |name: &&str| name.matches('_').count() > 1;
            names.extend(between(&read(&path), "\nfn ", "(").into_iter().filter(is_test).map(str::to_owned));
        }
    }
    names
}

fn names_a_test(tests: &BTreeSet<String>, tick: &str) -> bool {
    match tick.strip_suffix('*') {
        Some(start) => tests.iter().any(|name| name.starts_with(start)),
        None => tests.contains(tick),
    }
}
