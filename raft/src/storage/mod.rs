//! openraft's storage traits over the log and the state machine.
