//! Sessions of BFD whose interval changes (RFC 5880 §6.8.3).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_mesh::liveness::{LivenessSession, SessionChange, SessionState};
use gatewright_mesh::{LinkProperties, MeshInput, MeshNode, MeshSettings, NodeId, Profile};
use gatewright_packet::LinkIndex;
use gatewright_sim::Random;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Two ends of a link, and when the first has sent.
struct Sessions {
    ends: [LivenessSession; 2],
    random: Random,
    now: Duration,
    sent: Vec<Duration>,
    /// Whether packets of the second end are lost.
    deaf: bool,
    downs: u32,
}

impl Sessions {
    fn new(interval: Duration) -> Self {
        let end = |number| LivenessSession::new(Duration::ZERO, number, interval, 3);
        let (ends, random) = ([end(1), end(2)], Random::new(7));
        let mut this =
            Self { ends, random, now: Duration::ZERO, sent: Vec::new(), deaf: false, downs: 0 };
        this.run_for(5_000 * MS);
        assert!(this.ends.iter().all(|end| end.state() == SessionState::Up));
        this.sent.clear();
        this
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now += MS;
            for from in 0..2 {
                let [first, second] = &mut self.ends;
                let (own, other) = if from == 0 { (first, second) } else { (second, first) };
                let (packet, change) = own.poll(self.now, &mut self.random);
                self.downs += u32::from(change == SessionChange::Down);
                let Some(packet) = packet else { continue };
                if from == 0 {
                    self.sent.push(self.now);
                } else if self.deaf {
                    continue;
                }
                other.receive(self.now, &packet);
                if packet.poll {
                    own.receive(self.now, &other.final_packet());
                }
            }
        }
    }

    /// The shortest and the longest time between two packets of the first end.
    fn gaps(&self) -> (Duration, Duration) {
        let gaps: Vec<_> =
            self.sent.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
        (*gaps.iter().min().unwrap(), *gaps.iter().max().unwrap())
    }
}

#[test]
fn an_interval_becomes_longer_and_shorter_while_the_session_is_up() {
    let mut sessions = Sessions::new(50 * MS);
    sessions.run_for(2_000 * MS);
    let (least, most) = sessions.gaps();
    assert!(least >= 37 * MS && most <= 51 * MS, "{least:?} {most:?}");
    sessions.ends[0].set_interval(200 * MS);
    // The Poll Sequence ends with the next packet, which comes in the old interval.
    sessions.run_for(60 * MS);
    sessions.sent.clear();
    sessions.run_for(4_000 * MS);
    let (least, most) = sessions.gaps();
    assert!(least >= 150 * MS && most <= 201 * MS, "{least:?} {most:?}");
    sessions.ends[0].set_interval(50 * MS);
    sessions.run_for(300 * MS);
    sessions.sent.clear();
    sessions.run_for(2_000 * MS);
    assert!(sessions.gaps().1 <= 51 * MS);
    assert_eq!(sessions.downs, 0);
}

/// Detection takes three of the longer interval of both ends.
#[test]
fn a_silent_peer_is_found_in_three_of_the_longer_interval() {
    for (interval, bounds) in [(50, 110..=160), (200, 450..=610)] {
        let mut sessions = Sessions::new(50 * MS);
        sessions.ends[0].set_interval(interval * MS);
        sessions.run_for(2_000 * MS);
        sessions.deaf = true;
        let began = sessions.now;
        while sessions.downs == 0 && sessions.now < began + 5_000 * MS {
            sessions.run_for(MS);
        }
        let took = sessions.now.saturating_sub(began).as_millis();
        assert!(bounds.contains(&took), "{interval} ms: {took} ms");
    }
}

/// A node whose timers are late sends less often at once, and more often when they have been in time
/// for half a minute.
#[test]
fn a_late_node_sends_less_often() {
    let mut node = MeshNode::new(MeshSettings::new(NodeId(1), 1, Profile::Default));
    for (now, late, interval) in [
        (1, 20, 50),
        (2, 40, 80),
        (3, 100, 200),
        (4, 1, 200),
        (32, 1, 200),
        (33, 1, 50),
        (34, 2_000, 1_000),
        (70, 400, 1_000),
        (71, 300, 600),
    ] {
        let input = MeshInput::TimerLateness { p999: late * MS };
        node.handle(Duration::from_secs(now), input);
        assert_eq!(node.liveness_interval(), interval * MS, "{now} s");
    }
}

/// A session sends with another one of its node from three quarters of its interval on, and not before
/// (RFC 5880 §6.8.7).
#[test]
fn sessions_of_a_node_send_together() {
    let mut sessions = Sessions::new(40 * MS);
    while sessions.sent.is_empty() {
        sessions.run_for(MS);
    }
    let (sent_at, own) = (sessions.now, &mut sessions.ends[0]);
    let due = own.poll_timeout();
    assert!(due >= sent_at + 30 * MS && due <= sent_at + 40 * MS, "{due:?} after {sent_at:?}");
    own.join(sent_at + 29 * MS);
    assert_eq!(own.poll_timeout(), due);
    own.join(sent_at + 30 * MS);
    let (packet, change) = own.poll(sent_at + 30 * MS, &mut sessions.random);
    assert!(packet.is_some() && change == SessionChange::Nothing);
    assert!(own.poll_timeout() >= sent_at + 60 * MS);
}

/// The I'M ALIVEs of all links are sent together, every 2 s: 95 to 105 % of it.
#[test]
fn a_node_has_one_timer_for_its_links() {
    let mut node = MeshNode::new(MeshSettings::new(NodeId(1), 1, Profile::Default));
    for link in (0..8).map(LinkIndex) {
        let properties = LinkProperties::default();
        node.handle(Duration::ZERO, MeshInput::LinkUp { link, properties });
    }
    let (mut ticks, mut sent) = (0, 0);
    while let Some(now) = node.poll_timeout().filter(|&at| at < 60_000 * MS) {
        node.handle(now, MeshInput::Tick);
        ticks += 1;
        sent += std::iter::from_fn(|| node.poll_output()).count();
    }
    assert!((28..=33).contains(&ticks), "{ticks}");
    assert_eq!(sent, 8 * ticks);
}
