//! Peers and name servers that are not what they should be: strangers at the peer port, damaged frames, routes
//! that are old (N12 to N14).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::context::{PATIENCE, Run, TOPIC};
use super::kill::RECOVERS_WITHIN;
use super::partition::{cut, mend};
use super::{Floor, Scenario, Stop, Tier};
use crate::rig::doctor::Facility;
use crate::rig::greeting::{Answer, Greeting, frame, say};
use crate::rig::proxy::Proxy;
use crate::rig::switch::isolated;
use crate::rig::{BROKER, Placement, View};
use crate::wire::SendOutcome;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "strangers",
        rows: &["N12"],
        about: "A peer of another group, another format, another node's name, or with a damaged greeting is turned away; a welcomed one that talks nonsense is cut off; no entry of theirs is taken",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(300, 8),
        run: |run| Box::pin(strangers(run)),
    },
    Scenario {
        name: "other-groups-node",
        rows: &["N12"],
        about: "A node of another group at a member's address is not taken for the member, takes no log, and disturbs nobody",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(300, 1),
        run: |run| Box::pin(other_groups_node(run)),
    },
    Scenario {
        name: "flipped-bits",
        rows: &["N13"],
        about: "A single bit flipped between two nodes ends the connection, and nothing damaged is taken",
        needs: &[],
        placement: Placement::Loopback,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(300, 10),
        run: |run| Box::pin(flipped_bits(run)),
    },
    Scenario {
        name: "old-routes",
        rows: &["N14"],
        about: "Producers go on without their name server; a send to where the leader was is passed on or refused; all name servers come to name the one leader",
        needs: &[Facility::SwitchRules],
        placement: Placement::Namespaces,
        nodes: 3,
        tier: Tier::Nightly,
        floor: Floor::of(300, 2).with_leader_changes(2),
        run: |run| Box::pin(old_routes(run)),
    },
];

/// How long a route may name a leader that is none any more.
const ROUTES_AGREE_WITHIN: Duration = Duration::from_secs(10);
/// A connection that was damaged or talked nonsense has ended by then.
const CUT_OFF_WITHIN: Duration = Duration::from_secs(10);

async fn strangers(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    let nodes = run.rig()?.len();
    for at in 0..nodes {
        let to = run.rig()?.peer_address(at);
        for (what, bytes) in turned_away(at) {
            run.fault("stranger", &[("what", what), ("node", &format!("n{at}"))]);
            let (answer, _) = say(to, &bytes).await;
            let rejected = matches!(&answer, Answer::Reject(why) if !why.is_empty());
            let expected = match what {
                "damaged" | "no peer" => answer == Answer::Closed,
                _ => rejected,
            };
            run.require(expected, || {
                format!("n{at} answered a stranger ({what}) with {answer:?}")
            });
            run.fault_over("stranger");
        }
        nonsense(run, at, to).await?;
        run.progress(20, RECOVERS_WITHIN).await?;
    }
    Ok(())
}

/// Greetings that must not be welcomed by node `at`, whose id is `at + 1`.
fn turned_away(at: usize) -> Vec<(&'static str, Vec<u8>)> {
    let right = right_greeting(at);
    let changed = |change: fn(&mut Greeting)| {
        let mut greeting = right.clone();
        change(&mut greeting);
        greeting.frame()
    };
    let mut damaged = right.frame();
    if let Some(last) = damaged.last_mut() {
        *last ^= 1;
    }
    vec![
        (
            "other group",
            changed(|hello| hello.group = "another".to_owned()),
        ),
        ("other version", changed(|hello| hello.version += 1)),
        ("other node", changed(|hello| hello.to = hello.to % 3 + 1)),
        ("unknown node", changed(|hello| hello.from = 9)),
        ("itself", changed(|hello| hello.from = hello.to)),
        ("damaged", damaged),
        (
            "no peer",
            b"GET / HTTP/1.1\r\nHost: broker\r\nAccept: */*\r\n\r\n".to_vec(),
        ),
    ]
}

/// A greeting of another member, from a start long ago.
fn right_greeting(at: usize) -> Greeting {
    let id = at as u64 + 1;
    Greeting {
        version: 1,
        group: BROKER.to_owned(),
        from: id % 3 + 1,
        to: id,
        incarnation: 1,
    }
}

/// One that knows the right words comes in, in the place of a member that is there. Then it says nothing that
/// can be understood.
async fn nonsense(run: &mut Run, at: usize, to: SocketAddr) -> Result<(), Stop> {
    run.fault(
        "stranger",
        &[("what", "nonsense"), ("node", &format!("n{at}"))],
    );
    let (answer, stream) = say(to, &right_greeting(at).frame()).await;
    let Some(mut stream) = stream else {
        run.require(false, || {
            format!("n{at} answered a member's greeting with {answer:?}")
        });
        return Ok(());
    };
    let mut body = [0; 200];
    run.rng.fill(&mut body);
    // Appended entries, as far as the frame tells.
    let sent = stream.write_all(&frame(21, &body)).await;
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(CUT_OFF_WITHIN, stream.read_to_end(&mut rest)).await;
    run.require(sent.is_err() || closed.is_ok(), || {
        format!("n{at} keeps a peer that talks nonsense")
    });
    run.fault_over("stranger");
    Ok(())
}

async fn other_groups_node(run: &mut Run) -> Result<(), Stop> {
    let setup = run.calm_setup();
    run.start_loaded_with(setup, 200).await?;
    let leader = run.rig()?.leader().await?;
    let victim = (leader + 1) % 3;
    let conf = run.rig()?.configuration(victim).to_owned();
    let dir = run.dir.join("foreign");
    let io = |source| {
        Stop::Rig(crate::rig::RigError::Io {
            what: conf.display().to_string(),
            source,
        })
    };
    let own = std::fs::read_to_string(&conf).map_err(io)?;
    let foreign: Vec<String> = own
        .lines()
        .map(|line| match line.split_once('=') {
            Some((key @ ("dLegerGroup" | "brokerName"), _)) => format!("{key}=foreign"),
            Some((key @ "storePathRootDir", _)) => format!("{key}={}", dir.display()),
            _ => line.to_owned(),
        })
        .collect();
    run.rig()?.kill(&[victim])?;
    std::fs::write(&conf, foreign.join("\n")).map_err(io)?;
    run.fault("foreign-node", &[("node", &format!("n{victim}"))]);
    run.rig()?.spawn(victim)?;
    run.progress(100, PATIENCE).await?;
    run.sleep(Duration::from_secs(4)).await;
    let view = View::of(run.rig()?.address(victim), Duration::from_secs(2)).await;
    run.rig()?.kill(&[victim])?;
    std::fs::write(&conf, own).map_err(io)?;
    match view {
        Ok(view) => run.require(!view.leads && view.applied.unwrap_or(0) == 0, || {
            format!("a node of another group joined this one: {view:?}")
        }),
        Err(error) => run.fault_indeterminate("foreign-node", &error.to_string()),
    }
    run.rig()?.restart_dead().await?;
    run.fault_over("foreign-node");
    let now = run.rig()?.leader().await?;
    run.require(now == leader, || {
        format!("the leadership moved from n{leader} to n{now}")
    });
    run.progress(50, PATIENCE).await
}

async fn flipped_bits(run: &mut Run) -> Result<(), Stop> {
    let (mut proxies, mut setup) = (Vec::new(), run.setup());
    let nodes = run.site.nodes();
    let real = |at: usize| SocketAddr::new(run.site.address(at), run.site.first_port(at) + 4);
    let proxied = |at: usize| SocketAddr::new(run.site.address(at), run.site.first_port(at) + 5);
    for at in 0..nodes {
        proxies.push(Proxy::start(proxied(at), real(at), run.seed + at as u64).await?);
        let peers: Vec<String> = (0..nodes)
            .map(|other| match other == at {
                true => format!("n{other}-{}", real(other)),
                false => format!("n{other}-{}", proxied(other)),
            })
            .collect();
        let line = ("dLegerPeers".to_owned(), peers.join(";"));
        setup.overrides_of.push(vec![line]);
    }
    run.start(setup).await?;
    let load = run.producers()?;
    run.begin(&load);
    run.progress(100, PATIENCE).await?;
    for _ in 0..12 {
        let proxy = &proxies[run.rng.below(nodes)];
        let (flipped, connections) = (proxy.flipped(), proxy.connections());
        proxy.flip_once();
        let begun = Instant::now();
        while proxy.flipped() == flipped && begun.elapsed() < Duration::from_secs(3) {
            run.sleep(Duration::from_millis(5)).await;
        }
        if proxy.flipped() == flipped {
            // Nothing large enough came by: the others send to the leader, which does not send to itself.
            proxy.disarm();
            run.fault_skipped("flip", "no large frame came by");
            continue;
        }
        run.fault("flip", &[]);
        let begun = Instant::now();
        while proxy.connections() == connections && begun.elapsed() < CUT_OFF_WITHIN {
            run.sleep(Duration::from_millis(5)).await;
        }
        run.require_in_time(proxy.connections() > connections, || {
            format!("a connection lived on for {CUT_OFF_WITHIN:?} after a flipped bit")
        });
        run.figure(
            "ms until a damaged connection was replaced",
            begun.elapsed().as_millis() as f64,
        );
        run.fault_over("flip");
        run.progress(20, RECOVERS_WITHIN).await?;
    }
    run.keep(proxies);
    Ok(())
}

async fn old_routes(run: &mut Run) -> Result<(), Stop> {
    run.start_loaded(200).await?;
    let first = run.rig()?.leader().await?;
    agree(run, &[0, 1, 2]).await?;
    run.fault("kill-leader", &[("node", &format!("n{first}"))]);
    run.rig()?.kill(&[first])?;
    // Its name server is gone with it; the producers keep the route they had.
    run.progress(100, RECOVERS_WITHIN).await?;
    let others = [(first + 1) % 3, (first + 2) % 3];
    agree(run, &others).await?;
    run.rig()?.restart_dead().await?;
    run.fault_over("kill-leader");
    agree(run, &[0, 1, 2]).await?;
    sends_by_the_old_route(run, first).await?;

    let second = run.rig()?.leader().await?;
    cut(
        run,
        "isolate-leader",
        &format!("n{second}"),
        &isolated(second, 3),
    )?;
    run.progress(100, RECOVERS_WITHIN).await?;
    let others = [(second + 1) % 3, (second + 2) % 3];
    agree(run, &others).await?;
    run.sleep(Duration::from_secs(2)).await;
    mend(run, "isolate-leader")?;
    run.rig()?.wait_serving().await?;
    agree(run, &[0, 1, 2]).await?;
    sends_by_the_old_route(run, second).await
}

/// Waits until the name servers of `nodes` name one leader, the one that leads.
async fn agree(run: &mut Run, nodes: &[usize]) -> Result<(), Stop> {
    let begun = Instant::now();
    loop {
        let leader = run.rig()?.leader().await?;
        let wanted: BTreeSet<String> = [run.rig()?.address(leader).to_string()].into();
        let mut named = BTreeSet::new();
        for at in nodes {
            named.insert(leader_by_route(run, *at).await);
        }
        if named == wanted {
            run.figure(
                "ms until the routes agreed",
                begun.elapsed().as_millis() as f64,
            );
            return Ok(());
        }
        if begun.elapsed() > ROUTES_AGREE_WITHIN {
            return Err(Stop::Violated(format!(
                "the name servers of {nodes:?} name {named:?} as leader, n{leader} leads at {wanted:?}"
            )));
        }
        run.sleep(Duration::from_millis(50)).await;
    }
}

/// The address of the leader in a node's route, or why there is none.
async fn leader_by_route(run: &mut Run, at: usize) -> String {
    let name_server = match run.rig() {
        Ok(rig) => rig.connect_name_server(at).await,
        Err(error) => return error.to_string(),
    };
    let route = match name_server {
        Ok(name_server) => name_server.route(TOPIC).await,
        Err(error) => return error.to_string(),
    };
    match route {
        Ok(route) => route
            .broker(BROKER)
            .and_then(|broker| broker.broker_addrs.get(&0).cloned())
            .unwrap_or_else(|| "nobody".to_owned()),
        Err(error) => error.to_string(),
    }
}

/// A client that still dials the old leader: what it sends is passed on, at the latest after a few tries, and
/// never answered by a code that does not say what became of it (the checker looks at that).
async fn sends_by_the_old_route(run: &mut Run, old: usize) -> Result<(), Stop> {
    let now = run.rig()?.leader().await?;
    if now == old {
        return Err(Stop::Invalid(format!("n{old} leads again")));
    }
    let mut client = run.probe(&format!("old-route-{old}-{}", run.recorder.now()), old)?;
    for number in 0..20 {
        let key = format!("old-route-{old}-{}-{number}", run.recorder.now());
        if let SendOutcome::Ok(_) = client.send(0, &key).await {
            return Ok(());
        }
        run.sleep(Duration::from_millis(50)).await;
    }
    run.require(false, || {
        format!("n{old} passed none of 20 sends on to the leader n{now}")
    });
    Ok(())
}
