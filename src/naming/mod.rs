//! naming
