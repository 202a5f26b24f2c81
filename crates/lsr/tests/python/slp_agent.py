"""A service agent of SLP (pyslp) at the interface of argv[1], with the service of argv[2] and argv[3]."""

import asyncio
import sys
import types

# pyslp was written for Python 3.7; what later versions took away is given back to it.
asyncio.coroutine = types.coroutine

from pyslp.slpd import SLPDServer  # noqa: E402

GROUP, PORT, FOR_EVER = "239.255.255.253", 427, 65535


async def main():
    here, kind, url = sys.argv[1:]
    agent = SLPDServer()
    serving = asyncio.ensure_future(serve(agent, here))
    while here not in agent.lifetime:
        await asyncio.sleep(0.01)
    agent.services[here][kind] = {url}
    agent.lifetime[here][url] = FOR_EVER
    await serving


async def serve(agent, here):
    await agent.update(ip_addrs=[here], mcast_port=PORT, mcast_group=GROUP)


asyncio.run(main())
