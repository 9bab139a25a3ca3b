//! The offline reader on directories that real nodes wrote: it finds what the nodes themselves serve, proves
//! what a group's files prove together, and tells a torn tail from damage.

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod damage;
mod group;
