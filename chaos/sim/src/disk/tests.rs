//! What a crash, a power loss and a failed sync leave.

use quorumlog_raft::env::{Files, LogFile};

use super::*;

fn file(disk: &Disk, name: &str) -> Arc<dyn LogFile> {
    disk.open(Path::new(name), true).unwrap()
}

#[test]
fn a_crash_loses_nothing_and_a_power_loss_what_was_not_synced() {
    let path = Path::new("/d/f");
    for seed in 0..50 {
        let disk = Disk::new(seed, 0);
        let written = file(&disk, "/d/f");
        written.write_all_at(&[b"synced"], 0).unwrap();
        written.sync_data().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        written.write_all_at(&[b"not yet"], 6).unwrap();
        assert_eq!(disk.durable(path, 0, 6).unwrap(), b"synced");
        assert_eq!(disk.durable(path, 0, 13), None);
        disk.crash();
        assert!(written.sync_data().is_err(), "a handle of the dead process");
        assert_eq!(disk.bytes(path, 0, 13).unwrap(), b"syncednot yet");
        disk.lose_power();
        assert_eq!(disk.bytes(path, 0, 6).unwrap(), b"synced");
    }
}

#[test]
fn a_name_is_lost_without_a_sync_of_its_directory() {
    let lost = (0..50).any(|seed| {
        let disk = Disk::new(seed, 0);
        file(&disk, "/d/f").sync_data().unwrap();
        disk.lose_power();
        !disk.exists(Path::new("/d/f")).unwrap()
    });
    assert!(lost);
}

#[test]
fn the_pages_of_a_failed_sync_are_never_written() {
    let disk = Disk::new(1, 0);
    let written = file(&disk, "/d/f");
    disk.sync_dir(Path::new("/d")).unwrap();
    written.write_all_at(&[b"lost"], 0).unwrap();
    disk.fail_after(Op::Sync, 0);
    assert!(written.sync_data().is_err());
    written.sync_data().unwrap();
    assert_eq!(disk.failed(), 1);
    assert_eq!(disk.bytes(Path::new("/d/f"), 0, 4).unwrap(), b"lost");
    disk.lose_power();
    assert_eq!(disk.bytes(Path::new("/d/f"), 0, 4), None);
}

#[test]
fn the_power_goes_between_two_operations() {
    let disk = Disk::new(1, 0);
    let written = file(&disk, "/d/f");
    disk.cut_after(1);
    written.write_all_at(&[b"x"], 0).unwrap();
    assert!(!disk.is_off());
    assert!(written.sync_data().is_err());
    assert!(disk.is_off());
}

#[test]
fn the_segment_that_covers_a_position_is_found_by_its_name() {
    let disk = Disk::new(1, 0);
    for name in [
        "/d/log/000.seg",
        "/d/log/050.seg",
        "/d/log/050.idx",
        "/d/other",
    ] {
        file(&disk, name);
    }
    let dir = Path::new("/d/log");
    let find = |name| disk.last_up_to(dir, name, false);
    assert_eq!(find("049.seg").as_deref(), Some("000.seg"));
    assert_eq!(find("050.seg").as_deref(), Some("050.seg"));
    assert_eq!(find("999.seg").as_deref(), Some("050.seg"));
    assert_eq!(disk.last_up_to(dir, "999.seg", true), None);
}
