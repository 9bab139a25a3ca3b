"""Sends numbered messages with the C++ client (Python binding) and reports every result.

One JSON object a line on standard output, in the order of the sends:
  {"key", "group_key", "seq", "tag", "began", "ended", "ok": true, "msg_id", "offset"}
  {"key", ..., "ok": false, "error"}
Times are seconds of the monotonic clock. A failed send is reported and not sent again: what became of it
is unknown, unless the text says that it was refused. Stops after --count sends, or at end of input on
standard input, whichever comes first.
"""

import argparse
import json
import select
import sys
import time

from rocketmq.client import Message, Producer


def stop_asked():
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and sys.stdin.read(1) == ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--interval-ms", type=float, default=5)
    parser.add_argument("--tags", default="TagA,TagB")
    parser.add_argument("--orderly-keys", type=int, default=0, help="send in order, by this many keys")
    args = parser.parse_args()

    producer = Producer(args.group)
    producer.set_namesrv_addr(args.namesrv)
    producer.start()
    print(json.dumps({"started": True}), flush=True)
    tags = args.tags.split(",")
    sequence = {}
    for number in range(args.count):
        if stop_asked():
            break
        group_key = number % args.orderly_keys if args.orderly_keys else 0
        seq = sequence.get(group_key, 0)
        sequence[group_key] = seq + 1
        key = "%s-%d-%d" % (args.group, group_key, seq)
        tag = tags[number % len(tags)]
        message = Message(args.topic)
        message.set_keys(key)
        message.set_tags(tag)
        message.set_body(json.dumps({"key": key, "group_key": group_key, "seq": seq}))
        row = {"key": key, "group_key": group_key, "seq": seq, "tag": tag, "began": time.monotonic()}
        try:
            if args.orderly_keys:
                result = producer.send_orderly(message, group_key, retry_times=5)
            else:
                result = producer.send_sync(message)
            row.update(ok=int(result.status) == 0, status=int(result.status), msg_id=result.msg_id, offset=result.offset)
        except Exception as error:  # the binding raises several kinds; each is "no success"
            row.update(ok=False, error=str(error))
        row["ended"] = time.monotonic()
        print(json.dumps(row), flush=True)
        time.sleep(args.interval_ms / 1000)
    producer.shutdown()
    print(json.dumps({"done": True}), flush=True)


main()
