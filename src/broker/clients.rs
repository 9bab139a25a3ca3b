//! Who is connected: producers and consumers by group, their subscriptions, and telling the members of a
//! group that it changed. Each node keeps its own view: clients send heartbeats to every node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::subscription::Registered;
use crate::net::connection::Connection;
use crate::protocol::body::{ConsumeType, ConsumerData, Heartbeat, MessageModel, Subscription};

/// Groups that one heartbeat may name, producers and consumers together.
pub const GROUPS_PER_CLIENT_MAX: usize = 1_000;
/// Topics that a consumer may subscribe to in one group.
pub const TOPICS_PER_GROUP_MAX: usize = 10_000;
/// Places (client, group, connection) that a node keeps.
pub const PLACES_MAX: usize = 200_000;
/// Longest client id or group name that is registered, bytes.
pub const NAME_BYTES_MAX: usize = 1_024;
/// A client that sent no heartbeat for this long is forgotten (RocketMQ: `CHANNEL_EXPIRED_TIMEOUT`).
pub const FORGET_AFTER: Duration = Duration::from_secs(120);

/// Why a heartbeat was not registered. A retry helps once others have left (`Full`), else never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientsError {
    #[error("a client may be in {GROUPS_PER_CLIENT_MAX} groups at most")]
    Groups,
    #[error("a consumer may subscribe to {TOPICS_PER_GROUP_MAX} topics at most")]
    Topics,
    #[error("client ids and group names may have {NAME_BYTES_MAX} bytes at most")]
    Name,
    #[error("this node has {PLACES_MAX} places for clients; all are taken")]
    Full,
}

/// A connection as this registry needs it.
pub trait Channel: Clone {
    fn id(&self) -> u64;
    fn is_closed(&self) -> bool;
}

impl Channel for Arc<Connection> {
    fn id(&self) -> u64 {
        self.id
    }

    fn is_closed(&self) -> bool {
        Connection::is_closed(self)
    }
}

/// What a heartbeat's frame says beside its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speaker {
    pub language: u8,
    pub version: i32,
}

/// The connected clients of this node.
pub struct Clients<C = Arc<Connection>> {
    state: RwLock<State<C>>,
    /// Numbers the requests that this node sends to clients.
    opaque: AtomicI32,
}

struct State<C> {
    consumers: BTreeMap<String, Consumers<C>>,
    producers: BTreeMap<String, BTreeMap<String, Member<C>>>,
    /// Where each connection is registered, so that its end costs no search.
    places: BTreeMap<u64, BTreeSet<Place>>,
    places_count: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    kind: Kind,
    group: String,
    client: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Producer,
    Consumer,
}

/// A consumer group with at least one member.
struct Consumers<C> {
    consume_type: ConsumeType,
    message_model: MessageModel,
    consume_from_where: i32,
    subscriptions: BTreeMap<String, Arc<Subscription>>,
    members: BTreeMap<String, Member<C>>,
}

/// A client in a group. It may be here through several connections (the broker's door and the write
/// front's): one member, gone with the last of them.
struct Member<C> {
    seats: BTreeMap<u64, Seat<C>>,
    topics: BTreeSet<String>,
}

struct Seat<C> {
    channel: C,
    speaker: Speaker,
    renewed: Instant,
}

impl<C> Default for Clients<C> {
    fn default() -> Self {
        Clients {
            state: RwLock::new(State {
                consumers: BTreeMap::new(),
                producers: BTreeMap::new(),
                places: BTreeMap::new(),
                places_count: 0,
            }),
            opaque: AtomicI32::new(1),
        }
    }
}

impl<C> Default for Member<C> {
    fn default() -> Self {
        Member {
            seats: BTreeMap::new(),
            topics: BTreeSet::new(),
        }
    }
}

impl<C: Channel> Clients<C> {
    fn read(&self) -> RwLockReadGuard<'_, State<C>> {
        // No code panics while it holds the lock for writing: a poisoned one is whole.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<C>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers what a heartbeat says. Returns the groups whose members or topics changed, sorted; a new
    /// version or expression alone is no change.
    pub fn heartbeat(
        &self,
        channel: &C,
        speaker: Speaker,
        heartbeat: &Heartbeat,
    ) -> Result<Vec<String>, ClientsError> {
        check_bounds(heartbeat)?;
        let now = Instant::now();
        let client = &heartbeat.client_id;
        let mut state = self.write();
        state.take_places(channel.id(), places_of(heartbeat))?;
        let seat = || Seat {
            channel: channel.clone(),
            speaker,
            renewed: now,
        };
        for group in &heartbeat.producer_groups {
            let members = state.producers.entry(group.clone()).or_default();
            let member = members.entry(client.clone()).or_default();
            member.seats.insert(channel.id(), seat());
        }
        let mut changed = BTreeSet::new();
        for data in &heartbeat.consumers {
            if state.consume(data, client, seat()) {
                changed.insert(data.group.clone());
            }
        }
        Ok(changed.into_iter().collect())
    }

    /// A client leaves a group on one of its connections; `consumer` says in which role. Returns whether
    /// a consumer group changed.
    pub fn unregister(
        &self,
        connection_id: u64,
        client_id: &str,
        group: &str,
        consumer: bool,
    ) -> bool {
        let place = Place {
            kind: if consumer {
                Kind::Consumer
            } else {
                Kind::Producer
            },
            group: group.to_string(),
            client: client_id.to_string(),
        };
        self.write().leave(connection_id, &place)
    }

    /// A connection is gone: removes everything that was only reachable through it. Returns the consumer
    /// groups that changed, sorted.
    pub fn closed(&self, connection_id: u64) -> Vec<String> {
        let mut state = self.write();
        let places = state.places.get(&connection_id).cloned();
        state.leave_all(connection_id, places.into_iter().flatten())
    }

    /// Forgets the clients that have been silent for [`FORGET_AFTER`]. Returns the consumer groups that
    /// changed, sorted.
    pub fn forget_silent(&self, now: Instant) -> Vec<String> {
        let mut state = self.write();
        let mut silent = Vec::new();
        for (&connection_id, places) in &state.places {
            for place in places {
                let seat = state
                    .member(place)
                    .and_then(|m| m.seats.get(&connection_id));
                if seat.is_none_or(|seat| now.duration_since(seat.renewed) >= FORGET_AFTER) {
                    silent.push((connection_id, place.clone()));
                }
            }
        }
        let mut changed = BTreeSet::new();
        for (connection_id, place) in silent {
            changed.extend(state.leave_all(connection_id, [place]));
        }
        changed.into_iter().collect()
    }

    /// A number for the next request to a client.
    pub fn next_opaque(&self) -> i32 {
        self.opaque.fetch_add(1, Ordering::Relaxed)
    }

    /// Client ids of a consumer group, sorted.
    pub fn members(&self, group: &str) -> Vec<String> {
        let state = self.read();
        let group = state.consumers.get(group);
        group.map_or_else(Vec::new, |group| group.members.keys().cloned().collect())
    }

    /// What is known here of a group's subscription to a topic.
    pub fn registered(&self, group: &str, topic: &str) -> Registered {
        let state = self.read();
        let Some(group) = state.consumers.get(group) else {
            return Registered::default();
        };
        Registered {
            group: true,
            broadcasting: group.message_model == MessageModel::Broadcasting,
            subscription: group.subscriptions.get(topic).cloned(),
        }
    }

    /// A group's subscription for a topic, as its consumers announced it; newest version wins.
    pub fn subscription(&self, group: &str, topic: &str) -> Option<Subscription> {
        let known = self.registered(group, topic).subscription;
        known.map(|known| (*known).clone())
    }

    /// A connected consumer group as its members announced it.
    pub fn consumer(&self, group: &str) -> Option<ConsumerData> {
        let state = self.read();
        let known = state.consumers.get(group)?;
        Some(ConsumerData {
            group: group.to_string(),
            consume_type: known.consume_type,
            message_model: known.message_model,
            consume_from_where: known.consume_from_where,
            subscriptions: known
                .subscriptions
                .values()
                .map(|s| (**s).clone())
                .collect(),
        })
    }

    /// One connection per member of the group, to tell it something: the open one that was renewed last.
    pub fn connections(&self, group: &str) -> Vec<C> {
        let state = self.read();
        let members = state
            .consumers
            .get(group)
            .map(|group| group.members.values());
        let members = members.into_iter().flatten();
        members.filter_map(Member::connection).collect()
    }

    /// The connection of one member of a producer group or consumer group, with its language.
    pub fn client(&self, group: &str, client_id: &str) -> Option<(C, Speaker)> {
        let state = self.read();
        let consumer = state
            .consumers
            .get(group)
            .and_then(|g| g.members.get(client_id));
        let producer = || state.producers.get(group).and_then(|g| g.get(client_id));
        let seat = consumer.or_else(producer)?.newest()?;
        Some((seat.channel.clone(), seat.speaker))
    }
}

fn check_bounds(heartbeat: &Heartbeat) -> Result<(), ClientsError> {
    let groups = heartbeat.producer_groups.len() + heartbeat.consumers.len();
    if groups > GROUPS_PER_CLIENT_MAX {
        return Err(ClientsError::Groups);
    }
    let consumers = heartbeat.consumers.iter().map(|data| &data.group);
    let names = heartbeat.producer_groups.iter().chain(consumers);
    if names
        .chain([&heartbeat.client_id])
        .any(|name| name.len() > NAME_BYTES_MAX)
    {
        return Err(ClientsError::Name);
    }
    let topics = heartbeat
        .consumers
        .iter()
        .map(|data| data.subscriptions.len());
    if topics.max().unwrap_or(0) > TOPICS_PER_GROUP_MAX {
        return Err(ClientsError::Topics);
    }
    Ok(())
}

fn places_of(heartbeat: &Heartbeat) -> BTreeSet<Place> {
    let place = |kind, group: &String| Place {
        kind,
        group: group.clone(),
        client: heartbeat.client_id.clone(),
    };
    let producers = heartbeat.producer_groups.iter();
    let producers = producers.map(|group| place(Kind::Producer, group));
    let consumers = heartbeat.consumers.iter();
    let consumers = consumers.map(|data| place(Kind::Consumer, &data.group));
    producers.chain(consumers).collect()
}

impl<C: Channel> State<C> {
    /// Notes where a connection is registered, unless that would be too much for this node.
    fn take_places(
        &mut self,
        connection_id: u64,
        wanted: BTreeSet<Place>,
    ) -> Result<(), ClientsError> {
        let has = self.places.get(&connection_id);
        let new = wanted
            .iter()
            .filter(|place| has.is_none_or(|has| !has.contains(place)));
        let new = new.count();
        if self.places_count + new > PLACES_MAX {
            return Err(ClientsError::Full);
        }
        if new > 0 {
            self.places.entry(connection_id).or_default().extend(wanted);
            self.places_count += new;
        }
        Ok(())
    }

    fn member(&self, place: &Place) -> Option<&Member<C>> {
        let members = match place.kind {
            Kind::Producer => self.producers.get(&place.group)?,
            Kind::Consumer => &self.consumers.get(&place.group)?.members,
        };
        members.get(&place.client)
    }

    /// Takes over what one consumer says of its group; returns whether members or topics changed.
    fn consume(&mut self, data: &ConsumerData, client: &str, seat: Seat<C>) -> bool {
        let group = self
            .consumers
            .entry(data.group.clone())
            .or_insert_with(|| Consumers {
                consume_type: data.consume_type,
                message_model: data.message_model,
                consume_from_where: data.consume_from_where,
                subscriptions: BTreeMap::new(),
                members: BTreeMap::new(),
            });
        group.consume_type = data.consume_type;
        group.message_model = data.message_model;
        group.consume_from_where = data.consume_from_where;
        let mut changed = !group.members.contains_key(client);
        let member = group.members.entry(client.to_string()).or_default();
        member.seats.insert(seat.channel.id(), seat);
        member.topics = data.subscriptions.iter().map(|s| s.topic.clone()).collect();
        for said in &data.subscriptions {
            match group.subscriptions.get_mut(&said.topic) {
                None => {
                    changed = true;
                    let said_by = Arc::new(said.clone());
                    group.subscriptions.insert(said.topic.clone(), said_by);
                }
                Some(known) if said.version > known.version => *known = Arc::new(said.clone()),
                Some(_) => {}
            }
        }
        group.drop_unwanted_topics() || changed
    }

    /// Removes one registration; returns whether a consumer group changed.
    fn leave(&mut self, connection_id: u64, place: &Place) -> bool {
        if let Some(places) = self.places.get_mut(&connection_id) {
            self.places_count -= usize::from(places.remove(place));
            if places.is_empty() {
                self.places.remove(&connection_id);
            }
        }
        match place.kind {
            Kind::Producer => {
                if let Some(members) = self.producers.get_mut(&place.group) {
                    stand_up(members, &place.client, connection_id);
                    if members.is_empty() {
                        self.producers.remove(&place.group);
                    }
                }
                false
            }
            Kind::Consumer => {
                let Some(group) = self.consumers.get_mut(&place.group) else {
                    return false;
                };
                let gone = stand_up(&mut group.members, &place.client, connection_id);
                if group.members.is_empty() {
                    self.consumers.remove(&place.group);
                } else if gone {
                    group.drop_unwanted_topics();
                }
                gone
            }
        }
    }

    fn leave_all(
        &mut self,
        connection_id: u64,
        places: impl IntoIterator<Item = Place>,
    ) -> Vec<String> {
        let mut changed = Vec::new();
        for place in places {
            if self.leave(connection_id, &place) {
                changed.push(place.group);
            }
        }
        changed.sort_unstable();
        changed.dedup();
        changed
    }
}

/// Removes a member's seat on a connection; returns whether the member went with it.
fn stand_up<C>(
    members: &mut BTreeMap<String, Member<C>>,
    client: &str,
    connection_id: u64,
) -> bool {
    let Some(member) = members.get_mut(client) else {
        return false;
    };
    member.seats.remove(&connection_id);
    member.seats.is_empty() && members.remove(client).is_some()
}

impl<C> Consumers<C> {
    /// Drops the subscriptions that no member has any more; returns whether there were any. RocketMQ takes
    /// the last heartbeat's topics for the whole group, so that members with different topics undo each
    /// other's at every heartbeat; here a topic stays as long as one member wants it.
    fn drop_unwanted_topics(&mut self) -> bool {
        let before = self.subscriptions.len();
        let members = &self.members;
        self.subscriptions
            .retain(|topic, _| members.values().any(|member| member.topics.contains(topic)));
        self.subscriptions.len() != before
    }
}

impl<C: Channel> Member<C> {
    fn newest(&self) -> Option<&Seat<C>> {
        let open = self.seats.values().filter(|seat| !seat.channel.is_closed());
        open.max_by_key(|seat| seat.renewed)
    }

    fn connection(&self) -> Option<C> {
        self.newest().map(|seat| seat.channel.clone())
    }
}

#[cfg(test)]
#[path = "clients_tests.rs"]
mod tests;
