//! The program: reads the command line, runs the command, says in one sentence why it failed.

use std::process::ExitCode;

use clap::Parser;
use quorumlog::cli::Cli;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("quorumlog: {error}");
            ExitCode::FAILURE
        }
    }
}
