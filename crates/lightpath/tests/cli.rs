//! What the command says: help, and one line for every wrong command line. The sessions are in `cmd/`.

#[test]
fn sessions() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd").env("COLUMNS", "100").env("PATH", "/usr/bin:/bin");
}
