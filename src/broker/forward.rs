//! Passing requests to the leader: the follower's half (hold while there is no leader, pass, map failures
//! to refused or unknown) and the leader's half (answer as if the client had come here).
