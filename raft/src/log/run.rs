//! What drives the log writer: a thread, or a task for simulation. The core is the same.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::writer::{GROUP_BYTES, Writer};
use super::{FlushMode, Shared};
use crate::env::{Clock, WriterMode};

/// Quiet time after a write until the durable mark is written by itself.
const IDLE: Duration = Duration::from_millis(100);

/// Starts the writer; it runs until it is told to end.
pub(crate) fn start(shared: &Arc<Shared>, writer: Writer, clock: Arc<dyn Clock>) -> io::Result<()> {
    let shared = shared.clone();
    let pace = Pace::new(shared.options.flush, clock);
    match shared.writer {
        WriterMode::Thread => {
            std::thread::Builder::new()
                .name("log-writer".to_string())
                .spawn(move || thread(&shared, writer, pace))?;
        }
        WriterMode::Task => {
            tokio::spawn(task(shared, writer, pace));
        }
    }
    Ok(())
}

/// When the writer must act although nothing came.
struct Pace {
    clock: Arc<dyn Clock>,
    /// Asynchronous flushing: how often to sync.
    interval: Option<Duration>,
    synced: tokio::time::Instant,
}

impl Pace {
    fn new(flush: FlushMode, clock: Arc<dyn Clock>) -> Pace {
        let interval = match flush {
            FlushMode::Sync => None,
            FlushMode::Async { interval } => Some(interval),
        };
        Pace {
            synced: clock.now(),
            clock,
            interval,
        }
    }

    /// How long to wait for jobs.
    fn timeout(&self, writer: &Writer) -> Option<Duration> {
        match self.interval {
            Some(interval) if writer.dirty() => {
                Some(interval.saturating_sub(self.clock.now() - self.synced))
            }
            _ => writer.restless().then_some(IDLE),
        }
    }

    /// Acts on the timers. `idle`: no job came within the timeout.
    fn tick(&mut self, writer: &mut Writer, idle: bool) -> io::Result<()> {
        match self.interval {
            Some(interval) if writer.dirty() => {
                let now = self.clock.now();
                if now - self.synced >= interval {
                    writer.timer()?;
                    self.synced = now;
                }
                Ok(())
            }
            _ if idle && writer.restless() => writer.idle(),
            _ => Ok(()),
        }
    }
}

fn thread(shared: &Shared, mut writer: Writer, mut pace: Pace) {
    loop {
        let jobs = shared
            .queue
            .take_blocking(GROUP_BYTES, pace.timeout(&writer));
        let idle = jobs.is_empty();
        let outcome = writer.process(jobs).and_then(|goes_on| {
            pace.tick(&mut writer, idle)?;
            Ok(goes_on)
        });
        if !matches!(outcome, Ok(true)) {
            return writer.end(outcome.map(|_| ()));
        }
    }
}

async fn task(shared: Arc<Shared>, mut writer: Writer, mut pace: Pace) {
    loop {
        let mut jobs = shared.queue.take(GROUP_BYTES);
        let mut quiet = false;
        if jobs.is_empty() {
            // Being woken says nothing: an earlier take may have had the job already.
            match pace.timeout(&writer) {
                Some(timeout) => {
                    let woken = tokio::time::timeout(timeout, shared.queue.filled()).await;
                    quiet = woken.is_err();
                }
                None => shared.queue.filled().await,
            }
            jobs = shared.queue.take(GROUP_BYTES);
        }
        let idle = quiet && jobs.is_empty();
        let takes = shared.files.write_time();
        if !jobs.is_empty() && !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        let outcome = writer.process(jobs).and_then(|goes_on| {
            pace.tick(&mut writer, idle)?;
            Ok(goes_on)
        });
        if !matches!(outcome, Ok(true)) {
            return writer.end(outcome.map(|_| ()));
        }
    }
}
