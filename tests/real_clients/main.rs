//! Unmodified clients against a group of real processes, through the leader's death. The C++ client comes
//! as a Python wheel; it is installed into a virtual environment below the target directory.

#[path = "../common/mod.rs"]
mod common;
mod cpp;
mod script;
