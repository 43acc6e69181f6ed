"""Asks as Envoy does, over gRPC. Needs grpcio, and xds-protos for Envoy's messages.

    python3 rate_limit.py 127.0.0.1:8081 edge alice
"""

import sys

import grpc
from envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

address, domain, user = sys.argv[1:4]
entry = RateLimitDescriptor.Entry(key="user", value=user)
request = rls_pb2.RateLimitRequest(domain=domain, descriptors=[RateLimitDescriptor(entries=[entry])])
with grpc.insecure_channel(address) as channel:
    service = rls_pb2_grpc.RateLimitServiceStub(channel)
    for _ in range(3):
        try:
            answer = service.ShouldRateLimit(request, timeout=10, wait_for_ready=True)
        except grpc.RpcError as error:
            print(f"no answer ({error.code().name}): allowed")  # Fail open.
            continue
        status = answer.statuses[0]
        if answer.overall_code == rls_pb2.RateLimitResponse.OVER_LIMIT:
            fields = {field.key: field.value for field in answer.response_headers_to_add}
            print(f"refused, retry in {fields['retry-after']} s")
        else:
            print(f"allowed, {status.limit_remaining} left")
