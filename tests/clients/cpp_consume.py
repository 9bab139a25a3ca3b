"""Consumes with the C++ client's push consumer (Python binding) and reports every delivery.

One JSON object a line on standard output: {"key", "unique", "tag", "queue", "offset", "times", "body"},
where "unique" is the id that the client gave to the attempt that stored it. Runs until end of input on
standard input.
"""

import argparse
import json
import sys
import threading

from rocketmq.client import PushConsumer, RecvMessage
from rocketmq.exceptions import ffi_check
from rocketmq.ffi import _CConsumeStatus, dll


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--expression", default="*")
    parser.add_argument("--orderly", action="store_true")
    parser.add_argument("--fail-first", default="", help="key whose first delivery fails: it must come again")
    args = parser.parse_args()

    lock = threading.Lock()
    failed = set()

    def text(value):
        return value.decode() if isinstance(value, bytes) else value

    def deliver(message):
        row = {
            "key": text(message.keys),
            "unique": text(message.get_property("UNIQ_KEY")),
            "tag": text(message.tags),
            "queue": message.queue_id,
            "offset": message.queue_offset,
            "times": message.reconsume_times,
            "body": text(message.body),
        }
        with lock:
            print(json.dumps(row), flush=True)
            if row["key"] == args.fail_first and row["key"] not in failed:
                failed.add(row["key"])
                return _CConsumeStatus.RECONSUME_LATER.value
        return _CConsumeStatus.CONSUME_SUCCESS.value

    def on_message(_consumer, handle):
        # The binding's own subscribe() raises out of the callback when a delivery fails, and what the library
        # then takes for the result is whatever happens to be there. So the result is returned here.
        return deliver(RecvMessage(handle))

    consumer = PushConsumer(args.group, orderly=args.orderly)
    consumer.set_namesrv_addr(args.namesrv)
    ffi_check(dll.Subscribe(consumer._handle, args.topic.encode(), args.expression.encode()))
    consumer._register_callback(on_message)
    consumer.start()
    print(json.dumps({"started": True}), flush=True)
    sys.stdin.read()
    consumer.shutdown()
    print(json.dumps({"done": True}), flush=True)


main()
