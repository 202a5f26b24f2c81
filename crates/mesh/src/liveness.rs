//! A session of Bidirectional Forwarding Detection in asynchronous mode (RFC 5880), without echo,
//! demand mode and authentication.

use crate::layout::{LivenessHeader, LivenessHeaderFields};
use core::time::Duration;
use gatewright_sim::Random;

/// Interval of a session that is not up (RFC 5880 §6.8.3: at least one second).
const SLOW_INTERVAL: Duration = Duration::from_secs(1);

/// State of a session (RFC 5880 §4.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionState {
    /// Taken down on purpose.
    AdminDown,
    /// The peer is not heard.
    Down,
    /// The peer is heard; it has not said that it hears this side.
    Init,
    /// Both sides hear each other.
    Up,
}

impl SessionState {
    const fn number(self) -> u8 {
        match self {
            Self::AdminDown => 0,
            Self::Down => 1,
            Self::Init => 2,
            Self::Up => 3,
        }
    }

    const fn of(number: u8) -> Self {
        match number {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }
}

/// What a step of a session has changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionChange {
    /// Nothing that its user must know.
    Nothing,
    /// The session is up.
    Up,
    /// The session was up and is down.
    Down,
    /// The peer has ended the session on purpose.
    Ended,
}

/// A session with one neighbour.
#[derive(Clone, Debug)]
pub struct LivenessSession {
    state: SessionState,
    discriminator: u32,
    peer_discriminator: u32,
    interval: Duration,
    /// The interval before this one, until the peer has answered the Poll Sequence about it.
    before: Option<Duration>,
    multiplier: u8,
    peer_interval: Duration,
    peer_required: Duration,
    peer_multiplier: u8,
    diagnostic: u8,
    polling: bool,
    /// From when on the next packet may be sent, and when it is.
    may_send_at: Duration,
    send_at: Duration,
    detect_at: Option<Duration>,
}

impl LivenessSession {
    /// A session that sends its first packet at once.
    pub const fn new(
        now: Duration,
        discriminator: u32,
        interval: Duration,
        multiplier: u8,
    ) -> Self {
        Self {
            state: SessionState::Down,
            discriminator,
            peer_discriminator: 0,
            interval,
            before: None,
            multiplier,
            peer_interval: SLOW_INTERVAL,
            peer_required: Duration::from_micros(1),
            peer_multiplier: 3,
            diagnostic: 0,
            polling: false,
            may_send_at: now,
            send_at: now,
            detect_at: None,
        }
    }

    /// State of the session.
    pub const fn state(&self) -> SessionState {
        self.state
    }

    /// Sets Desired Min TX Interval and Required Min RX Interval; a Poll Sequence tells the peer
    /// (RFC 5880 §6.8.3).
    pub fn set_interval(&mut self, interval: Duration) {
        if interval == self.interval {
            return;
        }
        if self.state == SessionState::Up {
            self.before.get_or_insert(self.interval);
            self.polling = true;
        }
        self.interval = interval;
    }

    /// Time of the next step.
    pub fn poll_timeout(&self) -> Duration {
        self.detect_at.map_or(self.send_at, |detect| detect.min(self.send_at))
    }

    /// When the peer is found silent, if a packet of it changes nothing but this time, and that to a later
    /// one.
    pub fn postponed_by(&self, packet: &LivenessHeaderFields) -> Option<Duration> {
        let up = SessionState::Up.number();
        let is_the_same = self.state == SessionState::Up
            && packet.state == up
            && !packet.poll
            && !packet.final_
            && packet.your_discriminator == self.discriminator
            && packet.my_discriminator == self.peer_discriminator
            && micros(packet.desired_min_tx_interval) == self.peer_interval
            && micros(packet.required_min_rx_interval) == self.peer_required
            && packet.detect_mult == self.peer_multiplier;
        self.detect_at.filter(|_| is_the_same && self.before.is_none())
    }

    /// Sends the next packet now, where another session of the node sends: with a timer for all that is up to
    /// a quarter of the interval early, as the jitter of RFC 5880 §6.8.7 allows.
    pub fn join(&mut self, now: Duration) {
        if self.state == SessionState::Up && self.may_send_at <= now {
            self.send_at = self.send_at.min(now);
        }
    }

    /// Processes a packet of the peer (RFC 5880 §6.8.6).
    pub fn receive(&mut self, now: Duration, packet: &LivenessHeaderFields) -> SessionChange {
        let state = SessionState::of(packet.state);
        let known = packet.your_discriminator == self.discriminator;
        let may_be_zero = matches!(state, SessionState::Down | SessionState::AdminDown);
        if !known && (packet.your_discriminator != 0 || !may_be_zero) {
            return SessionChange::Nothing;
        }
        self.peer_discriminator = packet.my_discriminator;
        self.peer_interval = micros(packet.desired_min_tx_interval);
        self.peer_required = micros(packet.required_min_rx_interval);
        self.peer_multiplier = packet.detect_mult;
        if packet.final_ {
            self.polling = false;
            self.before = None;
        }
        let before = self.state;
        let change = self.transition(state);
        self.detect_at = Some(now + self.detection_time());
        if self.state != before || packet.poll {
            self.send_at = now;
        }
        change
    }

    /// The state machine (RFC 5880 §6.2, §6.8.6).
    fn transition(&mut self, peer: SessionState) -> SessionChange {
        match (self.state, peer) {
            (_, SessionState::AdminDown) => {
                // "Neighbor Signaled Session Down".
                self.diagnostic = 3;
                self.state = SessionState::Down;
                SessionChange::Ended
            }
            (SessionState::Down, SessionState::Down) => {
                self.state = SessionState::Init;
                SessionChange::Nothing
            }
            (SessionState::Down, SessionState::Init)
            | (SessionState::Init, SessionState::Init | SessionState::Up) => {
                self.state = SessionState::Up;
                self.diagnostic = 0;
                // The interval changes from the slow to the fast one: a Poll Sequence.
                self.polling = true;
                SessionChange::Up
            }
            (SessionState::Up, SessionState::Down) => {
                self.diagnostic = 3;
                self.state = SessionState::Down;
                SessionChange::Down
            }
            _ => SessionChange::Nothing,
        }
    }

    /// Takes the steps that are due: a packet to send, if there is one, and what has changed.
    pub fn poll(
        &mut self,
        now: Duration,
        random: &mut Random,
    ) -> (Option<LivenessHeaderFields>, SessionChange) {
        let mut change = SessionChange::Nothing;
        if self.detect_at.is_some_and(|at| at <= now) {
            self.detect_at = None;
            if matches!(self.state, SessionState::Init | SessionState::Up) {
                if self.state == SessionState::Up {
                    change = SessionChange::Down;
                }
                self.state = SessionState::Down;
                // "Control Detection Time Expired".
                self.diagnostic = 1;
            }
            self.peer_discriminator = 0;
        }
        if self.send_at > now {
            return (None, change);
        }
        let interval = self.transmit_interval();
        // RFC 5880 §6.8.7: 75 to 100 % of the interval; at most 90 % with a multiplier of one.
        let least = interval.mul_f32(0.75);
        let spread = interval.mul_f32(if self.multiplier == 1 { 0.15 } else { 0.25 });
        self.may_send_at = now + least;
        self.send_at = self.may_send_at + random.time_below(spread);
        (Some(self.packet(self.state, false)), change)
    }

    /// The answer to a packet with the bit *Poll*.
    pub fn final_packet(&self) -> LivenessHeaderFields {
        self.packet(self.state, true)
    }

    /// The last packet of a session that ends on purpose.
    pub fn farewell(&self) -> LivenessHeaderFields {
        self.packet(SessionState::AdminDown, false)
    }

    fn packet(&self, state: SessionState, answer: bool) -> LivenessHeaderFields {
        let desired = if state == SessionState::Up { self.interval } else { SLOW_INTERVAL };
        LivenessHeaderFields {
            diagnostic: self.diagnostic,
            state: state.number(),
            poll: self.polling && !answer,
            final_: answer,
            control_plane_independent: false,
            authentication: false,
            demand: false,
            multipoint: false,
            detect_mult: self.multiplier,
            length: u8::try_from(LivenessHeader::LEN).unwrap_or(0),
            my_discriminator: self.discriminator,
            your_discriminator: self.peer_discriminator,
            desired_min_tx_interval: in_micros(desired),
            required_min_rx_interval: in_micros(self.interval),
            required_min_echo_rx_interval: 0,
        }
    }

    /// RFC 5880 §6.8.7. A longer interval is not used before the Poll Sequence ends (§6.8.3).
    fn transmit_interval(&self) -> Duration {
        let interval = self.before.map_or(self.interval, |before| before.min(self.interval));
        let own = if self.state == SessionState::Up { interval } else { SLOW_INTERVAL };
        own.max(self.peer_required)
    }

    /// RFC 5880 §6.8.4. A shorter interval is not expected before the Poll Sequence ends (§6.8.3).
    fn detection_time(&self) -> Duration {
        let interval = self.before.map_or(self.interval, |before| before.max(self.interval));
        interval.max(self.peer_interval) * u32::from(self.peer_multiplier)
    }
}

fn micros(micros: u32) -> Duration {
    Duration::from_micros(u64::from(micros))
}

fn in_micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
