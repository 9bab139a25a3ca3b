//! Packets held in user space: delay, jitter (which reorders), loss. The kernel gives each packet that
//! arrives at a node from the given sources to a thread in the node's namespace, which gives it back later,
//! or not at all. Holding a packet is exact to about a millisecond.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nfq::{Message, Queue, Verdict};

use super::RigError;
use super::netns::Network;
use super::tool::tool;
use crate::rng::Rng;

/// Which of a namespace's queues.
const NUMBER: u16 = 7;
/// Packets that may wait: a second of delay at full speed.
const PACKETS_MAX: u32 = 100_000;
/// Between two looks at the queue when it is empty.
const LOOK_EVERY: Duration = Duration::from_micros(300);

/// What happens to each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    /// It is lost in so many of 100 cases.
    pub loss_percent: usize,
    /// It is held for this long ...
    pub delay: Duration,
    /// ... and for a random time up to this on top: later packets overtake it.
    pub jitter: Duration,
}

/// A queue at work. Dropping it lets all packets pass again, the held ones at once.
pub struct Queued {
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
    /// Takes the rules away.
    namespace: String,
    rules: Vec<String>,
}

#[derive(Default)]
struct Counts {
    passed: AtomicU64,
    lost: AtomicU64,
    overtaken: AtomicU64,
}

impl Queued {
    /// Packets given back so far.
    pub fn passed(&self) -> u64 {
        self.counts.passed.load(Ordering::Relaxed)
    }

    /// Packets dropped so far.
    pub fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }

    /// Packets that a later one overtook.
    pub fn overtaken(&self) -> u64 {
        self.counts.overtaken.load(Ordering::Relaxed)
    }
}

impl Network {
    /// Treats every packet that arrives at node `at` from the nodes `from`.
    pub fn treat(
        &self,
        at: usize,
        from: &[usize],
        treatment: Treatment,
        seed: u64,
    ) -> Result<Queued, RigError> {
        let node = &self.nodes[at];
        let handle = node.handle()?;
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let (ready, begun) = std::sync::mpsc::channel();
        let work = Work {
            treatment,
            rng: Rng::new(seed),
            stop: Arc::clone(&stop),
            counts: Arc::clone(&counts),
        };
        let thread = std::thread::Builder::new()
            .name(format!("packets-n{at}"))
            .spawn(move || match handle.enter().and_then(|()| open()) {
                Ok(queue) => {
                    // The caller waits for it.
                    let _waiting = ready.send(Ok(()));
                    work.run(queue);
                }
                Err(error) => {
                    let _waiting = ready.send(Err(error));
                }
            })
            .map_err(RigError::io("a thread for packets"))?;
        let mut queued = Queued {
            stop,
            counts,
            thread: Some(thread),
            namespace: node.name().to_owned(),
            rules: Vec::new(),
        };
        let gone = || RigError::io("a thread for packets")(std::io::ErrorKind::BrokenPipe.into());
        begun.recv().map_err(|_| gone())??;
        for source in from {
            let rule = format!(
                "INPUT -s {} -j NFQUEUE --queue-num {NUMBER} --queue-bypass",
                Network::address(*source)
            );
            node.run(|| {
                tool("iptables-legacy", "-w -A")
                    .words(&rule)
                    .run()
                    .map(drop)
            })?;
            queued.rules.push(rule);
        }
        Ok(queued)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        for rule in &self.rules {
            // Fails only when the namespace is gone.
            let _removed = tool("ip", "netns exec")
                .arg(&self.namespace)
                .words("iptables-legacy -w -D")
                .words(rule)
                .run();
        }
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed; there is nothing to be saved.
            let _ended = thread.join();
        }
    }
}

/// Tries everything once, for `chaos doctor`; to be called inside a namespace.
pub(super) fn trial() -> Result<(), RigError> {
    let rule = format!("INPUT -s 10.99.0.1 -j NFQUEUE --queue-num {NUMBER} --queue-bypass");
    open()?;
    tool("iptables-legacy", "-w -A")
        .words(&rule)
        .run()
        .map(drop)
}

fn open() -> Result<Queue, RigError> {
    let io = || RigError::io("the kernel's packet queue");
    let mut queue = Queue::open().map_err(io())?;
    queue.bind(NUMBER).map_err(io())?;
    queue.set_queue_max_len(NUMBER, PACKETS_MAX).map_err(io())?;
    // Only whether a packet passes is decided here, not what is in it.
    queue.set_copy_range(NUMBER, 64).map_err(io())?;
    queue.set_recv_gso(NUMBER, true).map_err(io())?;
    queue.set_nonblocking(true);
    Ok(queue)
}

struct Work {
    treatment: Treatment,
    rng: Rng,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
}

impl Work {
    fn run(mut self, mut queue: Queue) {
        // By the time at which they are given back; the number keeps equal times apart.
        let mut held: BTreeMap<(Instant, u64), Message> = BTreeMap::new();
        let mut number = 0;
        let mut newest_given = 0;
        loop {
            let stopping = self.stop.load(Ordering::Relaxed);
            let mut idle = true;
            while let Ok(mut packet) = queue.recv() {
                idle = false;
                if self.rng.percent(self.treatment.loss_percent) {
                    packet.set_verdict(Verdict::Drop);
                    self.counts.lost.fetch_add(1, Ordering::Relaxed);
                    let _gone = queue.verdict(packet);
                    continue;
                }
                number += 1;
                held.insert((self.due(), number), packet);
            }
            while let Some(first) = held.first_entry()
                && (stopping || first.key().0 <= Instant::now())
            {
                let ((_, number), mut packet) = first.remove_entry();
                packet.set_verdict(Verdict::Accept);
                // Fails only for a packet that the kernel has given up.
                let _gone = queue.verdict(packet);
                self.counts.passed.fetch_add(1, Ordering::Relaxed);
                if number < newest_given {
                    self.counts.overtaken.fetch_add(1, Ordering::Relaxed);
                }
                newest_given = newest_given.max(number);
            }
            if stopping && idle {
                return;
            }
            if idle {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    fn due(&mut self) -> Instant {
        let jitter = usize::try_from(self.treatment.jitter.as_micros()).unwrap_or(usize::MAX);
        let more = Duration::from_micros(self.rng.below(jitter) as u64);
        Instant::now() + self.treatment.delay + more
    }
}
