//! A build without the feature `sabotage` has none of it: the variable changes nothing, and neither the
//! variable nor one of the names is in the program.

use std::process::{Command, Output};

/// The registry's own source: the one place that has all the names.
const REGISTRY: &str = include_str!("../raft/src/sabotage.rs");
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
