//! What goes on with the next control plane, as a command or the description has set it, and what is
//! said of a data plane that does not go on.

use super::{SOUTH, WITHIN, World, wait_until};
use serde_json::Value;
use std::fs;

/// Routes and handlers that were set by command go on whichever plane dies, and after an upgrade. A
/// capture ends, and is named. What was removed stays removed.
pub(super) fn what_was_set_by_command_goes_on() {
    const FAR: &str = "198.51.100.1";
    let world = World::new("by-command");
    world.links[1].b.add_address(&format!("{FAR}/24")).unwrap();
    world.describe("");
    let first = world.start();
    world.await_passes(SOUTH);
    let file = world.folder.join("command.pcapng");
    let set = |arguments: &[&str]| world.ask(arguments).text();
    set(&["route", "add", "198.51.100.0/24", "--via", SOUTH]);
    set(&["attach", "drop", "--at", "ether:ipv4", "--destination", "10.10.2.0/24"]);
    set(&["attach", "capture", "--at", "frame", "--file", file.to_str().unwrap()]);
    let goes_on = |when: &str| {
        assert!(wait_until(WITHIN, || world.passes(FAR)), "{when}: {}", world.said());
        assert!(!world.passes(SOUTH), "{when}: {}", world.said());
    };
    let attached = || world.ask(&["status", "--json"]).json()["attached"].clone();
    first.kill();
    goes_on("without control");
    let second = world.start();
    goes_on("under the next one");
    assert_eq!((&attached()[0]["handler"], &attached()[1]), (&"drop".into(), &Value::Null));
    let events = world.ask(&["events"]).text();
    assert!(events.contains("by-command-kept") && events.contains("handler capture at frame"));
    assert_eq!(events.matches("by-command-dropped").count(), 1, "{events}");
    world.kill(&world.planes()["data"].to_string());
    goes_on("after the data plane");
    second.kill();
    let third = world.start();
    goes_on("after both");
    assert!(!world.ask(&["events"]).text().contains("by-command-dropped"), "it was said before");
    let upgraded = world.upgrade(env!("CARGO_BIN_EXE_gatewright")).output().unwrap();
    assert!(upgraded.status.success(), "{}", world.said());
    goes_on("after an upgrade");
    set(&["detach", &attached()[0]["id"].to_string()]);
    set(&["route", "del", "198.51.100.0/24"]);
    third.kill();
    let last = world.start();
    world.await_passes(SOUTH);
    assert!(!world.passes(FAR) && attached()[0].is_null());
    world.end(&last);
}

/// A link that a command has set down stays down and is said to be down: under the next control
/// plane, after an upgrade and after the death of both planes. One that comes to its place is up.
pub(super) fn set_down() {
    let world = World::new("set-down");
    world.describe("");
    let first = world.start();
    world.await_passes(SOUTH);
    world.ask(&["link", "down", "wan"]).text();
    let stays = |when: &str| {
        assert!(!world.passes(SOUTH), "{when}: {}", world.said());
        let status = world.ask(&["status", "--json"]).json();
        let link = &status["links"][1];
        assert_eq!((&link["up"], &link["state"]), (&false.into(), &"down".into()), "{when}");
        let routes = world.ask(&["route", "--json"]).json();
        let all = routes["routes"].as_array().unwrap();
        assert!(all.iter().all(|route| route["to"] != "10.10.2.0/24"), "{when}: {routes}");
    };
    stays("at first");
    first.kill();
    let second = world.start();
    stays("under the next one");
    let events = world.ask(&["events"]).text();
    assert!(events.contains("link wan stays down, as a command has set it"), "{events}");
    let upgraded = world.upgrade(env!("CARGO_BIN_EXE_gatewright")).output().unwrap();
    assert!(upgraded.status.success(), "{}", world.said());
    stays("after an upgrade");
    let data = world.planes()["data"].to_string();
    second.kill();
    world.kill(&data);
    let is_gone = || world.processes().is_empty();
    assert!(wait_until(WITHIN, is_gone), "{}", world.shown());
    // The gateway has ended: nobody sets anything down in this one.
    let third = world.start();
    world.await_passes(SOUTH);
    world.ask(&["link", "down", "wan"]).text();
    let text = fs::read_to_string(world.folder.join("gateway.toml")).unwrap();
    let without = text.split_once("[link.wan]").unwrap().0;
    fs::write(world.folder.join("gateway.toml"), without).unwrap();
    world.ask(&["reload"]).text();
    fs::write(world.folder.join("gateway.toml"), text).unwrap();
    world.ask(&["reload"]).text();
    world.await_passes(SOUTH);
    world.ask(&["link", "down", "wan"]).text();
    third.kill();
    let fourth = world.start();
    stays("under the last one");
    world.ask(&["link", "up", "wan"]).text();
    world.await_passes(SOUTH);
    world.end(&fourth);
}

/// A capture of the description is written on in its file by each later control plane and gateway.
pub(super) fn captures_go_on() {
    use std::process::Command;

    let world = World::new("captures");
    let capture = world.folder.join("lan.pcapng");
    world.describe(&format!(
        "[[attach]]\nhandler = \"capture\"\nat = \"frame\"\nplace = \"tap\"\nlink = \"lan\"\n\
         file = \"{}\"\n",
        capture.display()
    ));
    let captured = || -> usize {
        let read =
            Command::new("tshark").arg("-r").arg(&capture).args(["-Y", "icmp"]).output().unwrap();
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        String::from_utf8_lossy(&read.stdout).lines().count()
    };
    let mut most = 0;
    let mut grows = |when: &str| {
        assert!(captured() >= most, "{when}: {most} and then {}", captured());
        world.await_passes(SOUTH);
        let more = || captured() > most;
        assert!(wait_until(WITHIN, more), "{when}: {most} and then {}", captured());
        most = captured();
    };
    let first = world.start();
    grows("at first");
    first.kill();
    let second = world.start();
    grows("under the next one");
    let upgraded = world.upgrade(env!("CARGO_BIN_EXE_gatewright")).output().unwrap();
    assert!(upgraded.status.success(), "{}", world.said());
    grows("after an upgrade");
    world.end(&second);
    let third = world.start();
    grows("of the next gateway");
    world.end(&third);
}

/// Status, metrics and `/readyz` say that nobody moves packets, until a reload has it moved again.
pub(super) fn given_up() {
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    let world = World::new("given-up");
    world.middle.ip(&["link", "set", "lo", "up"]).unwrap();
    world.describe("[web]\nlisten = \"127.0.0.1:8787\"\n");
    let gateway = world.start();
    world.await_passes(SOUTH);
    let ready = || {
        world.middle.run(|| {
            let request =
                "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:8787\r\nConnection: close\r\n\r\n";
            let mut stream = TcpStream::connect("127.0.0.1:8787").unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.split(' ').nth(1).unwrap().to_owned()
        })
    };
    assert!(wait_until(WITHIN, || ready().unwrap() == "200"), "{}", world.said());
    let metric = |value: u8| {
        let page = world.ask(&["status", "--metrics"]).text();
        page.contains(&format!("gatewright_data_plane_given_up {value}\n"))
    };
    assert!(metric(0));
    while world.planes()["given_up"] != true {
        let now = world.planes();
        if now["running"] == true {
            world.kill(&now["data"].to_string());
        }
    }
    let status = world.ask(&["status", "--json"]).json();
    assert!((0..2).all(|link| status["links"][link]["up"] == false), "{status}");
    assert!(metric(1));
    assert!(wait_until(WITHIN, || ready().unwrap() == "503"), "{}", world.said());
    world.ask(&["reload"]).text();
    world.await_passes(SOUTH);
    assert!(metric(0));
    assert!(wait_until(WITHIN, || ready().unwrap() == "200"), "{}", world.said());
    world.end(&gateway);
}
