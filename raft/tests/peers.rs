//! What the peer port does with strangers and noise, and what a call's errors mean.

mod support;

use std::time::Duration;

use bytes::Bytes;
use quorumlog_raft::{CallError, Group, Role, StartError};
use support::{Cluster, Echo, PATIENCE, Recorder, config, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Sends bytes to a peer port and waits until the node closes the connection.
async fn closed_after(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The node may close before everything is written.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let end = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    assert!(end.is_ok(), "the connection stays open");
    answer
}

/// A stream of bytes that looks random and is always the same.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noise_on_the_peer_port_closes_the_connection_and_nothing_else() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let term = cluster.group(leader).view().borrow().term;
    let address = &cluster.peers[&leader];
    let huge = u32::MAX.to_le_bytes();
    let bits: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &noise(1 << 20),
        &huge,
        &[0; 64],
        // A frame that never ends: ended by the bound of the handshake.
        &[100, 0, 0, 0, 1, 2, 3],
        b"",
    ];
    for bytes in bits {
        assert_eq!(closed_after(address, bytes).await, b"");
        cluster.write(leader, b"still here").await.unwrap();
    }
    // Many at a time, that say nothing.
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    for _ in 0..20 {
        cluster.write(leader, b"still here").await.unwrap();
    }
    cluster.all_applied(26).await;
    cluster.assert_all_the_same();
    assert_eq!(cluster.group(leader).view().borrow().term, term);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_group_and_a_node_with_a_wrong_id_get_nothing() {
    let mut cluster = Cluster::new(3);
    cluster.start_two_of_three().await;
    let leader = cluster.leader().await;
    let term = cluster.group(leader).view().borrow().term;

    // At node 3's address, with node 3's id, but of another group.
    let mut stranger = cluster.config(3);
    stranger.group = "another".into();
    cluster.start_node_with(3, stranger).await;
    cluster.write(leader, b"1").await.unwrap();
    let answer = cluster
        .group(leader)
        .call(3, Bytes::from_static(b"?"), Duration::from_millis(300))
        .await;
    assert!(matches!(answer, Err(CallError::NotSent(_))), "{answer:?}");
    sleep(Duration::from_millis(1500)).await;
    let status = cluster.group(3).status().await;
    assert_eq!((status.leader, status.applied), (None, None));
    assert_ne!(status.role, Role::Leader);
    cluster.stop_node(3).await;

    // At node 3's address, but it believes to be node 4.
    let mut peers = cluster.peers.clone();
    peers.insert(4, peers[&3].clone());
    let fourth = config(cluster.dir.path(), "g", 4, &peers);
    cluster.start_node_with(4, fourth).await;
    sleep(Duration::from_millis(1500)).await;
    let status = cluster.group(4).status().await;
    assert_eq!((status.leader, status.applied), (None, None));
    cluster.stop_node(4).await;

    cluster.write(leader, b"2").await.unwrap();
    assert_eq!(cluster.group(leader).view().borrow().term, term);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_reach_the_service_of_every_node() {
    let cluster = Cluster::start(3).await;
    cluster.leader().await;
    for to in 1..=3 {
        let answer = cluster
            .group(1)
            .call(to, Bytes::from_static(b"hello"), PATIENCE)
            .await
            .unwrap();
        assert_eq!(answer, format!("1>{to}:hello"));
    }
    // Large ones, many at a time.
    let request = Bytes::from(vec![b'x'; 2 << 20]);
    let calls = (0..20).map(|_| cluster.group(1).call(2, request.clone(), PATIENCE));
    for answer in futures_util::future::join_all(calls).await {
        assert_eq!(answer.unwrap().len(), request.len() + 4);
    }
    let unknown = cluster
        .group(1)
        .call(9, Bytes::new(), Duration::from_secs(1))
        .await;
    assert!(matches!(unknown, Err(CallError::NotSent(_))), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_says_whether_it_may_have_been_carried_out() {
    let mut cluster = Cluster::new(3);
    cluster.start_two_of_three().await;
    cluster.leader().await;
    let call = |to, text: &'static [u8], ms| {
        let group = cluster.group(1).clone();
        async move {
            let bound = Duration::from_millis(ms);
            group.call(to, Bytes::from_static(text), bound).await
        }
    };
    // Nobody listens there.
    let never = call(3, b"?", 300).await;
    assert!(matches!(never, Err(CallError::NotSent(_))), "{never:?}");
    // It is there, but slower than the caller's bound.
    let late = call(2, b"sleep 2000", 200).await;
    assert!(matches!(late, Err(CallError::NoAnswer(_))), "{late:?}");
    // So is a call to itself.
    let late = call(1, b"sleep 2000", 200).await;
    assert!(matches!(late, Err(CallError::NoAnswer(_))), "{late:?}");
    // It goes away while it works on the call: no waiting for the bound.
    let lost = tokio::spawn(call(2, b"sleep 60000", 60_000));
    sleep(Duration::from_millis(300)).await;
    cluster.stop_node(2).await;
    let lost = timeout(PATIENCE, lost).await.unwrap().unwrap();
    assert!(matches!(lost, Err(CallError::NoAnswer(_))), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_goes_silent_is_replaced() {
    let cluster = Cluster::start(2).await;
    let leader = cluster.leader().await;
    let other = 3 - leader;
    cluster.write(leader, b"1").await.unwrap();
    // The other node's packets get lost; nobody closes anything.
    cluster.cuts.cut_one_way(other, leader);
    let silent = cluster
        .group(leader)
        .call(other, Bytes::from_static(b"?"), Duration::from_secs(30))
        .await;
    assert!(matches!(silent, Err(CallError::NoAnswer(_))), "{silent:?}");
    cluster.cuts.heal();
    let leader = cluster.leader().await;
    cluster.write(leader, b"2").await.unwrap();
    cluster.all_applied(2).await;
    cluster.assert_all_the_same();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_start_says_why() {
    let cluster = Cluster::start(1).await;
    let start = |config| {
        Group::start_with(
            config,
            cluster.env(1),
            Recorder::default(),
            std::sync::Arc::new(Echo { node: 1 }),
            Box::new(|_| {}),
        )
    };
    let text = |started: Result<Group, StartError>| started.err().unwrap().to_string();

    let mut stranger = cluster.config(1);
    stranger.node = 7;
    assert!(text(start(stranger).await).contains("node 7"));

    let mut taken = cluster.config(1);
    taken.dir = cluster.dir.path().join("elsewhere");
    let said = text(start(taken).await);
    assert!(said.contains(&cluster.peers[&1]), "{said}");

    let said = text(start(cluster.config(1)).await);
    assert!(said.contains("in use by another process"), "{said}");
    eventually("the first node goes on", || cluster.group(1).gate().is_ok()).await;
}
