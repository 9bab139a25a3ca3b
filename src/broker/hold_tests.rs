//! Holding, waking, moving on, deadlines, closing: with time that stands still until it is moved.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use quorumlog_raft::{Role, View};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::task::yield_now;

use super::*;
use crate::protocol::frame::Frame;

/// A queue of letters: `.` is a message that nobody wants. Counts how often a pull was looked at.
#[derive(Clone)]
struct Letters(Arc<LettersState>);

struct LettersState {
    letters: Mutex<String>,
    looks: AtomicUsize,
    /// 0 sure, 1 unsure, 2 gone.
    standing: AtomicU8,
}

/// Codes of the replies of these tests.
const FOUND: i32 = 0;
const TIMED_OUT: i32 = 19;
const ENDED: i32 = 2;

impl Examine for Letters {
    fn examine(&self, held: &HeldPull, why: Why) -> Verdict {
        self.0.looks.fetch_add(1, Ordering::SeqCst);
        let letters = self.0.letters.lock().unwrap();
        let wanted = letters
            .bytes()
            .skip(held.from as usize)
            .any(|letter| letter != b'.');
        let reply = |code| {
            let reply = Reply::new(code, held.opaque).with("from", held.from);
            Verdict::Answer(Box::new(reply))
        };
        match why {
            _ if wanted => reply(FOUND),
            Why::Arrival => Verdict::Keep {
                from: letters.len() as i64,
            },
            Why::Deadline => reply(TIMED_OUT),
            Why::Ended => reply(ENDED),
        }
    }

    fn read_cold(&self, _held: HeldPull, _why: Why) {
        unreachable!("letters are in memory")
    }

    fn end(&self, _topic: &str, queue: i32) -> i64 {
        if queue == 0 {
            self.0.letters.lock().unwrap().len() as i64
        } else {
            0
        }
    }

    fn standing(&self) -> Standing {
        match self.0.standing.load(Ordering::SeqCst) {
            0 => Standing::Sure,
            1 => Standing::Unsure,
            _ => Standing::Gone,
        }
    }
}

struct Room {
    holds: Arc<Holds>,
    letters: Letters,
    changes: watch::Sender<View>,
}

type Answer = oneshot::Receiver<bytes::Bytes>;

fn room() -> Room {
    let holds = Arc::new(Holds::default());
    let letters = Letters(Arc::new(LettersState {
        letters: Mutex::default(),
        looks: AtomicUsize::new(0),
        standing: AtomicU8::new(0),
    }));
    let (changes, watched) = watch::channel(View {
        node: 1,
        role: Role::Leader,
        term: 1,
        leader: Some(1),
        last_leader: Some(1),
        ready: true,
        voters: vec![1, 2, 3],
    });
    tokio::spawn(run(holds.clone(), letters.clone(), watched));
    Room {
        holds,
        letters,
        changes,
    }
}

impl Room {
    fn pull(&self, queue: i32, hold_ms: u64, connection_id: u64) -> Answer {
        let (back, answer) = oneshot::channel();
        let held = HeldPull {
            topic: Arc::from("t"),
            queue,
            from: 0,
            limits: ReadLimits {
                messages_max: 32,
                bytes_max: 1024,
            },
            filter: TagFilter::All,
            topic_sys_flag: 0,
            opaque: 7,
            reply: ReplyTo::Peer(back),
            customer: Customer::Connection(connection_id),
            deadline: Instant::now() + Duration::from_millis(hold_ms),
        };
        assert!(hold(&self.holds, &self.letters, held).is_ok());
        answer
    }

    fn write(&self, letter: char) {
        let end = {
            let mut letters = self.letters.0.letters.lock().unwrap();
            letters.push(letter);
            letters.len() as i64
        };
        self.holds.arrived("t", 0, end);
    }

    fn looks(&self) -> usize {
        self.letters.0.looks.load(Ordering::SeqCst)
    }

    fn stand(&self, standing: u8) {
        self.letters.0.standing.store(standing, Ordering::SeqCst);
    }
}

/// Lets the task run as far as it can without time passing.
async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

async fn pass(ms: u64) {
    settle().await;
    tokio::time::advance(Duration::from_millis(ms)).await;
    settle().await;
}

/// Code and `from` of the answer, if there is one by now.
fn answered(answer: &mut Answer) -> Option<(i32, i64)> {
    match answer.try_recv() {
        Ok(raw) => {
            let header = Frame::decode_whole(raw).unwrap().header;
            Some((header.code, header.ext.required_i64("from").unwrap()))
        }
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Closed) => panic!("dropped without an answer"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_wakes_the_pull_at_once() {
    let room = room();
    let mut answer = room.pull(0, 15_000, 1);
    pass(4_000).await;
    assert_eq!(answered(&mut answer), None);
    room.write('A');
    settle().await;
    assert_eq!(answered(&mut answer), Some((FOUND, 0)));
    assert!(room.holds.is_empty());
}

#[tokio::test(start_paused = true)]
async fn messages_that_do_not_match_move_the_pull_on_and_do_not_answer_it() {
    let room = room();
    let mut answer = room.pull(0, 15_000, 1);
    for _ in 0..2 {
        room.write('.');
        settle().await;
        assert_eq!(answered(&mut answer), None);
    }
    room.write('A');
    settle().await;
    assert_eq!(answered(&mut answer), Some((FOUND, 2)));
}

#[tokio::test(start_paused = true)]
async fn a_pull_is_answered_exactly_at_its_deadline() {
    let room = room();
    let mut late = room.pull(0, 15_000, 1);
    let mut early = room.pull(0, 1_500, 1);
    pass(1_499).await;
    assert_eq!(answered(&mut early), None);
    pass(1).await;
    assert_eq!(answered(&mut early), Some((TIMED_OUT, 0)));
    pass(13_499).await;
    assert_eq!(answered(&mut late), None);
    pass(1).await;
    assert_eq!(answered(&mut late), Some((TIMED_OUT, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_pull_is_not_looked_at_while_nothing_happens_to_its_queue() {
    let room = room();
    let _answers: Vec<_> = (0..100).map(|_| room.pull(1, 30_000, 1)).collect();
    for _ in 0..20 {
        room.write('A');
        pass(1_000).await;
    }
    assert_eq!(room.looks(), 0);
}

#[tokio::test(start_paused = true)]
async fn all_pulls_of_a_queue_are_answered_and_no_other() {
    let room = room();
    let mut here: Vec<_> = (0..200).map(|n| room.pull(0, 9_000, n)).collect();
    let mut elsewhere = room.pull(1, 9_000, 1);
    room.write('A');
    settle().await;
    assert!(
        here.iter_mut()
            .all(|answer| answered(answer) == Some((FOUND, 0)))
    );
    assert_eq!(answered(&mut elsewhere), None);
    assert_eq!(room.holds.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_came_between_the_read_and_the_hold_is_seen() {
    let room = room();
    // Nobody is held yet: this wakes nobody.
    room.write('A');
    let mut answer = room.pull(0, 15_000, 1);
    settle().await;
    assert_eq!(answered(&mut answer), Some((FOUND, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_closed_connections_pulls_are_dropped() {
    let room = room();
    let mut gone = room.pull(0, 15_000, 1);
    let mut stays = room.pull(0, 15_000, 2);
    settle().await;
    room.holds.drop_connection(1);
    assert_eq!(gone.try_recv(), Err(TryRecvError::Closed));
    assert_eq!(room.holds.len(), 1);
    room.write('A');
    settle().await;
    assert_eq!(room.looks(), 1);
    assert_eq!(answered(&mut stays), Some((FOUND, 0)));
}

#[tokio::test(start_paused = true)]
async fn all_pulls_end_when_others_lead() {
    let room = room();
    let mut answer = room.pull(0, 15_000, 1);
    pass(100).await;
    room.stand(2);
    room.changes.send_modify(|view| {
        view.role = Role::Follower;
        view.leader = Some(2);
    });
    settle().await;
    assert_eq!(answered(&mut answer), Some((ENDED, 0)));
    assert!(room.holds.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_comes_back_soon_ends_nothing() {
    let room = room();
    let mut answer = room.pull(0, 15_000, 1);
    settle().await;
    for _ in 0..5 {
        room.stand(1);
        pass(1_000).await;
        room.stand(0);
        pass(1_000).await;
        assert_eq!(answered(&mut answer), None);
    }
    room.stand(1);
    pass(1_000).await;
    pass(1_000).await;
    assert_eq!(answered(&mut answer), Some((ENDED, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_pull_whose_time_is_up_waits_a_little_for_a_node_that_is_unsure() {
    let room = room();
    let mut answer = room.pull(0, 2_000, 1);
    settle().await;
    room.stand(1);
    pass(2_000).await;
    assert_eq!(answered(&mut answer), None);
    pass(100).await;
    assert_eq!(answered(&mut answer), None);
    room.stand(0);
    pass(20).await;
    assert_eq!(answered(&mut answer), Some((TIMED_OUT, 0)));
    // But no longer than a lease lasts.
    let mut answer = room.pull(0, 500, 1);
    settle().await;
    room.stand(1);
    pass(500).await;
    pass(299).await;
    assert_eq!(answered(&mut answer), None);
    // It looks again every 20 ms.
    pass(20).await;
    assert_eq!(answered(&mut answer), Some((TIMED_OUT, 0)));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_still_counts_when_the_group_is_gone() {
    let Room {
        holds,
        letters,
        changes,
    } = room();
    let (watched, kept) = watch::channel(changes.borrow().clone());
    let room = Room {
        holds,
        letters,
        changes: watched,
    };
    drop((changes, kept));
    let mut answer = room.pull(0, 2_000, 1);
    pass(2_000).await;
    assert_eq!(answered(&mut answer), Some((TIMED_OUT, 0)));
}
