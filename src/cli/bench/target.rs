//! Where a bench sends to: the master of a topic, found through a name server or named, the topic made
//! when it is missing.

use std::time::{Duration, Instant};

use super::Common;
use crate::cli::CliError;
use crate::cli::client::{Client, ClientError, topic_fields};
use crate::cli::route;
use crate::protocol::codes::{request, response};

/// A broker that takes writes for the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub address: String,
    /// Broker name, where a name server gave it.
    pub broker: String,
    pub queues: u32,
}

/// How targets are found, now and again after a connection broke.
#[derive(Clone, Debug)]
pub(super) struct Finder {
    namesrv: Option<String>,
    broker: Option<String>,
    topic: String,
    queues: u32,
}

const TIMEOUT: Duration = Duration::from_secs(3);
/// How long a topic that was just made may take to appear in the route.
const ROUTE_WITHIN: Duration = Duration::from_secs(10);

impl Finder {
    pub fn new(common: &Common) -> Finder {
        let namesrv = match common.broker {
            Some(_) => None,
            None => Some(common.namesrv.clone()),
        };
        Finder {
            namesrv,
            broker: common.broker.clone(),
            topic: common.topic.clone(),
            queues: common.queues,
        }
    }

    /// The brokers of the topic, which is made when it is missing. At least one.
    pub fn find_or_make(&self) -> Result<Vec<Target>, CliError> {
        let found = self.find().map_err(|e| self.explain(&e))?;
        if !found.is_empty() {
            return Ok(found);
        }
        self.make_topic().map_err(|e| self.explain(&e))?;
        let deadline = Instant::now() + ROUTE_WITHIN;
        loop {
            match self.find() {
                Ok(found) if !found.is_empty() => return Ok(found),
                Err(error) if Instant::now() > deadline => return Err(self.explain(&error)),
                Ok(_) if Instant::now() > deadline => {
                    return Err(CliError::new(format!(
                        "topic {} was made, but no broker that takes writes appeared in its route within {ROUTE_WITHIN:?}",
                        self.topic
                    )));
                }
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// The brokers of the topic as they are now; none when the topic is missing or has no master.
    pub fn find(&self) -> Result<Vec<Target>, ClientError> {
        let asked = self.namesrv.as_deref().or(self.broker.as_deref());
        let mut client = Client::connect(asked.unwrap_or_default(), TIMEOUT)?;
        let routed = match route::topic_route(&mut client, &self.topic) {
            Ok(routed) => routed,
            // A broker that is no name server as well: take it as it is, with a topic as asked for.
            Err(error) if self.broker.is_some() && not_a_name_server(&error) => {
                self.make_topic()?;
                return Ok(self.named_broker(self.queues));
            }
            Err(error) if error.code() == Some(response::TOPIC_NOT_EXIST) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let readable = routed
            .into_iter()
            .filter(|r| r.writable && r.read_queues > 0 && r.write_queues > 0);
        if self.broker.is_some() {
            return Ok(readable
                .map(|r| r.write_queues)
                .next()
                .map_or_else(Vec::new, |queues| self.named_broker(queues)));
        }
        Ok(readable
            .filter_map(|r| {
                Some(Target {
                    address: r.master?,
                    broker: r.broker,
                    queues: r.write_queues,
                })
            })
            .collect())
    }

    fn named_broker(&self, queues: u32) -> Vec<Target> {
        let target = |address: &String| Target {
            address: address.clone(),
            broker: String::new(),
            queues,
        };
        self.broker.iter().map(target).collect()
    }

    fn make_topic(&self) -> Result<(), ClientError> {
        let brokers: Vec<String> = match (&self.broker, &self.namesrv) {
            (Some(broker), _) => vec![broker.clone()],
            (None, Some(namesrv)) => {
                let mut client = Client::connect(namesrv, TIMEOUT)?;
                route::masters(&mut client)?.into_iter().collect()
            }
            (None, None) => Vec::new(),
        };
        for broker in brokers {
            let fields = topic_fields(&self.topic, self.queues);
            Client::connect(&broker, TIMEOUT)?.call(
                request::UPDATE_AND_CREATE_TOPIC,
                &fields,
                &[],
            )?;
        }
        Ok(())
    }

    fn explain(&self, error: &ClientError) -> CliError {
        CliError::new(match &self.namesrv {
            Some(_) => format!(
                "{error}. Is that a name server (--namesrv)? A single broker can be named with --broker"
            ),
            None => format!("{error}. Is that a broker's client port (--broker)?"),
        })
    }
}

fn not_a_name_server(error: &ClientError) -> bool {
    error.code() == Some(response::REQUEST_CODE_NOT_SUPPORTED)
}
