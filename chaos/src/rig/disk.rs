//! A node's own disk, and what can go wrong with it as a whole: power cut, standstill, full, read-only, slow.
//! A file system on a loop device over a sparse image; needs root. What is wrong inside files is `damage`'s,
//! failures of single system calls are `inject`'s, and the disk that lies about a sync is `liar`'s.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::{RigError, tool};

/// XFS refuses to be made smaller than 300 MiB; the image is sparse.
const IMAGE_BYTES: u64 = 640 << 20;
/// The file that takes the room away.
const BALLAST: &str = "ballast";
/// Limits of one run lie in a control group of that name and the run's process id.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup/blkio";

/// A temporary directory for the disks of one run. Its name has the run's process id, so that the disks of a
/// program that died can be found.
#[derive(Debug)]
pub struct DiskHome(tempfile::TempDir);

const HOME_PREFIX: &str = "quorumlog-disks-";

impl DiskHome {
    pub fn create() -> Result<DiskHome, RigError> {
        let prefix = format!("{HOME_PREFIX}{}-", std::process::id());
        let dir = tempfile::Builder::new().prefix(&prefix).tempdir();
        Ok(DiskHome(
            dir.map_err(RigError::io("a directory for disks"))?,
        ))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Unmounts and removes the disks of programs that are dead; returns the directories.
pub fn remove_leftover_disks() -> Result<Vec<String>, RigError> {
    let temporary = std::env::temp_dir();
    let entries = std::fs::read_dir(&temporary).map_err(failed(&temporary))?;
    let mut removed = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed(&temporary))?.path();
        if owner(&path).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            unmount_below(&path)?;
            std::fs::remove_dir_all(&path).map_err(failed(&path))?;
            removed.push(path.display().to_string());
        }
    }
    Ok(removed)
}

/// Process id in the name of a [`DiskHome`].
fn owner(path: &Path) -> Option<u32> {
    let rest = path.file_name()?.to_str()?.strip_prefix(HOME_PREFIX)?;
    rest.split('-').next()?.parse().ok()
}

fn unmount_below(dir: &Path) -> Result<(), RigError> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").map_err(failed(dir))?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    // A lying disk stands on another mount: the newest first.
    for point in points
        .rev()
        .filter(|point| Path::new(point).starts_with(dir))
    {
        tool("umount", "-l").arg(point).run()?;
    }
    Ok(())
}

/// Which file system. XFS is the stricter one: what was not synced is gone after a power cut, while ext4
/// saves some that forget to sync before a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Xfs,
    Ext4,
}

/// One mounted file system. Unmounted when dropped.
#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    mount: PathBuf,
    kind: Kind,
    /// Reads and writes of the loop device go past the page cache, so that limits of its speed are felt.
    direct: bool,
}

impl Disk {
    /// Makes an image `dir/NAME.img` and mounts it at `dir/NAME`.
    pub fn create(dir: &Path, name: &str, kind: Kind) -> Result<Disk, RigError> {
        Disk::create_with(dir, name, kind, IMAGE_BYTES, false)
    }

    /// As [`Disk::create`], for [`Disk::limit`].
    pub fn create_direct(dir: &Path, name: &str, kind: Kind) -> Result<Disk, RigError> {
        Disk::create_with(dir, name, kind, IMAGE_BYTES, true)
    }

    /// `bytes`: size of the image, at least 300 MiB for XFS.
    pub fn create_with(
        dir: &Path,
        name: &str,
        kind: Kind,
        bytes: u64,
        direct: bool,
    ) -> Result<Disk, RigError> {
        let disk = Disk {
            image: dir.join(format!("{name}.img")),
            mount: dir.join(name),
            kind,
            direct,
        };
        std::fs::create_dir_all(&disk.mount).map_err(failed(&disk.mount))?;
        File::create(&disk.image)
            .and_then(|file| file.set_len(bytes))
            .map_err(failed(&disk.image))?;
        let make = match kind {
            Kind::Xfs => tool("mkfs.xfs", "-q"),
            // No room that only root may use: a full disk is full for everybody.
            Kind::Ext4 => tool("mkfs.ext4", "-q -m 0"),
        };
        make.arg(&disk.image).run()?;
        disk.mount()?;
        Ok(disk)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    fn mount(&self) -> Result<(), RigError> {
        let direct = if self.direct { "--direct-io=on" } else { "" };
        let attached = tool("losetup", "--find --show")
            .words(direct)
            .arg(&self.image);
        let device = attached.run()?.trim().to_owned();
        let options = match self.kind {
            Kind::Xfs => "",
            // What most distributions mount with; the default would go on after an error.
            Kind::Ext4 => "-o errors=remount-ro",
        };
        let mounted = tool("mount", options).arg(&device).arg(&self.mount).run();
        // The device is in use now: it goes away with the mount, also when this program dies.
        tool("losetup", "-d").arg(&device).run()?;
        mounted.map(drop)
    }

    /// From here on nothing reaches the disk, not even its journal; every later write and sync fails.
    pub fn cut(&self) -> Result<(), RigError> {
        tool("xfs_io", "-x -c shutdown")
            .arg(&self.mount)
            .run()
            .map(drop)
    }

    /// Power is back: the file system recovers from what had reached the disk. No process may have files
    /// open here.
    pub fn power_on(&self) -> Result<(), RigError> {
        tool("umount", "").arg(&self.mount).run()?;
        self.mount()
    }

    /// Every write and sync waits until the guard is dropped; reads go on.
    pub fn freeze(&self) -> Result<Frozen, RigError> {
        tool("fsfreeze", "-f").arg(&self.mount).run()?;
        Ok(Frozen(self.mount.clone()))
    }

    /// The device reports an error, and the file system goes read-only by itself (ext4). XFS, which has no
    /// such trigger, is remounted read-only, which it refuses while files are open for writing.
    pub fn fail_read_only(&self) -> Result<(), RigError> {
        match self.kind {
            Kind::Ext4 => {
                let device = self.device()?;
                let trigger = Path::new("/sys/fs/ext4")
                    .join(device.file_name().unwrap_or_default())
                    .join("trigger_fs_error");
                std::fs::write(&trigger, "1\n").map_err(failed(&trigger))
            }
            Kind::Xfs => tool("mount", "-o remount,ro")
                .arg(&self.mount)
                .run()
                .map(drop),
        }
    }

    /// Bytes that can still be written.
    pub fn free_bytes(&self) -> Result<u64, RigError> {
        free_bytes(&self.mount)
    }

    /// Takes the room away: about `leave` bytes stay free.
    pub fn fill(&self, leave: u64) -> Result<(), RigError> {
        fill(&self.mount, leave)
    }

    /// Gives back what [`Disk::fill`] took.
    pub fn empty(&self) -> Result<(), RigError> {
        empty(&self.mount)
    }

    /// From here on `pid` writes with at most `operations` writes and `bytes` a second; the disk must be
    /// made by [`Disk::create_direct`]. Ends when the guard is dropped.
    pub fn limit(&self, pid: u32, operations: u64, bytes: u64) -> Result<Limited, RigError> {
        let number = self.device_number()?;
        let group = Path::new(CONTROL_GROUPS).join(format!(
            "quorumlog-chaos-{}-{pid}-{}",
            std::process::id(),
            number.replace(':', "-")
        ));
        std::fs::create_dir_all(&group).map_err(failed(&group))?;
        let limited = Limited { group, pid };
        for (file, limit) in [
            ("blkio.throttle.write_iops_device", operations),
            ("blkio.throttle.write_bps_device", bytes),
        ] {
            limited.write(file, &format!("{number} {limit}"))?;
        }
        limited.write("cgroup.procs", &pid.to_string())?;
        Ok(limited)
    }

    fn device(&self) -> Result<PathBuf, RigError> {
        let source = tool("findmnt", "-n -o SOURCE").arg(&self.mount).run()?;
        Ok(PathBuf::from(source.trim()))
    }

    fn device_number(&self) -> Result<String, RigError> {
        let name = self.device()?;
        let name = name.file_name().unwrap_or_default();
        let path = Path::new("/sys/class/block").join(name).join("dev");
        let number = std::fs::read_to_string(&path).map_err(failed(&path))?;
        Ok(number.trim().to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A scenario that failed may leave it busy or unmounted; the lazy form covers both well enough.
        let _ended = tool("umount", "-l").arg(&self.mount).run();
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RigError {
    RigError::io(path.display().to_string())
}

/// Bytes that can be written to the file system at `mount`.
pub(super) fn free_bytes(mount: &Path) -> Result<u64, RigError> {
    let stat = statvfs(mount).map_err(|error| failed(mount)(error.into()))?;
    Ok(stat.f_bavail * stat.f_frsize)
}

pub(super) fn fill(mount: &Path, leave: u64) -> Result<(), RigError> {
    let path = mount.join(BALLAST);
    let file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(failed(&path))?;
    // The file system keeps a little for itself, so ask for ever smaller pieces.
    let mut piece = free_bytes(mount)?.saturating_sub(leave);
    while piece >= 4096 && free_bytes(mount)? > leave {
        let len = file.metadata().map_err(failed(&path))?.len();
        let room = free_bytes(mount)?.saturating_sub(leave);
        match fallocate(&file, FallocateFlags::empty(), len, piece.min(room).max(1)) {
            Ok(()) => {}
            Err(rustix::io::Errno::NOSPC) => piece /= 2,
            Err(error) => return Err(failed(&path)(error.into())),
        }
    }
    Ok(())
}

pub(super) fn empty(mount: &Path) -> Result<(), RigError> {
    let path = mount.join(BALLAST);
    match std::fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed(&path)(source)),
        _ => Ok(()),
    }
}

/// A file system that stands still while this lives.
#[derive(Debug)]
pub struct Frozen(PathBuf);

impl Frozen {
    /// Lets it go on, and says when that fails.
    pub fn thaw(self) -> Result<(), RigError> {
        let path = self.0.clone();
        std::mem::forget(self);
        tool("fsfreeze", "-u").arg(path).run().map(drop)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _thawed = tool("fsfreeze", "-u").arg(&self.0).run();
    }
}

/// A process whose writes to one disk are slow while this lives.
#[derive(Debug)]
pub struct Limited {
    group: PathBuf,
    pid: u32,
}

impl Limited {
    fn write(&self, file: &str, text: &str) -> Result<(), RigError> {
        let path = self.group.join(file);
        std::fs::write(&path, text).map_err(failed(&path))
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let everybody = Path::new(CONTROL_GROUPS).join("cgroup.procs");
        // Fails when the process has ended, which is as good.
        let _moved = std::fs::write(everybody, self.pid.to_string());
        let _removed = std::fs::remove_dir(&self.group);
    }
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
