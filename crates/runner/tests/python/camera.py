"""A camera (gst-rtsp-server) at port argv[1]: a test picture under each name that follows.

Sessions that are silent for ten seconds may be forgotten; each OPTIONS is told on standard output.
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

PICTURE = (
    "( videotestsrc is-live=true ! video/x-raw,format=I420,width=160,height=120,framerate=10/1"
    " ! jpegenc ! rtpjpegpay name=pay0 pt=26 )"
)

Gst.init(None)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service(sys.argv[1])
for name in sys.argv[2:]:
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch(PICTURE)
    server.get_mount_points().add_factory("/" + name, factory)


def met(_server, client):
    """What a client asks is told, and its session hears how long it may be silent."""
    client.connect("new-session", lambda _client, session: session.set_timeout(10))
    client.connect("options-request", lambda _client, _context: print("OPTIONS", flush=True))


server.connect("client-connected", met)
server.attach(None)
GLib.MainLoop().run()
