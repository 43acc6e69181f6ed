"""Asks a balde service before doing work. Standard library only.

    python3 check.py http://127.0.0.1:8085 per_user alice
"""

import json
import sys
import urllib.error
import urllib.request


def check(service, limit, key, tokens=1, timeout=0.2, token=None):
    """The service's decision, or None if it does not answer in time: then the caller has to choose."""
    body = json.dumps({"limit": limit, "key": key, "tokens": tokens}).encode()
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{service}/v1/check", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 503:  # Overloaded, or its Redis is unavailable.
            return None
        raise  # A mistake of this program: no such limit, no right.
    except (OSError, TimeoutError):
        return None


if __name__ == "__main__":
    service, limit, key = sys.argv[1:4]
    for _ in range(3):
        decision = check(service, limit, key, timeout=10)
        if decision is None:
            print("no answer: allowed")  # Fail open. A bank's quota would rather fail closed.
        elif decision["allowed"]:
            print(f"allowed, {decision['remaining']} left")
        else:
            print(f"refused, retry in {decision['retry_after_us'] / 1e6:.0f} s")
