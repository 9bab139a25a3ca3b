//! Keys that decide what an acknowledgement means. A value that asks for more than this version gives is
//! an error; one that asks for less, or for the same, is a warning. Nothing is weakened in silence.

use super::ConfigError;
use super::read::Source;

/// Where the keys are read: alone, or in a Raft group of so many voters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Single,
    Group { voters: usize },
}

impl Shape {
    /// Copies that every acknowledged message has, this node's included.
    fn copies(self) -> usize {
        match self {
            Shape::Single => 1,
            Shape::Group { voters } => voters / 2 + 1,
        }
    }
}

/// Weighs all of the keys; pushes warnings, or fails at the first that cannot be kept.
pub(super) fn check(
    source: &Source<'_>,
    shape: Shape,
    warnings: &mut Vec<String>,
) -> Result<(), ConfigError> {
    role(source, shape, warnings)?;
    for key in ["inSyncReplicas", "minInSyncReplicas", "totalReplicas"] {
        replicas(source, shape, key, warnings)?;
    }
    for (key, why, fix) in REFUSED {
        if source.boolean(key)? == Some(true) {
            return Err(source.error(key, &format!("{key}=true: {why}"), fix));
        }
        if source.value(key).is_some() {
            warnings.push(source.warn(key, "has no effect: this version has no such mode"));
        }
    }
    if source.boolean("enableAutoInSyncReplicas")? == Some(true) {
        let text =
            "has no effect: an acknowledgement always means a majority, it is never downgraded";
        warnings.push(source.warn("enableAutoInSyncReplicas", text));
    }
    if source.boolean("enableSlaveActingMaster")? == Some(true) {
        let text = "has no effect: a majority elects a new leader, no slave acts for it";
        warnings.push(source.warn("enableSlaveActingMaster", text));
    }
    Ok(())
}

/// Keys that must not be `true`, why, and what to do.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "enableControllerMode",
        "controller mode is not built yet",
        "Remove the key and form a group with enableDLegerCommitLog=true",
    ),
    (
        "allAckInSyncStateSet",
        "waiting for all in-sync replicas is not built yet, an acknowledgement means a majority",
        "Remove the key if a majority is enough",
    ),
    (
        "enableElectUncleanMaster",
        "a replica without all acknowledged messages never leads here",
        "Remove the key",
    ),
    (
        "duplicationEnable",
        "copying a broker without acknowledgement is not built",
        "Remove the key",
    ),
    (
        "asyncLearner",
        "learners are not built yet",
        "Remove the key, or list the node in dLegerPeers as a voter",
    ),
    (
        "aclEnable",
        "access control is not built yet, the port would be open to everyone",
        "Remove the key, and let only trusted clients reach the port",
    ),
    (
        "authenticationEnabled",
        "access control is not built yet, the port would be open to everyone",
        "Remove the key, and let only trusted clients reach the port",
    ),
    (
        "authorizationEnabled",
        "access control is not built yet, the port would be open to everyone",
        "Remove the key, and let only trusted clients reach the port",
    ),
    (
        "enableStoreEncryption",
        "encryption of the files is not built",
        "Remove the key, or keep storePathRootDir on an encrypted file system",
    ),
];

fn role(source: &Source<'_>, shape: Shape, warnings: &mut Vec<String>) -> Result<(), ConfigError> {
    let Some(value) = source.value("brokerRole") else {
        return Ok(());
    };
    let text = match (shape, value) {
        (Shape::Group { .. }, "ASYNC_MASTER" | "SYNC_MASTER" | "SLAVE") => {
            "has no effect: the group elects its leader, and an acknowledged message is on a majority"
        }
        (Shape::Single, "ASYNC_MASTER") => {
            "has no effect: a single broker acknowledges what is durable on this node"
        }
        (Shape::Single, "SYNC_MASTER") => {
            return Err(source.error(
                "brokerRole",
                "brokerRole=SYNC_MASTER asks for a copy on a slave, which a single broker does not make",
                "Form a group with enableDLegerCommitLog=true, or say brokerRole=ASYNC_MASTER",
            ));
        }
        (Shape::Single, "SLAVE") => {
            return Err(source.error(
                "brokerRole",
                "brokerRole=SLAVE: a slave of a classic pair is not built yet",
                "Make the node a member of a group: enableDLegerCommitLog=true, dLegerGroup, dLegerPeers, dLegerSelfId",
            ));
        }
        (_, other) => {
            return Err(source.error(
                "brokerRole",
                &format!("brokerRole={other} is no role"),
                "Remove the key, or say ASYNC_MASTER",
            ));
        }
    };
    warnings.push(source.warn("brokerRole", text));
    Ok(())
}

fn replicas(
    source: &Source<'_>,
    shape: Shape,
    key: &'static str,
    warnings: &mut Vec<String>,
) -> Result<(), ConfigError> {
    let Some(wanted) = source.number(key, 1, 255)? else {
        return Ok(());
    };
    let have = match (key, shape) {
        // How many replicas there are, not how many must have a message.
        ("totalReplicas", Shape::Group { voters }) => voters,
        _ => shape.copies(),
    };
    if wanted as usize > have {
        let problem = format!(
            "{key}={wanted}, but here an acknowledged message is on {} of {} nodes",
            shape.copies(),
            match shape {
                Shape::Single => 1,
                Shape::Group { voters } => voters,
            }
        );
        let fix = match shape {
            Shape::Single => "Form a group with enableDLegerCommitLog=true, or remove the key",
            Shape::Group { .. } => {
                "Remove the key if a majority is enough, or add voters to dLegerPeers"
            }
        };
        return Err(source.error(key, &problem, fix));
    }
    let text = format!(
        "has no effect: an acknowledged message is on {} nodes anyway",
        shape.copies()
    );
    warnings.push(source.warn(key, &text));
    Ok(())
}
