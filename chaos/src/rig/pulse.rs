//! How long the clients' own program stood still: on a machine that is too busy a client's time limit ends late,
//! and that says nothing of the group.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const EVERY: Duration = Duration::from_millis(20);

/// Measures until it is stopped.
pub struct Pulse {
    task: JoinHandle<Duration>,
    stop: watch::Sender<bool>,
}

impl Pulse {
    pub fn start() -> Pulse {
        let (stop, mut stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            loop {
                let begun = Instant::now();
                tokio::select! {
                    _ = stopped.wait_for(|stopped| *stopped) => return longest,
                    () = sleep(EVERY) => {}
                }
                longest = longest.max(begun.elapsed().saturating_sub(EVERY));
            }
        });
        Pulse { task, stop }
    }

    /// The longest time by which a timer was late.
    pub async fn stop(self) -> Duration {
        self.stop.send_replace(true);
        // It neither panics nor is it cancelled.
        self.task.await.unwrap_or(Duration::MAX)
    }
}
