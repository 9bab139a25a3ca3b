//! Three nodes over real sockets and files: electing, replicating, losing and regaining nodes.

mod support;

use std::time::Duration;

use bytes::Bytes;
use quorumlog_raft::group::Timers;
use quorumlog_raft::{ProposeError, Refusal, Role};
use support::{Cluster, PATIENCE, eventually};
use tokio::time::{Instant, sleep, timeout};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_elect_a_leader_and_apply_the_same_entries() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let mut proposals = Vec::new();
    for number in 0..1000u32 {
        let payload = Bytes::copy_from_slice(&number.to_le_bytes());
        proposals.push(cluster.group(leader).propose(payload).await.unwrap());
    }
    let mut last = 0;
    for proposal in proposals {
        let result = timeout(PATIENCE, proposal.result()).await.unwrap().unwrap();
        let index = u64::from_le_bytes(result.as_ref().try_into().unwrap());
        assert!(index > last, "proposals of one caller keep their order");
        last = index;
    }
    cluster.all_applied(1000).await;
    cluster.assert_all_the_same();
    let payloads = cluster.nodes[&leader].machine.payloads();
    let expected: Vec<Bytes> = (0..1000u32)
        .map(|number| Bytes::copy_from_slice(&number.to_le_bytes()))
        .collect();
    assert_eq!(payloads, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_leader_stops_another_leads_and_has_everything_acknowledged() {
    let mut cluster = Cluster::start(3).await;
    let first = cluster.leader().await;
    for number in 0..100u8 {
        cluster.write(first, &[number]).await.unwrap();
    }
    cluster.stop_node(first).await;
    let second = cluster.leader().await;
    cluster.write(second, b"after").await.unwrap();
    cluster.all_applied(101).await;
    cluster.assert_all_the_same();
    let payloads = cluster.nodes[&second].machine.payloads();
    assert!(payloads[..100].iter().map(|payload| payload[0]).eq(0..100));

    cluster.start_node(first).await;
    cluster.all_applied(101).await;
    cluster.assert_all_the_same();
    eventually("the restarted node follows", || {
        let view = cluster.group(first).view().borrow().clone();
        view.leader == Some(second) && view.ready
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_the_gate_closes_and_proposals_under_way_stay_unknown() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    cluster.write(leader, b"before").await.unwrap();
    cluster.cuts.isolate(leader);
    let cut = Instant::now();
    // The lease still runs: the entry is appended, and its fate is open.
    let proposed = cluster.group(leader).propose(Bytes::from_static(b"open"));
    let mut open = Box::pin(proposed.await.unwrap().result());
    let mut last_open = cut;
    let refusal = loop {
        let asked = Instant::now();
        match cluster.group(leader).gate() {
            Ok(()) => last_open = asked,
            Err(refusal) => break refusal,
        }
        sleep(Duration::from_millis(2)).await;
    };
    let lease = cluster.config(leader).timers.election_max;
    assert!(last_open - cut <= lease + Duration::from_millis(100));
    assert!(matches!(refusal, Refusal::NoLease { .. }), "{refusal}");
    assert!(matches!(
        cluster.group(leader).lease_read(),
        Err(Refusal::NoLease { .. })
    ));
    let refused = cluster
        .group(leader)
        .propose(Bytes::from_static(b"refused"));
    assert!(matches!(
        refused.await.map(|_| ()),
        Err(ProposeError::Refused(Refusal::NoLease { .. }))
    ));
    let caller_bound = timeout(Duration::from_millis(500), &mut open).await;
    assert!(caller_bound.is_err(), "{caller_bound:?}");

    // The others go on without it.
    let others: Vec<u64> = (1..=3).filter(|node| *node != leader).collect();
    let next = cluster.leader_among(&others).await;
    cluster.write(next, b"after").await.unwrap();
    cluster.cuts.heal();
    let outcome = timeout(PATIENCE, open).await.unwrap();
    assert!(
        matches!(outcome, Err(ProposeError::Unknown(_))),
        "{outcome:?}"
    );
    cluster.all_applied(2).await;
    cluster.assert_all_the_same();
    let payloads = cluster.nodes[&leader].machine.payloads();
    assert_eq!(payloads, ["before", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_was_cut_off_comes_back_without_a_new_term() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    cluster.write(leader, b"1").await.unwrap();
    let term = cluster.group(leader).view().borrow().term;
    let follower = (1..=3).find(|node| *node != leader).unwrap();
    cluster.cuts.isolate(follower);
    // Several election timeouts.
    sleep(Duration::from_millis(1500)).await;
    cluster.write(leader, b"2").await.unwrap();
    cluster.cuts.heal();
    cluster.all_applied(2).await;
    for number in 3..20u8 {
        cluster.write(leader, &[number]).await.unwrap();
    }
    for node in 1..=3 {
        let view = cluster.group(node).view().borrow().clone();
        assert_eq!((view.term, view.leader), (term, Some(leader)), "{view:?}");
    }
    cluster.all_applied(19).await;
    cluster.assert_all_the_same();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_all_nodes_stopped_everything_acknowledged_is_there() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    for number in 0..50u8 {
        cluster.write(leader, &[number]).await.unwrap();
    }
    for node in 1..=3 {
        cluster.stop_node(node).await;
    }
    for node in 1..=3 {
        cluster.start_node(node).await;
    }
    let leader = cluster.leader().await;
    cluster.write(leader, b"after").await.unwrap();
    cluster.all_applied(51).await;
    cluster.assert_all_the_same();
    let payloads = cluster.nodes[&leader].machine.payloads();
    assert!(payloads[..50].iter().map(|payload| payload[0]).eq(0..50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_told_to_stop_leaves_nothing_unknown() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let mut proposals = Vec::new();
    for number in 0..200u8 {
        let payload = Bytes::copy_from_slice(&[number]);
        proposals.push(cluster.group(leader).propose(payload).await.unwrap());
    }
    cluster.stop_node(leader).await;
    let mut applied = 0;
    for proposal in proposals {
        match timeout(PATIENCE, proposal.result()).await.unwrap() {
            Ok(_) => applied += 1,
            Err(ProposeError::Refused(_)) => {}
            Err(ProposeError::Unknown(why)) => panic!("unknown: {why}"),
        }
    }
    cluster.leader().await;
    cluster.all_applied(applied).await;
    for node in cluster.nodes.values() {
        assert_eq!(node.machine.payloads().len(), applied);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_one_leads_itself_and_restarts_with_its_data() {
    let mut cluster = Cluster::start(1).await;
    assert_eq!(cluster.leader().await, 1);
    cluster.write(1, b"alone").await.unwrap();
    let status = cluster.group(1).status().await;
    assert_eq!((status.role, status.leader), (Role::Leader, Some(1)));
    assert_eq!(status.applied, status.durable);
    assert_eq!(status.applied_position, status.end_position);
    cluster.stop_node(1).await;
    cluster.start_node(1).await;
    cluster.leader().await;
    assert_eq!(cluster.nodes[&1].machine.payloads(), ["alone"]);
    assert!(cluster.group(1).lease_read().is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_knows_how_far_the_others_are() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    cluster.write(leader, b"x").await.unwrap();
    cluster.all_applied(1).await;
    let until = Instant::now() + PATIENCE;
    loop {
        let status = cluster.group(leader).status().await;
        let lease = status.lease;
        let caught_up = status.replicas.len() == 2
            && status.replicas.iter().all(|replica| {
                replica.matched == status.appended
                    && replica.last_answer.is_some_and(|age| age < lease)
            });
        if caught_up && status.since_quorum.is_some_and(|since| since < lease) {
            break;
        }
        assert!(Instant::now() < until, "{status:?}");
        sleep(Duration::from_millis(10)).await;
    }
    for node in (1..=3).filter(|node| *node != leader) {
        let status = cluster.group(node).status().await;
        assert_eq!(status.replicas, []);
        assert_eq!((status.since_quorum, status.leader), (None, Some(leader)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_machine_that_dies_ends_the_node() {
    let mut cluster = Cluster::new(1);
    cluster.poison = Some(Bytes::from_static(b"poison"));
    cluster.start_node(1).await;
    cluster.leader().await;
    let proposal = cluster.group(1).propose(Bytes::from_static(b"poison"));
    let outcome = timeout(PATIENCE, proposal.await.unwrap().result()).await;
    assert!(
        matches!(outcome, Ok(Err(ProposeError::Unknown(_)))),
        "{outcome:?}"
    );
    let fatal = cluster.nodes[&1].fatal.clone();
    eventually("the node says its last words", || {
        fatal.lock().unwrap().is_some()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_stopped_says_no_last_words() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let fatal = cluster.nodes[&leader].fatal.clone();
    let group = cluster.group(leader).clone();
    cluster.stop_node(leader).await;
    assert_eq!(*fatal.lock().unwrap(), None);
    assert_eq!(group.gate(), Err(Refusal::Stopping));
    let refused = group.propose(Bytes::from_static(b"x")).await.map(|_| ());
    assert_eq!(refused, Err(ProposeError::Refused(Refusal::Stopping)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_and_an_oversized_entry_too() {
    let mut cluster = Cluster::new(1);
    let mut config = cluster.config(1);
    config.disk_reserve = u64::MAX;
    cluster.set_free(1, 1 << 40);
    cluster.start_node_with(1, config).await;
    let view = cluster.group(1).view();
    eventually("it leads", || view.borrow().ready).await;
    let gate = cluster.group(1).gate();
    assert!(matches!(gate, Err(Refusal::DiskFull { .. })), "{gate:?}");
    assert!(cluster.group(1).lease_read().is_ok(), "reads go on");
    cluster.stop_node(1).await;

    cluster.start_node(1).await;
    cluster.leader().await;
    let payload = Bytes::from(vec![0; quorumlog_raft::group::MAX_PAYLOAD_BYTES + 1]);
    let refused = cluster.group(1).propose(payload).await.map(|_| ());
    assert!(
        matches!(
            refused,
            Err(ProposeError::Refused(Refusal::TooLarge { .. }))
        ),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_megabytes_reach_every_node() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    for number in 0..6u8 {
        cluster
            .write(leader, &vec![number; (4 << 20) - 100])
            .await
            .unwrap();
    }
    cluster.all_applied(6).await;
    cluster.assert_all_the_same();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_starts_later_joins_without_disturbing() {
    let mut cluster = Cluster::new(3);
    cluster.start_two_of_three().await;
    let leader = cluster.leader().await;
    cluster.write(leader, b"early").await.unwrap();
    let term = cluster.group(leader).view().borrow().term;
    cluster.start_node(3).await;
    cluster.all_applied(1).await;
    cluster.write(leader, b"late").await.unwrap();
    cluster.all_applied(2).await;
    cluster.assert_all_the_same();
    assert_eq!(cluster.group(leader).view().borrow().term, term);
    let view = cluster.group(3).view();
    eventually("the late node is ready", || view.borrow().ready).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_directory_was_emptied_is_filled_again_by_the_same_leader() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    for number in 0..50u8 {
        cluster.write(leader, &[number]).await.unwrap();
    }
    cluster.all_applied(50).await;
    let term = cluster.group(leader).view().borrow().term;
    let emptied = leader % 3 + 1;
    cluster.stop_node(emptied).await;
    std::fs::remove_dir_all(cluster.config(emptied).dir).unwrap();
    cluster.start_node(emptied).await;
    cluster.all_applied(50).await;
    cluster.write(leader, b"after").await.unwrap();
    cluster.all_applied(51).await;
    cluster.assert_all_the_same();
    assert_eq!(cluster.group(leader).view().borrow().term, term);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_restarts_still_honours_the_lease_it_had_confirmed() {
    let mut cluster = Cluster::new(3);
    let timers = Timers {
        heartbeat: Duration::from_millis(50),
        election_min: Duration::from_millis(300),
        election_max: Duration::from_millis(3000),
    };
    let config = |cluster: &Cluster, node| quorumlog_raft::GroupConfig {
        timers,
        ..cluster.config(node)
    };
    for node in 1..=3 {
        let config = config(&cluster, node);
        cluster.start_node_with(node, config).await;
    }
    let leader = cluster.leader().await;
    cluster.write(leader, b"before").await.unwrap();
    cluster.all_applied(1).await;
    let (restarted, rival) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.cuts.cut_one_way(leader, rival);
    cluster.cuts.cut_one_way(rival, leader);
    // The rival's own promise to the leader runs out; only the other follower's keeps the leader safe.
    sleep(2 * timers.election_max).await;
    assert!(cluster.group(leader).lease_read().is_ok());
    cluster.stop_node(restarted).await;
    cluster.cuts.isolate(leader);
    let restart = config(&cluster, restarted);
    cluster.start_node_with(restarted, restart).await;
    eventually("the rival or the restarted node leads", || {
        [restarted, rival]
            .iter()
            .any(|node| cluster.role(*node) == Role::Leader)
    })
    .await;
    assert!(
        cluster.group(leader).lease_read().is_err(),
        "another node leads while the old leader may still answer reads"
    );
}
