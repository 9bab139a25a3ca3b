//! A build without the feature `sabotage` has none of it: the variable changes nothing, and neither the
//! variable nor one of the names is in the program. And what is said of the sabotages agrees: the registry, the
//! table of what notices each, and the page that shows it.

use std::process::{Command, Output};

/// The registry's own source: the one place that has all the names.
const REGISTRY: &str = include_str!("../raft/src/sabotage.rs");
/// What notices each.
const TABLE: &str = include_str!("../chaos/teeth.tsv");
/// Mistakes in rules that a dependency keeps.
const PATCH: &str = include_str!("../chaos/teeth.patch");
const PAGE: &str = include_str!("../chaos/README.md");
const VARIABLE: &str = "QUORUMLOG_SABOTAGE";
const PROGRAM: &str = env!("CARGO_BIN_EXE_quorumlog");

/// Names of all sabotages, from lines like `AckBeforeSync = "ack-before-sync";`.
fn names() -> Vec<&'static str> {
    let (_, list) = REGISTRY.split_once("\nregistry! {").expect("the list");
    let (list, _) = list.split_once("\n}").expect("its end");
    let lines = list.lines().map(str::trim);
    lines
        .filter_map(|line| line.split_once(" = \"")?.1.strip_suffix("\";"))
        .collect()
}

fn version(sabotage: Option<&str>) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("--version").env_remove(VARIABLE);
    if let Some(name) = sabotage {
        command.env(VARIABLE, name);
    }
    command.output().expect("the program runs")
}

#[test]
fn the_registry_has_the_sabotages_that_were_promised() {
    let names = names();
    assert!(names.len() >= 20, "{names:?}");
    assert!(names.contains(&"ack-before-sync"), "{names:?}");
}

/// Cells of each row of the table.
fn rows() -> Vec<Vec<&'static str>> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect()).collect()
}

#[test]
fn every_sabotage_has_one_row_in_the_table_and_no_row_is_of_another() {
    let mut listed: Vec<&str> = rows().iter().map(|cells| cells[0]).collect();
    let mut names = names();
    listed.sort_unstable();
    names.sort_unstable();
    assert_eq!(listed, names);
}

#[test]
fn every_row_of_the_table_can_be_run() {
    for cells in rows() {
        let [name, _, kind, check, allowed, needed, complaint] = cells[..] else {
            panic!("seven cells, separated by tabs: {cells:?}");
        };
        assert!(["sim", "scenario", "test"].contains(&kind), "{name}");
        assert_eq!(kind == "test", check.contains('/'), "{name}");
        assert_eq!(kind == "sim", check == "-", "{name}");
        let allowed: u32 = allowed.parse().expect(name);
        let needed = needed.parse().unwrap_or(allowed); // "?": not measured
        assert!(1 <= needed && needed <= allowed, "{name}");
        assert!(!complaint.is_empty(), "{name}");
    }
}

#[test]
fn the_mistakes_of_dependencies_are_in_the_registry() {
    let asked = PATCH.lines().filter(|line| line.starts_with('+'));
    let asked: Vec<&str> = asked
        .filter_map(|line| line.split_once("sabotaged(\"")?.1.split('"').next())
        .collect();
    assert!(!asked.is_empty());
    for name in asked {
        assert!(names().contains(&name), "{name}");
    }
}

#[test]
fn the_page_shows_the_table() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/chaos/teeth");
    let output = Command::new("bash").args([script, "--table"]).output();
    let output = output.expect("bash runs");
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    assert_eq!(table.lines().count(), names().len() + 2, "{table}");
    let shown = PAGE.split_once("| sabotage |").expect("the table").1;
    let shown = format!("| sabotage |{shown}");
    for (ours, theirs) in table.lines().zip(shown.lines()) {
        assert_eq!(
            ours, theirs,
            "replace it with what `chaos/teeth --table` prints"
        );
    }
    let after = shown.lines().nth(table.lines().count());
    assert!(!after.unwrap_or_default().starts_with('|'), "{after:?}");
}

#[cfg(not(feature = "sabotage"))]
#[test]
fn the_variable_changes_nothing() {
    let plain = version(None);
    assert!(plain.status.success());
    let expected = concat!("quorumlog ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8_lossy(&plain.stdout), expected);
    for name in ["ack-before-sync", "no such sabotage"] {
        let output = version(Some(name));
        assert_eq!(output, plain, "{name}");
        assert!(output.stderr.is_empty(), "{name}");
    }
}

#[cfg(not(feature = "sabotage"))]
#[test]
fn neither_the_variable_nor_a_name_is_in_the_program() {
    let program = std::fs::read(PROGRAM).expect("the program can be read");
    let contains = |text: &str| memchr::memmem::find(&program, text.as_bytes()).is_some();
    assert!(contains("storePathRootDir"), "not the program");
    for text in names().into_iter().chain([VARIABLE, "SABOTAGED"]) {
        assert!(!contains(text), "{text} is in the program");
    }
}

#[cfg(feature = "sabotage")]
#[test]
fn a_sabotage_build_says_what_it_is_and_takes_no_unknown_name() {
    let plain = version(None);
    assert!(String::from_utf8_lossy(&plain.stdout).contains("never for use"));
    assert!(plain.stderr.is_empty());
    for name in names() {
        let output = version(Some(name));
        assert!(output.status.success(), "{name}");
        let warning = String::from_utf8_lossy(&output.stderr);
        assert!(warning.contains("SABOTAGED"), "{name}: {warning}");
        assert!(warning.contains(name), "{name}: {warning}");
    }
    let unknown = version(Some("no such sabotage"));
    assert!(!unknown.status.success());
    assert!(unknown.stdout.is_empty());
}
