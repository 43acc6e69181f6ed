"""Asks as Envoy does, over gRPC. Needs grpcio, and xds-protos for Envoy's messages.

    python3 rate_limit.py 127.0.0.1:8081 edge alice

With TLS, the files with the authority, and with the client's certificate and key if the service wants one:

    python3 rate_limit.py localhost:8081 edge alice ca.pem client.pem client.key
"""

import sys

import grpc
from envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

address, domain, user, *files = sys.argv[1:]
entry = RateLimitDescriptor.Entry(key="user", value=user)
request = rls_pb2.RateLimitRequest(domain=domain, descriptors=[RateLimitDescriptor(entries=[entry])])


def connect():
    if not files:
        return grpc.insecure_channel(address)
    ca, certificate, key = [open(file, "rb").read() for file in files] + [None] * (3 - len(files))
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate))


with connect() as channel:
    service = rls_pb2_grpc.RateLimitServiceStub(channel)
    for _ in range(3):
        try:
            answer = service.ShouldRateLimit(request, timeout=10)
        except grpc.RpcError as error:
            print(f"no answer ({error.code().name}): allowed")  # Fail open.
            continue
        status = answer.statuses[0]
        if answer.overall_code == rls_pb2.RateLimitResponse.OVER_LIMIT:
            fields = {field.key: field.value for field in answer.response_headers_to_add}
            print(f"refused, retry in {fields['retry-after']} s")
        else:
            print(f"allowed, {status.limit_remaining} left")
