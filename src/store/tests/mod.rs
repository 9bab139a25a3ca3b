//! Tests of the store as a whole, over a log and files in memory.

mod apply_tests;
mod entry_tests;
mod fake_log;
mod mem_files;
mod read_tests;
mod restart_tests;
mod same_state_tests;
mod tables_tests;
mod thread_tests;
mod world;
