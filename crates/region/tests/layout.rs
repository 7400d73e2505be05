//! docs/layout.md says what the constants say.

use lp_region::layout as at;

const DOCUMENT: &str = include_str!("../../../docs/layout.md");

fn rows() -> Vec<[String; 4]> {
    let row = |name: &str, offset: usize, slots: usize, bytes: usize| {
        [name.to_owned(), format!("{offset:#x}"), slots.to_string(), bytes.to_string()]
    };
    vec![
        row("runs", at::RUNS_AT, at::RUNS, at::RUN_SIZE),
        row("lanes", at::LANES_AT, at::LANES, at::LANE_SIZE),
        row("changes of mounts", at::PLANS_AT, at::LANES, at::PLAN_SIZE),
        row("unlinked inodes", at::UNLINKED_AT, at::LANES, at::UNLINKED_SIZE),
        row("open files", at::FILES_AT, at::FILES, 128),
        row("inodes", at::INODES_AT, at::INODES, 256),
        row("directory entries", at::DIRENTS_AT, at::DIRENTS, 64),
        row("hash buckets", at::BUCKETS_AT, at::BUCKETS, 64),
        row("overflow buckets", at::OVERFLOWS_AT, at::OVERFLOWS, 64),
        row("long names", at::NAMES_AT, at::NAMES, 256),
        row("lock records", at::LOCKS_AT, at::LOCKS, 64),
        row("mapping records", at::MAPPINGS_AT, at::MAPPINGS, 64),
        row("descriptor tables", at::FD_TABLES_AT, at::PROCESSES, at::FDS * 8),
        row("chunks", at::CHUNKS_AT, at::CHUNKS, 256),
        row("owners of pages", at::OWNERS_AT, at::CHUNKS * at::CHUNK_PAGES, 8),
        row("data pages", at::DATA_AT, at::CHUNKS * at::CHUNK_PAGES, lp_abi::PAGE_SIZE),
    ]
}

#[test]
fn the_document_has_the_table() {
    let table: Vec<String> = rows().iter().map(|row| format!("| {} |", row.join(" | "))).collect();
    let table = table.join("\n");
    assert!(DOCUMENT.contains(&table), "docs/layout.md lacks the table\n{table}");
}

#[test]
fn the_document_places_processes() {
    let place = format!(
        "{} bytes at {} in each of the first {}",
        at::PROCESS_SIZE,
        at::PROCESSES_AT - at::LANES_AT,
        at::PROCESSES
    );
    assert!(DOCUMENT.contains(&place), "docs/layout.md lacks \"{place}\"");
}

#[test]
fn slabs_do_not_overlap() {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => usize::from_str_radix(hex, 16).expect("a number"),
        None => text.parse().expect("a number"),
    };
    for pair in rows().windows(2) {
        let end = number(&pair[0][1]) + number(&pair[0][2]) * number(&pair[0][3]);
        assert!(end <= number(&pair[1][1]), "{} runs into {}", pair[0][0], pair[1][0]);
    }
}

#[test]
fn descriptors_have_words_of_their_own_and_neighbours_have_lines_of_their_own() {
    let mut places: Vec<(usize, usize)> = (0..at::FDS).map(at::fd_place).collect();
    for (fd, near) in places.windows(at::FDS_APART).enumerate() {
        let mut lines: Vec<usize> = near.iter().map(|(line, _)| *line).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), at::FDS_APART, "two of {} descriptors from {fd} share a line", at::FDS_APART);
    }
    places.sort_unstable();
    let words = places.into_iter().map(|(line, word)| line * at::FDS_OF_A_LINE + word);
    assert!(words.eq(0..at::FDS), "two descriptors share a word, or one has none");
}
