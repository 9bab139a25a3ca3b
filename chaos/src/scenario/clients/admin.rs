//! R8: administration that would change files or reveal them, names that are paths, and peers that are none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::peer_port::{self, Answer};
use super::probe::Probe;
use crate::rig::usage;
use crate::scenario::{Run, Stop};
use crate::wire::{
    Connection, Consumer, Frame, Message, SendOptions, SendOutcome, Topic, WireError, code,
};

/// Where the commands would have the node write.
const TARGET: &str = "outside";

pub async fn malicious_commands(run: &mut Run) -> Result<(), Stop> {
    run.start(run.setup()).await?;
    let leader = run.rig()?.leader().await?;
    let probe = Probe::start(run, leader).await?;
    let target = run.dir.join(TARGET);
    std::fs::create_dir_all(&target).map_err(|error| Stop::Invalid(error.to_string()))?;
    let outside = Outside::of(run)?;

    run.fault("malicious-commands", &[]);
    let mut refused = 0;
    let broker = run.rig()?.connect(leader).await?;
    refused += commands(run, &broker, "broker", &target).await;
    let name_server = run.rig()?.connect_name_server(leader).await?;
    refused += commands(run, &name_server, "name server", &target).await;
    refused += paths_as_names(run, &broker, &target).await?;
    refused += deletions(run, &broker).await;
    run.figure("commands refused", refused as f64);
    strangers(run, leader).await?;
    run.fault_over("malicious-commands");

    outside.is_unchanged(run, leader)?;
    probe.goes_on("after the commands").await?;
    probe.end(run).await
}

/// Codes of RocketMQ's administration that must not be carried out for everybody, with what they do there.
const COMMANDS: &[(i32, &str)] = &[
    (21, "get all topic configurations"),
    (25, "update the broker's configuration"),
    (26, "get the broker's configuration"),
    (43, "get all consumer offsets"),
    (45, "get all delay offsets"),
    (100, "put a name server's key"),
    (101, "get a name server's key"),
    (103, "register a broker"),
    (104, "unregister a broker"),
    (200, "update a subscription group"),
    (201, "get all subscription groups"),
    (205, "wipe a broker's write permission"),
    (207, "delete a subscription group"),
    (220, "reset a client's offsets"),
    (222, "invoke a reset of offsets"),
    (306, "clean expired queues"),
    (316, "clean unused topics"),
    (318, "update the name server's configuration"),
    (319, "get the name server's configuration"),
    (329, "delete expired log files"),
    (901, "notify of a new minimum broker id"),
    (1001, "controller: alter the in-sync set"),
    (1002, "controller: elect a master"),
    (1003, "controller: register a broker"),
    (1009, "controller: update its configuration"),
    (1010, "controller: get its configuration"),
    (1011, "controller: clean a broker's data"),
    (2003, "membership: append"),
    (2010, "membership: transfer the lead"),
    (3001, "create a user"),
    (3006, "create an access rule"),
];

/// Sends each with everything that its victims were told to act on. Returns the refusals.
async fn commands(run: &mut Run, to: &Connection, door: &str, target: &Path) -> usize {
    let path = target.join("written").display().to_string();
    let body = format!(
        "rocketmqHome={path}\nfilterServerNums=5\nbrokerConfigPath={path}\nconfigStorePath={path}\n\
         kvConfigPath={path}\nstorePathRootDir={path}\nbrokerName=;touch {path};\n"
    );
    let mut refused = 0;
    for (request, what) in COMMANDS {
        let frame = Frame::request(*request)
            .with("configPath", &path)
            .with("namespace", "../..")
            .with("key", &path)
            .with("value", &path)
            .with("group", "g")
            .with("topic", "neighbour")
            .with("brokerName", "broker-a")
            .with_body(body.clone());
        let answer = to.request(frame).await;
        let is_refusal = match &answer {
            Ok(reply) => [code::NOT_SUPPORTED, code::NO_PERMISSION].contains(&reply.code),
            Err(_) => false,
        };
        let silent_about_files = answer.as_ref().is_ok_and(|reply| {
            let told = String::from_utf8_lossy(&reply.body).into_owned() + reply.remark_text();
            !told.contains("storePath") && !told.contains(&*run.dir.to_string_lossy())
        });
        run.require(is_refusal && silent_about_files, || {
            format!("{door}: {request} ({what}) was answered with {answer:?}")
        });
        refused += usize::from(is_refusal);
    }
    refused
}

/// Topics, groups and keys that are paths: no name of a client may become a file's.
async fn paths_as_names(run: &mut Run, to: &Connection, target: &Path) -> Result<usize, Stop> {
    let absolute = target.join("written").display().to_string();
    let names = [
        "../../../../tmp/written",
        "..",
        "a/b",
        "/etc/passwd",
        "a\0b",
        &absolute,
    ];
    let mut refused = 0;
    for name in names {
        let created = to.create_topic(&Topic::new(name, 1)).await;
        let message = Message::new(name, 0, "k", &b"x"[..]);
        let sent = to.send(&message, &SendOptions::default()).await;
        // Both name the topic alone; a group of the same name is asked for below.
        let both = matches!(created, Err(WireError::Code { .. }))
            && matches!(
                sent,
                SendOutcome::Fail { .. } | SendOutcome::Info { code: Some(_), .. }
            );
        run.require(both, || {
            format!("topic {name:?}: created {created:?}, sent {sent:?}")
        });
        refused += 2 * usize::from(both);
        // A member of such a group may be listed, as RocketMQ does; the tree of files says whether it matters.
        let _answer = to
            .heartbeat("evil", &[name], &[Consumer::new(name, "neighbour", "*", 1)])
            .await;
        let _answer = to.commit_offset(name, "neighbour", 0, 1).await;
    }
    // A key of a message is free text; it must stay text.
    let message =
        Message::new("neighbour", 0, &absolute, &b"x"[..]).with_property("KEYS", &absolute);
    let sent = to.send(&message, &SendOptions::default()).await;
    run.require(
        !matches!(sent, SendOutcome::Info { code: None, .. }),
        || format!("a message with a path for a key: {sent:?}"),
    );
    Ok(refused)
}

/// The system's own topics cannot be deleted or overwritten.
async fn deletions(run: &mut Run, to: &Connection) -> usize {
    let mut refused = 0;
    for name in [
        "SCHEDULE_TOPIC_XXXX",
        "TBW102",
        "DefaultCluster",
        "broker-a",
        "OFFSET_MOVED_EVENT",
        "",
    ] {
        let deleted = to.delete_topic(name).await;
        let created = to.create_topic(&Topic::new(name, 1)).await;
        let both = [&deleted, &created]
            .iter()
            .all(|answer| matches!(answer, Err(WireError::Code { .. })));
        run.require(both, || {
            format!("{name:?}: deleted {deleted:?}, created {created:?}")
        });
        refused += 2 * usize::from(both);
    }
    refused
}

/// Nobody but a member gets anything from the port between the nodes.
async fn strangers(run: &mut Run, leader: usize) -> Result<(), Stop> {
    let mut refused = 0;
    for at in 0..run.rig()?.len() {
        let (to, id) = (run.rig()?.peer_address(at), at as u64 + 1);
        for call in peer_port::of_strangers(id, &mut run.rng) {
            let answer = peer_port::call(to, &call.bytes).await;
            let is_refusal = answer.as_ref().is_ok_and(Answer::is_refusal);
            run.require(is_refusal, || {
                format!("peer port {at}: {}: {answer:?}", call.what)
            });
            refused += usize::from(is_refusal);
        }
    }
    run.figure("calls of strangers refused", refused as f64);
    // That a member's greeting is let in shows that the refusals above were about the caller.
    let (from, to) = ((leader + 1) % 3 + 1, leader + 1);
    let greeting = peer_port::of_member(from as u64, to as u64);
    let answer = peer_port::call(run.rig()?.peer_address(leader), &greeting).await;
    match answer {
        Ok(Answer::Welcome) => Ok(()),
        other => Err(Stop::Invalid(format!("a member's greeting: {other:?}"))),
    }
}

/// Everything that is not the nodes' own: the files of the run, what the node has open, what it started.
struct Outside {
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Outside {
    fn of(run: &mut Run) -> Result<Outside, Stop> {
        Ok(Outside {
            files: files_of(run)?,
        })
    }

    fn is_unchanged(&self, run: &mut Run, leader: usize) -> Result<(), Stop> {
        let now = files_of(run)?;
        run.figure(
            "files outside the data directories compared",
            now.len() as f64,
        );
        run.require(now == self.files, || {
            let names: Vec<_> = now.keys().collect();
            format!("files outside the data directories changed: {names:?}")
        });
        let (pid, store, log) = {
            let dir = run.dir.clone();
            let rig = run.rig()?;
            let log = dir.join(format!("{}.log", rig.name(leader)));
            (rig.pid(leader)?, rig.store(leader).to_owned(), log)
        };
        let foreign: Vec<PathBuf> = usage::open_files(pid)?
            .into_iter()
            .filter(|file| !file.starts_with(&store) && *file != log)
            .collect();
        run.require(foreign.is_empty(), || {
            format!("the node has open {foreign:?}")
        });
        let children = usage::children(pid)?;
        run.require(children.is_empty(), || {
            format!("the node has started {children:?}")
        });
        Ok(())
    }
}

/// Files of the run's directory and of the program's working directory that belong to no node, with their
/// content. The history and the nodes' logs grow by themselves.
fn files_of(run: &mut Run) -> Result<BTreeMap<PathBuf, Vec<u8>>, Stop> {
    let dir = run.dir.clone();
    let rig = run.rig()?;
    let mut own: Vec<PathBuf> = (0..rig.len()).map(|at| rig.store(at).to_owned()).collect();
    own.extend((0..rig.len()).map(|at| dir.join(format!("{}.log", rig.name(at)))));
    own.push(dir.join("history.jsonl"));
    let mut files = BTreeMap::new();
    let mut open = vec![dir];
    while let Some(dir) = open.pop() {
        let failed = |error: std::io::Error| Stop::Invalid(format!("{}: {error}", dir.display()));
        files.insert(dir.clone(), Vec::new());
        for entry in std::fs::read_dir(&dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if own.contains(&path) {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                let content = std::fs::read(&path).map_err(failed)?;
                files.insert(path, content);
            }
        }
    }
    Ok(files)
}
