//! The program: reads the command line, runs the command, says in one sentence why it failed.

use std::process::ExitCode;

use clap::Parser;
use quorumlog::cli::Cli;

fn main() -> ExitCode {
    match quorumlog_raft::sabotage::warning() {
        Ok(None) => {}
        Ok(Some(warning)) => eprintln!("quorumlog: {warning}"),
        Err(error) => {
            eprintln!("quorumlog: {error}");
            return ExitCode::FAILURE;
        }
    }
    match Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("quorumlog: {error}");
            ExitCode::FAILURE
        }
    }
}
