"""What a configuration makes of its workers."""

from fakes import GOOD, PATH, Upstream, gateway, run
from tailrace.proxy.testing.client import RawClient

YAML = """
listen: [127.0.0.1:0]
pools: {a: {workers: ["URL"], api_key: the-workers-key}}
models: {m: {pool: a}}
"""


def test_a_pools_key_goes_to_its_workers_in_place_of_the_clients():
    async def body():
        async with (
            Upstream(GOOD) as upstream,
            gateway(YAML.replace("URL", upstream.url)) as process,
            RawClient(process.doors[0].shown) as client,
        ):
            answer = await client.post(PATH, {"model": "m"}, {"authorization": "Bearer of-a-client"})
            assert answer.status == 200
            keys = [value for name, value in upstream.requests[0].headers if name.lower() == "authorization"]
            assert keys == ["Bearer the-workers-key"]

    run(body())
