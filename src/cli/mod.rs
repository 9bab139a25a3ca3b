//! The program's commands. Parsing here, one file per command.
