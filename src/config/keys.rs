//! The names of all keys: those that are read, and RocketMQ's that have no effect here, with the reason.
//!
//! A key that is in neither table gets a hint at the nearest name that is.

/// Keys that [`super::Config`] is made from.
pub(super) const READ: &[&str] = &[
    "brokerClusterName",
    "brokerName",
    "brokerIP1",
    "listenPort",
    "writeFrontPort",
    "namesrvListenPort",
    "storePathRootDir",
    "enableDLegerCommitLog",
    "dLegerGroup",
    "dLegerPeers",
    "dLegerSelfId",
    "flushDiskType",
    "flushIntervalCommitLog",
    "mappedFileSizeCommitLog",
    "raftHeartbeatInterval",
    "raftElectionTimeoutMin",
    "raftElectionTimeoutMax",
    "diskReserveBytes",
    "writeFronts",
    "writeHoldTimeout",
    "brokerDeduplication",
    "slaveReadEnable",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
    "defaultTopicQueueNums",
    "maxMessageSize",
    "messageDelayLevel",
];

/// Keys whose value decides what is guaranteed; `promises` weighs each of them by its value.
pub(super) const PROMISES: &[&str] = &[
    "brokerRole",
    "inSyncReplicas",
    "minInSyncReplicas",
    "totalReplicas",
    "allAckInSyncStateSet",
    "enableAutoInSyncReplicas",
    "enableControllerMode",
    "enableSlaveActingMaster",
    "enableElectUncleanMaster",
    "duplicationEnable",
    "asyncLearner",
    "aclEnable",
    "authenticationEnabled",
    "authorizationEnabled",
    "enableStoreEncryption",
];

const THREADS: &str =
    "there are no thread pools: requests run on one runtime with a thread per core";
const QUEUE_INDEX: &str = "queue indexes are kept in memory and beside each sealed segment";
const RETENTION: &str = "not built yet: nothing is deleted, watch the free space";
const NO_MMAP: &str =
    "the log is written and read with plain positioned I/O, not through mapped files";
const HA_PORT: &str =
    "replication runs between the addresses of dLegerPeers; listenPort + 1 is the write front";
const HA: &str = "replication is Raft's; there is no separate HA service";
const CONTROLLER: &str = "there is no controller: Raft elects the leader itself";
const ONE_DIR: &str = "everything lies below storePathRootDir";
const FAST_FAILURE: &str =
    "writes are refused before they are proposed when there is no lease; queues are bounded";
const NAMING: &str =
    "the built-in name server answers from what Raft knows; nothing is registered elsewhere yet";
const TRANSACTIONS: &str = "transactional messages are not built yet";
const POP: &str = "POP consumption is not built yet";
const TIMER: &str = "timer messages are not built yet; delay levels are (messageDelayLevel)";

/// RocketMQ's keys that have no effect here, with the reason an operator gets to read.
pub(super) const NO_EFFECT: &[(&str, &str)] = &[
    ("namesrvAddr", NAMING),
    ("registerNameServerPeriod", NAMING),
    ("registerBrokerTimeoutMills", NAMING),
    ("forceRegister", NAMING),
    ("fetchNamesrvAddrByAddressServer", NAMING),
    (
        "brokerId",
        "ids follow from dLegerSelfId; clients see 0 for the leader",
    ),
    ("brokerIP2", HA_PORT),
    ("haListenPort", HA_PORT),
    ("haMasterAddress", HA),
    ("haSendHeartbeatInterval", HA),
    ("haHousekeepingInterval", HA),
    ("haTransferBatchSize", HA),
    ("haMaxGapNotInSync", HA),
    ("haMaxTimeSlaveNotCatchup", HA),
    ("maxHaTransferByteInSecond", HA),
    ("syncFromLastFile", HA),
    ("slaveTimeout", HA),
    (
        "preferredLeaderId",
        "not built yet: any voter with the whole log may lead",
    ),
    (
        "preferredLeaderIds",
        "not built yet: any voter with the whole log may lead",
    ),
    (
        "isEnableBatchPush",
        "entries are always sent to peers in batches",
    ),
    (
        "enableBatchPush",
        "entries are always sent to peers in batches",
    ),
    ("controllerAddr", CONTROLLER),
    ("brokerElectionPriority", CONTROLLER),
    ("controllerDLegerGroup", CONTROLLER),
    ("controllerDLegerPeers", CONTROLLER),
    ("controllerDLegerSelfId", CONTROLLER),
    ("controllerStorePath", CONTROLLER),
    ("sendMessageThreadPoolNums", THREADS),
    ("pullMessageThreadPoolNums", THREADS),
    ("queryMessageThreadPoolNums", THREADS),
    ("adminBrokerThreadPoolNums", THREADS),
    ("clientManageThreadPoolNums", THREADS),
    ("consumerManageThreadPoolNums", THREADS),
    ("heartbeatThreadPoolNums", THREADS),
    ("endTransactionThreadPoolNums", THREADS),
    ("processReplyMessageThreadPoolNums", THREADS),
    ("putMessageFutureThreadPoolNums", THREADS),
    ("ackMessageThreadPoolNums", THREADS),
    ("serverWorkerThreads", THREADS),
    ("serverCallbackExecutorThreads", THREADS),
    ("serverSelectorThreads", THREADS),
    ("sendThreadPoolQueueCapacity", THREADS),
    ("pullThreadPoolQueueCapacity", THREADS),
    (
        "useReentrantLockWhenPutMessage",
        "one task applies entries; there is no lock to choose",
    ),
    ("mapedFileSizeConsumeQueue", QUEUE_INDEX),
    ("mappedFileSizeConsumeQueue", QUEUE_INDEX),
    ("mappedFileSizeConsumeQueueExt", QUEUE_INDEX),
    ("enableConsumeQueueExt", QUEUE_INDEX),
    ("flushIntervalConsumeQueue", QUEUE_INDEX),
    ("flushConsumeQueueLeastPages", QUEUE_INDEX),
    ("flushConsumeQueueThoroughInterval", QUEUE_INDEX),
    ("storeType", QUEUE_INDEX),
    ("maxIndexNum", QUEUE_INDEX),
    ("maxHashSlotNum", QUEUE_INDEX),
    ("messageIndexEnable", QUEUE_INDEX),
    ("messageIndexSafe", QUEUE_INDEX),
    ("deleteWhen", RETENTION),
    ("fileReservedTime", RETENTION),
    (
        "diskMaxUsedSpaceRatio",
        "use diskReserveBytes, the free bytes below which writes are refused",
    ),
    ("cleanFileForciblyEnable", RETENTION),
    ("deleteCommitLogFilesInterval", RETENTION),
    ("deleteConsumeQueueFilesInterval", RETENTION),
    ("destroyMapedFileIntervalForcibly", RETENTION),
    ("redeleteHangedFileInterval", RETENTION),
    ("transientStorePoolEnable", NO_MMAP),
    ("transientStorePoolSize", NO_MMAP),
    ("fastFailIfNoBufferInStorePool", NO_MMAP),
    ("warmMapedFileEnable", NO_MMAP),
    ("flushLeastPagesWhenWarmMapedFile", NO_MMAP),
    ("osPageCacheBusyTimeOutMills", NO_MMAP),
    ("accessMessageInMemoryMaxRatio", NO_MMAP),
    ("transferMsgByHeap", NO_MMAP),
    (
        "flushCommitLogLeastPages",
        "a sync always takes all that waits",
    ),
    (
        "flushCommitLogThoroughInterval",
        "a sync always takes all that waits",
    ),
    ("flushCommitLogTimed", "a sync always takes all that waits"),
    ("commitIntervalCommitLog", NO_MMAP),
    ("commitCommitLogLeastPages", NO_MMAP),
    (
        "syncFlushTimeout",
        "a write that is not durable in time is reported as unknown",
    ),
    ("putMessageTimeout", "every reply leaves within 2.6 s"),
    ("storePathCommitLog", ONE_DIR),
    ("storePathDLedgerCommitLog", ONE_DIR),
    ("storePathConsumeQueue", ONE_DIR),
    ("storePathIndex", ONE_DIR),
    ("storeCheckpoint", ONE_DIR),
    ("abortFile", ONE_DIR),
    ("storePathEpochFile", ONE_DIR),
    ("readOnlyCommitLogStorePaths", ONE_DIR),
    ("checkCRCOnRecover", "every checksum is always checked"),
    (
        "longPollingEnable",
        "long polling is always on, for as long as the client asks",
    ),
    (
        "shortPollingTimeMills",
        "long polling is always on, for as long as the client asks",
    ),
    (
        "notifyConsumerIdsChangedEnable",
        "members are always told of changes",
    ),
    (
        "offsetCheckInSlave",
        "consumer offsets are in the log, the same on every node",
    ),
    (
        "flushConsumerOffsetInterval",
        "consumer offsets are in the log",
    ),
    ("brokerFastFailureEnable", FAST_FAILURE),
    ("waitTimeMillsInSendQueue", FAST_FAILURE),
    ("waitTimeMillsInPullQueue", FAST_FAILURE),
    (
        "startAcceptSendRequestTimeStamp",
        "a node accepts sends as soon as the group has a leader",
    ),
    (
        "brokerPermission",
        "not built yet: a broker is readable and writable",
    ),
    ("regionId", "messages carry the region DefaultRegion"),
    (
        "traceOn",
        "the trace property is always true, as RocketMQ's default",
    ),
    ("msgTraceTopicName", "trace topics are ordinary topics"),
    ("traceTopicEnable", "trace topics are ordinary topics"),
    ("enablePropertyFilter", "SQL92 filters are not built yet"),
    ("filterSupportRetry", "SQL92 filters are not built yet"),
    ("enableCalcFilterBitMap", "SQL92 filters are not built yet"),
    ("rejectTransactionMessage", TRANSACTIONS),
    ("transactionTimeOut", TRANSACTIONS),
    ("transactionCheckMax", TRANSACTIONS),
    ("transactionCheckInterval", TRANSACTIONS),
    ("enablePopLog", POP),
    ("popReviveInterval", POP),
    ("reviveQueueNum", POP),
    ("popCkStayBufferTime", POP),
    ("enablePopBufferMerge", POP),
    ("timerWheelEnable", TIMER),
    ("timerPrecisionMs", TIMER),
    ("timerMaxDelaySec", TIMER),
    ("timerStopDequeue", TIMER),
    ("timerStopEnqueue", TIMER),
    (
        "slaveReadUnCommitted",
        "only committed messages are ever read",
    ),
    ("readUnCommitted", "only committed messages are ever read"),
    (
        "clusterTopicEnable",
        "only TBW102 and topics that were created exist",
    ),
    (
        "brokerTopicEnable",
        "only TBW102 and topics that were created exist",
    ),
    (
        "serverSocketSndBufSize",
        "the system's socket buffers are used",
    ),
    (
        "serverSocketRcvBufSize",
        "the system's socket buffers are used",
    ),
    (
        "serverChannelMaxIdleTimeSeconds",
        "connections are closed after 120 s without a byte",
    ),
    ("useEpollNativeSelector", "the runtime always uses epoll"),
    (
        "bindAddress",
        "the doors listen on all addresses; brokerIP1 is the one that clients are told",
    ),
    ("rocketmqHome", "nothing is read from a home directory"),
    ("disableConsumeIfConsumerReadSlowly", "not built yet"),
    (
        "maxTransferCountOnMessageInMemory",
        "a pull returns at most 32 messages unless the client asks for fewer",
    ),
    (
        "maxTransferBytesOnMessageInMemory",
        "pulls are bounded in bytes by the server",
    ),
    (
        "metricsExporterType",
        "metrics are not exported yet; see `quorumlog status`",
    ),
    (
        "metricsPromExporterPort",
        "metrics are not exported yet; see `quorumlog status`",
    ),
];

/// Why RocketMQ's key `key` has no effect here, if it is one of those.
pub(super) fn no_effect(key: &str) -> Option<&'static str> {
    NO_EFFECT
        .iter()
        .find(|(name, _)| *name == key)
        .map(|(_, reason)| *reason)
}

/// The key that was probably meant by an unknown one: the nearest of all names, if it is near.
pub(super) fn nearest(key: &str) -> Option<&'static str> {
    let wanted = key.to_ascii_lowercase();
    READ.iter()
        .chain(PROMISES)
        .copied()
        .chain(NO_EFFECT.iter().map(|(name, _)| *name))
        .map(|name| {
            let distance = strsim::damerau_levenshtein(&wanted, &name.to_ascii_lowercase());
            (distance, name)
        })
        .filter(|(distance, name)| *distance <= 1 + name.len() / 6)
        .min()
        .map(|(_, name)| name)
}
