//! docs/layout.md says what the constants say.

use lp_region::layout as at;

const DOCUMENT: &str = include_str!("../../../docs/layout.md");

fn rows() -> Vec<[String; 4]> {
    let row = |name: &str, offset: usize, slots: usize, bytes: usize| {
        [name.to_owned(), format!("{offset:#x}"), slots.to_string(), bytes.to_string()]
    };
    let slab = |name: &str, slab: at::Slab| {
        let size = slab.bytes(0..1).len();
        row(name, slab.offset(0), slab.all().len() / size, size)
    };
    let far = |name: &str, slab: at::Slab| {
        let (size, [near, far]) = (slab.bytes(0..1).len(), slab.parts(slab.slots));
        row(name, slab.offset(near.len() / size), far.len() / size, size)
    };
    vec![
        row("runs", at::RUNS_AT, at::RUNS, at::RUN_SIZE),
        slab("lanes", at::LANE_SLAB),
        slab("hash buckets, downwards", at::BUCKET_SLAB),
        slab("open files", at::FILE_SLAB),
        slab("directory entries, downwards", at::DIRENT_SLAB),
        slab("inodes", at::INODE_SLAB),
        far("directory entries, far, downwards", at::DIRENT_SLAB),
        slab("overflow buckets", at::OVERFLOW_SLAB),
        slab("long names", at::NAME_SLAB),
        slab("lock records", at::LOCK_SLAB),
        slab("mapping records", at::MAPPING_SLAB),
        row("changes of mounts", at::PLANS_AT, at::LANES, at::PLAN_SIZE),
        row("unlinked inodes", at::UNLINKED_AT, at::LANES, at::UNLINKED_SIZE),
        row("descriptor tables", at::FD_TABLES_AT, at::PROCESSES, at::FDS * 8),
        slab("owners of pages, downwards", at::OWNER_SLAB),
        row("chunks", at::CHUNKS_AT, at::CHUNKS, 256),
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
    let up = |first: usize, slots: usize, size: usize| at::Slab::up(first, slots, size).all();
    let [_, far_dirents] = at::DIRENT_SLAB.parts(at::DIRENTS);
    let mut all = vec![
        0..at::LANES_AT,
        at::LANE_SLAB.all(),
        at::BUCKET_SLAB.all(),
        at::FILE_SLAB.all(),
        at::DIRENT_SLAB.all(),
        at::INODE_SLAB.all(),
        far_dirents,
        at::OVERFLOW_SLAB.all(),
        at::NAME_SLAB.all(),
        at::LOCK_SLAB.all(),
        at::MAPPING_SLAB.all(),
        up(at::PLANS_AT, at::LANES, at::PLAN_SIZE),
        up(at::UNLINKED_AT, at::LANES, at::UNLINKED_SIZE),
        up(at::FD_TABLES_AT, at::PROCESSES, at::FDS * 8),
        at::OWNER_SLAB.all(),
        up(at::CHUNKS_AT, at::CHUNKS, 256),
        at::DATA_AT..usize::MAX,
    ];
    all.sort_by_key(|part| part.start);
    for pair in all.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{:#x?} runs into {:#x?}", pair[0], pair[1]);
    }
}

#[test]
fn slabs_know_the_places_of_their_slots() {
    for slab in [at::INODE_SLAB, at::DIRENT_SLAB] {
        let size = slab.bytes(0..1).len();
        let near = slab.all().len() / size;
        let far = [near, near + 5, slab.slots - 1]
            .into_iter()
            .filter(|index| *index < slab.slots && *index >= near);
        for index in [0, 1, 5, near - 1].into_iter().chain(far) {
            let bytes = slab.bytes(index..index + 1);
            assert_eq!(bytes, slab.offset(index)..slab.offset(index) + size);
            assert_eq!(slab.offset(index + slab.slots), slab.offset(index));
            assert_eq!(slab.slots_in(bytes.start + 1..bytes.end - 1), index..index + 1);
            assert_eq!([slab.slot_at(bytes.start), slab.slot_at(bytes.end - 1)], [index; 2]);
        }
        assert_eq!(slab.slots_in(slab.bytes(3..9)), 3..9);
        assert_eq!(slab.slots_in(slab.all()), 0..near);
    }
}

#[test]
fn far_slots_are_side_by_side_in_the_same_direction() {
    let (slab, size) = (at::DIRENT_SLAB, 64);
    let near = slab.all().len() / size;
    let [_, far] = slab.parts(slab.slots);
    assert_eq!(slab.offset(near) + size, far.end);
    assert_eq!(slab.offset(near + 7), slab.offset(near) - 7 * size);
    assert_eq!(slab.offset(slab.slots - 1), far.start);
    assert_eq!(slab.parts(near), [slab.all(), far.end..far.end]);
    assert_eq!(slab.parts(near + 7), [slab.all(), far.end - 7 * size..far.end]);
    assert_eq!(slab.parts(5), [slab.bytes(0..5), far.end..far.end]);
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
