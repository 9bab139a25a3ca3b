//! quorumlog: a message broker whose commit log is a Raft log, speaking the RocketMQ remoting protocol.
//!
//! Layers, lower ones never import higher ones:
//!
//! ```text
//! main, cli   the program: serve, cluster, status, bench, log
//! net         sockets: accept, read frames, write frames, limits
//! naming      the built-in name server
//! broker      one file per request family; the proposer in front of the log
//! store       what committed entries mean: topics, queues, offsets, dedup window, checkpoint
//! protocol    RocketMQ's bytes and codes, no I/O
//! (raft)      the replicated log, a crate of its own
//! ```
//!
//! `config` turns RocketMQ's keys into checked values once, at the edge.

pub mod broker;
pub mod cli;
pub mod config;
pub mod naming;
pub mod net;
pub mod protocol;
pub mod store;
