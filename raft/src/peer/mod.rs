//! Connections between the nodes of a group.
