"""Asks for the services of type argv[2] by SLP (pyslp) over the interface of argv[1]."""

import asyncio
import sys
import types

# pyslp was written for Python 3.7; what later versions took away is given back to it.
asyncio.coroutine = types.coroutine
wait = asyncio.wait
asyncio.wait = lambda tasks, **options: wait(map(asyncio.ensure_future, tasks), **options)

from pyslp.slptool import SLPClient  # noqa: E402


async def main():
    client = SLPClient(ip_addrs=sys.argv[1], loop=asyncio.get_running_loop())
    found, _ = await client.findsrvs(sys.argv[2])
    print(*[url for urls in found for url in urls], sep="\n")


asyncio.run(main())
