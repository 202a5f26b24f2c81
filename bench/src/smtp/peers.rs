//! Relays that are not ours.

use super::world::{MailSink, SINK, text};
use gatewright_testbed::Process;
use std::fs;

/// Ports of the peers.
pub(super) const NGINX: u16 = 2528;
pub(super) const HAPROXY: u16 = 2527;
const HAPROXY_INNER: u16 = 2532;

/// nginx as a relay of streams: one worker, no look at what it carries.
pub(super) fn nginx(world: &MailSink) -> Result<Process, String> {
    let file = world.folder.join("nginx.conf");
    let pid = world.folder.join("nginx.pid");
    let configuration = format!(
        "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n\
         daemon off; master_process off; worker_processes 1; pid {};\n\
         error_log stderr; events {{ worker_connections 65536; }}\n\
         stream {{ server {{ listen 127.0.0.1:{NGINX} backlog=1024; \
         proxy_pass 127.0.0.1:{SINK}; }} }}\n",
        pid.display()
    );
    fs::write(&file, configuration).map_err(text)?;
    world.start("nginx", &["-c", &file.to_string_lossy()], NGINX)
}

/// Two haproxy one after the other, as the two gateways of a tunnel stand.
pub(super) fn haproxy_twice(world: &MailSink) -> Result<[Process; 2], String> {
    let start = |port: u16, next: u16| {
        let file = world.folder.join(format!("haproxy-{port}.cfg"));
        let configuration = format!(
            "global\n  nbthread 1\n  maxconn 4096\n\
             defaults\n  mode tcp\n  timeout connect 60s\n  timeout client 300s\n  \
             timeout server 300s\n\
             listen relay\n  bind 127.0.0.1:{port} backlog 1024\n  server next 127.0.0.1:{next}\n"
        );
        fs::write(&file, configuration).map_err(text)?;
        world.start("haproxy", &["-db", "-f", &file.to_string_lossy()], port)
    };
    Ok([start(HAPROXY_INNER, SINK)?, start(HAPROXY, HAPROXY_INNER)?])
}
