//! The files of the state directory, and changes to them under the guard.

use super::process::{self, Process};
use super::queue::{Entry, Key, Queue};
use super::{counter, directory, live};
use crate::lease::{self, LeaseTime};
use crate::{Error, Result};
use lockkeeper_system::lease_clock;
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The regular files directly in the directory, by name.
pub(super) struct Files {
    pub path: PathBuf,
    fd: OwnedFd,
}

impl Files {
    pub fn open(path: &Path) -> Result<Files> {
        let (path, fd) = directory::open(path)?;
        Ok(Files { path, fd })
    }

    /// The file system of the directory: its type, and its room.
    pub fn file_system(&self) -> Result<(fs::StatFs, fs::StatVfs)> {
        let look = || -> rustix::io::Result<_> { Ok((fs::fstatfs(&self.fd)?, fs::fstatvfs(&self.fd)?)) };
        look().map_err(|e| Error::io("look at the file system of", &self.path, e))
    }

    /// The user who owns the directory.
    pub fn owner(&self) -> Result<u32> {
        fs::fstat(&self.fd).map(|stat| stat.st_uid).map_err(|e| Error::io("look at", &self.path, e))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file that belongs to this process's user or to root. A file of another user may have been created
    /// before the directory was closed to other users, and its owner could change it.
    pub fn open_at(&self, name: &str, flags: OFlags) -> std::io::Result<OwnedFd> {
        self.open_with_size(name, flags).map(|(fd, _)| fd)
    }

    /// The same, with the size of the file.
    fn open_with_size(&self, name: &str, flags: OFlags) -> std::io::Result<(OwnedFd, usize)> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?;
        let stat = fs::fstat(&fd)?;
        let owner = stat.st_uid;
        match owner == 0 || owner == rustix::process::geteuid().as_raw() {
            true => Ok((fd, usize::try_from(stat.st_size).unwrap_or(0))),
            false => {
                let reason =
                    format!("it belongs to user {owner}, who could change it; use a directory of your own");
                Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, reason))
            }
        }
    }

    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let read = || -> std::io::Result<Option<Vec<u8>>> {
            let (fd, size) = match self.open_with_size(name, OFlags::RDONLY) {
                Ok(opened) => opened,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(e),
            };
            read_all(&fd, size).map(Some)
        };
        read().map_err(|e| Error::io("read", self.path(name), e))
    }

    /// Overwrites the beginning of a file, without fsync, with bytes that are computed from its content. A missing file
    /// is created, and is empty.
    pub fn rewrite(&self, name: &str, change: impl FnOnce(&[u8]) -> Result<Vec<u8>>) -> Result<()> {
        let open = || self.open_with_size(name, OFlags::RDWR | OFlags::CREATE);
        let (fd, size) = open().map_err(|e| Error::io("write", self.path(name), e))?;
        let text = read_all(&fd, size).map_err(|e| Error::io("read", self.path(name), e))?;
        let bytes = change(&text)?;
        let written = rustix::io::pwrite(&fd, &bytes, 0);
        match written.map_err(|e| Error::io("write", self.path(name), e))? {
            length if length == bytes.len() => Ok(()),
            // The checksum of the line shows that it is torn.
            _ => Err(Error::io("write", self.path(name), Errno::NOSPC)),
        }
    }

    /// Writes the temporary file, which no process reads before it is renamed. Called under the guard.
    ///
    /// It is always a new file. The remains of a killed process are removed rather than overwritten: they may be an
    /// earlier queue (see [`publish_aside_as`](Self::publish_aside_as)), which another process may still be reading.
    fn write_aside(&self, bytes: &[u8]) -> Result<std::fs::File> {
        // The file is new, so that its owner need not be checked.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let create = || fs::openat(&self.fd, "next", flags, Mode::RUSR | Mode::WUSR);
        let write = || -> std::io::Result<std::fs::File> {
            let fd = match create() {
                Err(Errno::EXIST) => {
                    fs::unlinkat(&self.fd, "next", AtFlags::empty())?;
                    create()?
                }
                other => other?,
            };
            let mut file = std::fs::File::from(fd);
            std::io::Write::write_all(&mut file, bytes)?;
            Ok(file)
        };
        write().map_err(|e| Error::io("write", self.path("next"), e))
    }

    /// Makes the temporary file the file `name` in a subdirectory, durably.
    fn rename_aside_durably(&self, aside: &std::fs::File, part: &str, name: &str) -> Result<()> {
        let sync_error = |e| Error::io("sync", self.path(name), e);
        aside.sync_all().map_err(sync_error)?;
        self.rename_aside_to(name)?;
        let folder = self.open_at(part, OFlags::RDONLY | OFlags::DIRECTORY).map_err(sync_error)?;
        fs::fsync(folder).map_err(|e| sync_error(e.into()))
    }

    fn rename_aside_to(&self, name: &str) -> Result<()> {
        fs::renameat(&self.fd, "next", &self.fd, name).map_err(|e| Error::io("replace", self.path(name), e))
    }

    /// Gives the temporary file this name, atomically, for a file that need not survive a power failure.
    ///
    /// An existing file is exchanged with it, and then removed under its other name. A plain rename onto an existing
    /// file would have the same result, but ext4 then writes the new file to the disk at once (`auto_da_alloc`), which
    /// takes five times as long as all the rest of an edit. A process killed in between leaves the old file as `next`.
    ///
    /// `is_new`: there is probably no such file yet.
    fn publish_aside_as(&self, name: &str, is_new: bool) -> Result<()> {
        if is_new && fs::renameat_with(&self.fd, "next", &self.fd, name, RenameFlags::NOREPLACE).is_ok() {
            return Ok(());
        }
        match fs::renameat_with(&self.fd, "next", &self.fd, name, RenameFlags::EXCHANGE) {
            Ok(()) => {
                // Best effort: the next edit removes it, too.
                let _ = fs::unlinkat(&self.fd, "next", AtFlags::empty());
                Ok(())
            }
            // There is no file of this name, or the file system has no exchange.
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.rename_aside_to(name),
            Err(e) => Err(Error::io("replace", self.path(name), e)),
        }
    }

    /// Replaces a file so that after a power failure it is the old or the new one, and the new one once this has
    /// returned.
    pub fn replace_durably(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let sync_error = |e| Error::io("sync", self.path(name), e);
        self.write_aside(bytes)?.sync_all().map_err(sync_error)?;
        self.rename_aside_to(name)?;
        fs::fsync(&self.fd).map_err(|e| sync_error(e.into()))
    }

    fn remove(&self, name: &str) -> Result<()> {
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(Error::io("remove", self.path(name), e)),
        }
    }

    fn names(&self, part: &str) -> Result<Vec<String>> {
        let entries =
            std::fs::read_dir(self.path(part)).map_err(|e| Error::io("list", self.path(part), e))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.collect())
    }
}

/// One open state directory.
pub(super) struct Store {
    pub files: Files,
    pub live: OwnedFd,
    pub boot: String,
    pub me: Process,
    pub pid_namespace: String,
    ceiling: counter::KnownCeiling,
    /// The guard file, opened by an earlier edit of this process.
    pub(super) idle_guard: Mutex<Option<OwnedFd>>,
}

impl Store {
    pub fn open(path: &Path) -> Result<Store> {
        let files = Files::open(path)?;
        let live = files
            .open_at("live", OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|e| Error::io("open", files.path("live"), e))?;
        let boot = process::boot_id().map_err(|e| Error::io("read", "/proc/sys/kernel/random/boot_id", e))?;
        let (me, pid_namespace) = (Process::me(), process::pid_namespace());
        let (ceiling, idle_guard) = Default::default();
        let store = Store { files, live, boot, me, pid_namespace, ceiling, idle_guard };
        // `boot` is written last: with the id of this boot in it, the directory is ready, and the guard is not needed.
        if !store.is_prepared()? {
            store.edit_blocking()?.prepare()?;
        }
        Ok(store)
    }

    /// Whether a process has prepared the directory since the machine was started.
    fn is_prepared(&self) -> Result<bool> {
        Ok(self.files.read("boot")?.is_some_and(|boot| boot == self.boot.as_bytes()))
    }

    /// The queue as last published. Only the process that holds the guard may act on it.
    pub fn load(&self, key: &Key, name: &str) -> Result<Queue> {
        let file = format!("locks/{}", key.0);
        let Some(bytes) = self.files.read(&file)? else {
            return Ok(Queue { name: name.into(), entries: Vec::new() });
        };
        let damaged = |reason: String| Error::Damaged { path: self.files.path(&file), reason };
        let queue = Queue::from_json(&bytes)
            .map_err(|e| damaged(format!("{e}; remove it when the lock has no holder")))?;
        if !name.is_empty() && queue.name != name {
            return Err(damaged(format!("it belongs to the lock `{}`", queue.name)));
        }
        Ok(queue)
    }

    /// The processes that decide whether an entry is alive; `None` if its FIFO decides.
    fn by_process(&self, entry: &Entry) -> Option<[Process; 2]> {
        let child = entry.child?;
        (entry.pid_namespace == self.pid_namespace).then_some([entry.owner, child])
    }

    /// A watch that resolves when the entry has to be checked again; `None` if it is already dead. A detached entry is
    /// alive until its deadline, also without a process.
    pub fn watch(&self, entry: &Entry) -> Result<Option<Watch>> {
        if let Some(watch) = self.watch_process(entry)? {
            return Ok(Some(watch));
        }
        let record = entry.detached.as_ref();
        let lasting = record.filter(|record| record.left(lease_clock::now_ns()).is_some());
        Ok(lasting.map(|record| Watch::Deadline(record.until_ns)))
    }

    /// A watch on the processes of an entry; `None` if they have ended.
    pub fn watch_process(&self, entry: &Entry) -> Result<Option<Watch>> {
        let failed = |e: std::io::Error| Error::io("watch", self.files.path("live").join(&entry.id), e);
        let Some(processes) = self.by_process(entry) else {
            let fifo = live::watch(self.live.as_fd(), &entry.id).map_err(|e| failed(e.into()))?;
            return Ok(fifo.map(Watch::Fifo));
        };
        for process in processes {
            if let Some(pidfd) = process.watch().map_err(failed)? {
                return Ok(Some(Watch::Process(pidfd)));
            }
        }
        Ok(None)
    }
}

/// Reads a file of about this size: one call, if the size is right.
fn read_all(fd: &OwnedFd, size: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; size + 1];
    let mut length = 0;
    loop {
        match rustix::io::read(fd, &mut bytes[length..]) {
            // At the end of the file, the buffer is not full.
            Ok(read) if length + read < bytes.len() && (read == 0 || length + read == size) => {
                bytes.truncate(length + read);
                return Ok(bytes);
            }
            Ok(read) => {
                length += read;
                if length == bytes.len() {
                    bytes.resize(2 * length, 0);
                }
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// A watch on an entry's FIFO, on its owner or child process, or on the deadline of a detached entry.
pub(super) enum Watch {
    Fifo(OwnedFd),
    Process(OwnedFd),
    /// A reading of the lease clock.
    Deadline(u64),
}

impl Watch {
    pub async fn fired(self) -> std::io::Result<()> {
        match self {
            Watch::Fifo(write_end) => live::gone(write_end).await,
            Watch::Process(pidfd) => live::ended(pidfd).await,
            Watch::Deadline(until_ns) => {
                lease::sleep_until(LeaseTime::from_ns(until_ns)).await;
                Ok(())
            }
        }
    }
}

/// The permission to change the directory: the guard, held until dropped.
pub(super) struct Edit<'a> {
    pub store: &'a Store,
    /// Taken when dropped.
    pub(super) guard: Option<OwnedFd>,
}

impl Edit<'_> {
    /// Creates the files of a new directory, and removes the state of an earlier boot, except detached holds.
    fn prepare(&self) -> Result<()> {
        let files = &self.store.files;
        counter::create(files)?;
        if self.store.is_prepared()? {
            return Ok(());
        }
        for name in files.names("live")? {
            files.remove(&format!("live/{name}"))?;
        }
        for key in self.keys()? {
            let bytes = files.read(&format!("locks/{}", key.0))?.unwrap_or_default();
            let queue = match Queue::from_json(&bytes) {
                // Torn by a power failure, so it is not a queue with detached holds.
                Err(e) if !e.is_data() => Queue::default(),
                _ => self.load(&key, "")?,
            };
            self.publish(&key, &queue.after_reboot(&self.store.boot, lease_clock::now_ns()), &[])?;
        }
        // By rename, so that a torn `boot` never causes a removal in the middle of a boot.
        files.write_aside(self.store.boot.as_bytes())?;
        files.rename_aside_to("boot")
    }

    pub fn load(&self, key: &Key, name: &str) -> Result<Queue> {
        self.store.load(key, name)
    }

    /// Whether an entry is alive. The FIFO of a dead entry is removed, as its entry will be.
    pub fn alive(&self, entry: &Entry) -> Result<bool> {
        let alive = self.store.watch(entry)?.is_some();
        if !alive {
            self.remove_fifo(&entry.id);
        }
        Ok(alive)
    }

    pub fn settle(&self, queue: &mut Queue) -> Result<Vec<String>> {
        self.settle_with(queue, None)
    }

    /// The same, if the caller has just created the FIFO of the entry `own`.
    pub fn settle_with(&self, queue: &mut Queue, own: Option<&str>) -> Result<Vec<String>> {
        let store = self.store;
        queue.settle(
            |entry| Ok(own.is_some_and(|own| entry.id == own) || self.alive(entry)?),
            || counter::next(&store.files, &store.boot, &store.ceiling),
        )
    }

    /// Wakes, THEN publishes: see "No waiter is forgotten" in the parent module.
    pub fn publish(&self, key: &Key, queue: &Queue, wake: &[String]) -> Result<()> {
        let (files, file) = (&self.store.files, format!("locks/{}", key.0));
        if queue.entries.is_empty() {
            return files.remove(&file);
        }
        let durable = queue.has_detached_holds();
        let json = match durable {
            true => queue.clone().with_rests(lease_clock::now_ns()).to_json(),
            false => queue.to_json(),
        };
        let aside = files.write_aside(&json.map_err(|e| Error::io("encode", files.path(&file), e))?)?;
        for id in wake {
            live::wake(self.store.live.as_fd(), id);
        }
        match durable {
            true => files.rename_aside_durably(&aside, "locks", &file),
            false => files.publish_aside_as(&file, queue.entries.len() == 1),
        }
    }

    /// Removes the entry at `i`, grants the entries that may now hold, and publishes the queue.
    pub fn remove(&self, key: &Key, queue: &mut Queue, i: usize) -> Result<()> {
        let mut wake: Vec<String> = queue.watchers_of(i).map(str::to_owned).collect();
        queue.entries.remove(i);
        wake.extend(self.settle(queue)?);
        wake.extend(queue.first_waiter().map(str::to_owned));
        wake.sort();
        wake.dedup();
        self.publish(key, queue, &wake)
    }

    /// Removes all dead entries, publishes the queue if it changed, and returns it.
    pub fn tidy(&self, key: &Key, name: &str) -> Result<Queue> {
        let before = self.load(key, name)?;
        let mut queue = before.clone();
        let mut alive = Vec::new();
        for entry in &queue.entries {
            alive.push(self.alive(entry)?);
        }
        let mut alive = alive.into_iter();
        queue.entries.retain(|_| alive.next().unwrap_or(true));
        self.settle(&mut queue)?;
        if queue != before {
            // The kernel notifies the watchers of a dead entry, but newly granted waiters must be woken here.
            let wake: Vec<String> = queue.entries.iter().map(|entry| entry.id.clone()).collect();
            self.publish(key, &queue, &wake)?;
        }
        Ok(queue)
    }

    pub fn keys(&self) -> Result<Vec<Key>> {
        Ok(self.store.files.names("locks")?.into_iter().map(Key).collect())
    }

    /// Removes FIFOs without an owner. A FIFO is created, opened and entered in a queue under the guard.
    pub fn sweep_live(&self) -> Result<()> {
        for id in self.store.files.names("live")? {
            if let Ok(None) = live::watch(self.store.live.as_fd(), &id) {
                self.remove_fifo(&id);
            }
        }
        Ok(())
    }

    /// Removes a FIFO, best effort: a FIFO left behind costs one directory entry until the next sweep.
    pub fn remove_fifo(&self, id: &str) {
        let _ = fs::unlinkat(&self.store.live, id, AtFlags::empty());
    }
}
