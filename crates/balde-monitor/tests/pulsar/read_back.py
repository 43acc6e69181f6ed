"""Prints every message of a topic as a line of JSON: URL, topic, number of different keys."""

import json
import sys

import pulsar

FIRST_MS, FURTHER_MS = 20_000, 500

url, topic, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
client = pulsar.Client(url, operation_timeout_seconds=20, logger=logger)
reader = client.create_reader(topic, pulsar.MessageId.earliest)
keys = set()
while True:
    try:
        message = reader.read_next(FIRST_MS if len(keys) < wanted else FURTHER_MS)
    except pulsar.Timeout:
        break
    keys.add(message.properties().get("key"))
    line = {
        "payload": message.data().decode(),
        "properties": message.properties(),
        "partition_key": message.partition_key(),
        "event_ms": message.event_timestamp(),
    }
    print(json.dumps(line))
client.close()
