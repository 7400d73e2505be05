//! Names for addresses, from the symbol tables of the mapped files.

use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use std::collections::HashMap;

/// Symbol tables, read once per file.
#[derive(Default)]
pub(crate) struct Symbols(HashMap<String, Table>);

#[derive(Default)]
struct Table {
    /// For each segment: offset in the file, size, address.
    segments: Vec<(u64, u64, u64)>,
    /// Address and name, in order.
    names: Vec<(u64, String)>,
}

impl Symbols {
    /// The function at `offset` in `file`, and the offset within it.
    pub(crate) fn name(&mut self, file: &str, offset: u64) -> Option<String> {
        let table = self.0.entry(file.to_owned()).or_insert_with(|| Table::read(file).unwrap_or_default());
        let address = table
            .segments
            .iter()
            .find(|(start, size, _)| (*start..start + size).contains(&offset))
            .map(|(start, _, address)| offset - start + address)?;
        let index = table.names.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        let (start, name) = &table.names[index];
        Some(format!("{name}+{:#x}", address - start))
    }
}

impl Table {
    fn read(file: &str) -> Option<Self> {
        let bytes = std::fs::read(file).ok()?;
        let object = object::File::parse(&*bytes).ok()?;
        let segments = object.segments().map(|s| (s.file_range().0, s.file_range().1, s.address())).collect();
        let mut names: Vec<_> = object
            .symbols()
            .chain(object.dynamic_symbols())
            .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
            .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?.to_owned())))
            .collect();
        names.sort();
        names.dedup_by_key(|(address, _)| *address);
        Some(Self { segments, names })
    }
}
