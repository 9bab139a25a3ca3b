//! Where a node's lines go, when nothing can take them.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::common::ports;

const SERVES_WITHIN: Duration = Duration::from_secs(20);

/// A log file on a full disk must not end the node: it has writes to refuse and reads to serve.
#[tokio::test]
async fn a_node_serves_though_its_output_cannot_be_written() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let port = ports::block();
    let conf = dir.path().join("broker.conf");
    let store = dir.path().join("store");
    // The unknown key makes a warning before the doors open.
    let text = format!(
        "brokerName=b\nbrokerIP1=127.0.0.1\nlistenPort={port}\nnamesrvListenPort={}\n\
         storePathRootDir={}\nunknownKey=1\n",
        port + 2,
        store.display()
    );
    std::fs::write(&conf, text).expect("the configuration");
    let full = || {
        let full = OpenOptions::new().write(true).open("/dev/full");
        full.expect("a file that is always full")
    };
    let mut process = Command::new(env!("CARGO_BIN_EXE_quorumlog"))
        .arg("serve")
        .arg("-c")
        .arg(&conf)
        .stdin(Stdio::null())
        .stdout(full())
        .stderr(full())
        .spawn()
        .expect("the server's binary");
    let begun = Instant::now();
    let mut serves = false;
    let mut ended = None;
    while !serves && ended.is_none() && begun.elapsed() < SERVES_WITHIN {
        sleep(Duration::from_millis(20)).await;
        serves =
            store.join("vote").exists() && TcpStream::connect(("127.0.0.1", port)).await.is_ok();
        ended = process.try_wait().expect("the node's state");
    }
    // The line that says where it serves comes after the doors are open: it must have survived that as well.
    if ended.is_none() {
        sleep(Duration::from_millis(500)).await;
        ended = process.try_wait().expect("the node's state");
    }
    let _ = process.kill();
    let _ = process.wait();
    assert_eq!(ended, None, "the node ended");
    assert!(serves, "the node does not serve");
}
