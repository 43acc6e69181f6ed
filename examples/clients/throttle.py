"""redis-cell's command, through redis-py.

    python3 throttle.py redis://127.0.0.1:6380 alice
"""

import sys

import redis

client = redis.Redis.from_url(sys.argv[1], socket_timeout=10)
key = sys.argv[2]
# A burst of 1 beyond the first request, and 2 requests in 60 seconds.
for _ in range(3):
    refused, limit, remaining, retry_after, reset_after = client.execute_command(
        "CL.THROTTLE", key, 1, 2, 60
    )
    if refused:
        print(f"refused, retry in {retry_after} s")
    else:
        print(f"allowed, {remaining} of {limit} left")
