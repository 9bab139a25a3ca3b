//! What the disk does to files. Needs root and loop devices, so they are run on demand:
//! `cargo test -p quorumlog-chaos rig::disk -- --ignored`.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::*;

fn synced(path: &Path, bytes: &[u8]) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
    File::open(path.parent().unwrap())
        .and_then(|dir| dir.sync_all())
        .unwrap();
    file
}

#[test]
#[ignore = "needs root and loop devices"]
fn a_power_cut_keeps_what_was_synced_and_loses_what_was_not() {
    for kind in [Kind::Xfs, Kind::Ext4] {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::create(dir.path(), "n0", kind).unwrap();
        let path = disk.path().join("file");
        let file = synced(&path, b"synced");
        file.write_all_at(b"SYNCED but not this", 0).unwrap();
        disk.cut().unwrap();
        assert!(file.sync_data().is_err(), "{kind:?}");
        drop(file);
        disk.power_on().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"synced", "{kind:?}");
    }
}

#[test]
#[ignore = "needs root and loop devices"]
fn writes_wait_while_the_disk_is_frozen() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::create(dir.path(), "n0", Kind::Xfs).unwrap();
    let file = synced(&disk.path().join("file"), b"before");
    let frozen = disk.freeze().unwrap();
    let begun = Instant::now();
    let writer = std::thread::spawn(move || {
        file.write_all_at(b"after!", 0).unwrap();
        file.sync_data().unwrap();
        begun.elapsed()
    });
    std::thread::sleep(Duration::from_millis(400));
    assert!(!writer.is_finished());
    frozen.thaw().unwrap();
    assert!(writer.join().unwrap() >= Duration::from_millis(400));
}

#[test]
#[ignore = "needs root and loop devices"]
fn a_filled_disk_takes_nothing_and_an_emptied_one_does() {
    for kind in [Kind::Xfs, Kind::Ext4] {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::create(dir.path(), "n0", kind).unwrap();
        disk.fill(8 << 20).unwrap();
        let left = disk.free_bytes().unwrap();
        assert!((4 << 20..=9 << 20).contains(&left), "{kind:?}: {left} left");
        disk.fill(0).unwrap();
        let path = disk.path().join("file");
        let error = std::fs::write(&path, vec![1; 4 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{kind:?}");
        disk.empty().unwrap();
        std::fs::write(&path, vec![1; 4 << 20]).unwrap();
    }
}

#[test]
#[ignore = "needs root and loop devices"]
fn an_error_of_the_device_makes_the_disk_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::create(dir.path(), "n0", Kind::Ext4).unwrap();
    let file = synced(&disk.path().join("file"), b"before");
    disk.fail_read_only().unwrap();
    assert!(file.write_all_at(b"after!", 0).is_err() || file.sync_data().is_err());
    assert_eq!(std::fs::read(disk.path().join("file")).unwrap(), b"before");
}

#[test]
#[ignore = "needs root, loop devices and the blkio controller"]
fn a_limited_process_writes_slowly() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::create_direct(dir.path(), "n0", Kind::Xfs).unwrap();
    let out = format!("of={}", disk.path().join("file").display());
    let mut slow = std::process::Command::new("sh")
        .args([
            "-c",
            "sleep 0.5; exec dd \"$0\" if=/dev/zero bs=4k count=10 oflag=dsync",
        ])
        .arg(out)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let limited = disk.limit(slow.id(), 5, 1 << 20).unwrap();
    let begun = Instant::now();
    assert!(slow.wait().unwrap().success());
    assert!(
        begun.elapsed() >= Duration::from_millis(1500),
        "{:?}",
        begun.elapsed()
    );
    drop(limited);
}
