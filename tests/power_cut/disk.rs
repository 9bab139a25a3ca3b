//! A disk whose power can be cut: XFS on a loop device, shut down without flushing its journal. What was
//! not synced is lost, as a machine that loses power loses it. Needs root.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// XFS refuses to be made smaller than 300 MiB; the image is sparse.
const IMAGE_BYTES: u64 = 640 * 1024 * 1024;

/// One mounted file system. Unmounted when dropped.
pub struct Disk {
    image: PathBuf,
    mount: PathBuf,
}

impl Disk {
    /// Makes an image below `dir` and mounts it at `dir/NAME`.
    pub fn create(dir: &Path, name: &str) -> Disk {
        let disk = Disk {
            image: dir.join(format!("{name}.img")),
            mount: dir.join(name),
        };
        let file = std::fs::File::create(&disk.image).expect("an image file");
        file.set_len(IMAGE_BYTES).expect("room for a sparse image");
        std::fs::create_dir_all(&disk.mount).expect("a mount point");
        run(Command::new("mkfs.xfs").arg("-q").arg(&disk.image));
        disk.mount();
        disk
    }

    pub fn path(&self) -> &Path {
        &self.mount
    }

    fn mount(&self) {
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&self.image)
            .arg(&self.mount));
    }

    /// From here on nothing reaches the disk, not even its journal; every later write and sync fails.
    pub fn cut(&self) {
        run(Command::new("xfs_io")
            .args(["-x", "-c", "shutdown"])
            .arg(&self.mount));
    }

    /// Power is back: the file system recovers from what had reached the disk. No process may have files
    /// open here.
    pub fn power_on(&self) {
        run(Command::new("umount").arg(&self.mount));
        self.mount();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A test that failed may leave it busy or unmounted; the lazy form covers both well enough.
        let _ended = Command::new("umount").arg("-l").arg(&self.mount).output();
    }
}

fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
