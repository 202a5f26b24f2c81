//! Association state machine of ISO/IEEE 11073-20601 as two tables: manager and agent.
//!
//! States and rules have the standard's numbers: state 6 is *waiting for config*, rule 6.24 takes
//! the configuration report there. The tables are total: every state and every event of a role has
//! exactly one rule, which a test checks. A rule whose second number is 0 is this project's own,
//! with its reason beside it.
//!
//! Timeouts: the text of the standard was not at hand; the values below are those on which two
//! independent public stacks agree, and are *unverified* against it.

use core::time::Duration;

/// Time that an agent waits for the answer to its association request (TO-assoc, *unverified*).
pub const TO_ASSOCIATE: Duration = Duration::from_secs(10);
/// Association requests in all (RC-assoc, *unverified*).
pub const ASSOCIATE_ATTEMPTS: u8 = 3;
/// Time that either side waits for the other's part of the configuration (TO-config, *unverified*).
pub const TO_CONFIG: Duration = Duration::from_secs(10);
/// Time that either side waits for the answer to a release (TO-release, *unverified*).
pub const TO_RELEASE: Duration = Duration::from_secs(3);
/// Time that an agent waits for the answer to a confirmed report (TO-cer, *unverified*).
pub const TO_REPORT: Duration = Duration::from_secs(3);
/// Time that a manager waits for the answer to GET, SET or ACTION (TO-get, TO-cs, TO-ca,
/// *unverified*).
pub const TO_OPERATION: Duration = Duration::from_secs(3);
/// Time that a manager waits while a store is cleared: devices report 0 for "at once" or up to a
/// minute; this project's own value.
pub const TO_CLEAR: Duration = Duration::from_mins(1);

/// State of an association, numbered as in the standard.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum AssociationState {
    /// No transport.
    Disconnected = 1,
    /// Transport, but no association.
    Unassociated = 2,
    /// Agent: has sent an association request.
    Associating = 3,
    /// Agent: is about to send a configuration.
    ConfigSending = 4,
    /// Agent: has sent its configuration.
    WaitingApproval = 5,
    /// Manager: has accepted an agent whose configuration it does not know.
    WaitingForConfig = 6,
    /// Manager: checks the configuration.
    CheckingConfig = 7,
    /// Measurements are reported.
    Operating = 8,
    /// Has sent a release request.
    Disassociating = 9,
}

/// Event of an association.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum AssociationEvent {
    /// The transport is connected.
    TransportUp,
    /// The transport is disconnected.
    TransportDown,
    /// A wait timed out.
    Timeout,
    /// Agent: the association request timed out and may be repeated.
    TimeoutRetry,
    /// Agent: shall associate.
    AskAssociate,
    /// Shall release.
    AskRelease,
    /// Shall abort.
    AskAbort,
    /// Agent: has the configuration ready.
    SendConfig,
    /// Manager: an acceptable request with a known configuration. Agent: any request.
    AarqKnown,
    /// Manager: an acceptable request with an unknown configuration.
    AarqUnknown,
    /// Manager: a request that is not acceptable.
    AarqRefused,
    /// An acceptance with the configuration known. Manager: any answer.
    AareKnown,
    /// An acceptance that asks for the configuration.
    AareUnknown,
    /// A rejection.
    AareRejected,
    /// The peer sent a release request.
    Rlrq,
    /// The peer sent a release response.
    Rlre,
    /// The peer aborted.
    Abrt,
    /// Manager: a configuration report.
    ConfigReport,
    /// Manager: a report of measurements.
    Report,
    /// Agent: a GET of the device's attributes.
    Get,
    /// Any other operation.
    Invoke,
    /// Agent: the configuration is accepted.
    ConfigAccepted,
    /// Agent: the configuration is not accepted.
    ConfigRefused,
    /// Manager: the configuration is accepted.
    ConfigTaken,
    /// Manager: the configuration cannot be used.
    ConfigUnusable,
    /// Any other response: result, error or rejection.
    Response,
}

/// Action of a rule.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Nothing.
    None,
    /// Send an association request.
    SendAarq,
    /// Accept; the configuration is known.
    Accept,
    /// Accept; request the configuration.
    AcceptUnknown,
    /// Reject.
    Reject,
    /// Send an abort, reason undefined.
    Abort,
    /// Send an abort: a response timed out.
    AbortResponse,
    /// Send an abort: the configuration or its response timed out.
    AbortConfig,
    /// Send a release request.
    SendRlrq,
    /// Send a release response.
    SendRlre,
    /// Send the configuration report.
    SendConfig,
    /// Offer the next configuration, or release if there is none.
    OfferNext,
    /// Check the configuration report.
    CheckConfig,
    /// Answer that the configuration is accepted.
    ApproveConfig,
    /// Answer that the configuration is not supported.
    RefuseConfig,
    /// Take a configuration report although the configuration is known.
    LateConfig,
    /// Record the measurements.
    TakeReport,
    /// Answer that the operation is not possible now.
    Refuse,
    /// Serve the operation.
    Serve,
    /// Match a response with its request.
    Match,
}

/// One rule of a table.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The standard's number of the rule in its state; 0 for this project's own.
    pub number: u8,
    /// From this state,
    pub from: AssociationState,
    /// on one of these events,
    pub on: &'static [AssociationEvent],
    /// change to this state
    pub to: AssociationState,
    /// and perform this action.
    pub action: Action,
}

const fn rule(
    from: AssociationState,
    number: u8,
    on: &'static [AssociationEvent],
    to: AssociationState,
    action: Action,
) -> Rule {
    Rule { number, from, on, to, action }
}

use AssociationEvent as E;
use AssociationState::{
    Associating, CheckingConfig, ConfigSending, Disassociating, Disconnected, Operating,
    Unassociated, WaitingApproval, WaitingForConfig,
};

/// States of a manager.
pub const MANAGER_STATES: [AssociationState; 6] =
    [Disconnected, Unassociated, WaitingForConfig, CheckingConfig, Operating, Disassociating];

/// Events of a manager.
pub const MANAGER_EVENTS: [AssociationEvent; 18] = [
    E::TransportUp,
    E::TransportDown,
    E::Timeout,
    E::AskRelease,
    E::AskAbort,
    E::AarqKnown,
    E::AarqUnknown,
    E::AarqRefused,
    E::AareKnown,
    E::Rlrq,
    E::Rlre,
    E::Abrt,
    E::ConfigReport,
    E::Report,
    E::Invoke,
    E::Response,
    E::ConfigTaken,
    E::ConfigUnusable,
];

/// States of an agent.
pub const AGENT_STATES: [AssociationState; 7] = [
    Disconnected,
    Unassociated,
    Associating,
    ConfigSending,
    WaitingApproval,
    Operating,
    Disassociating,
];

/// Events of an agent.
pub const AGENT_EVENTS: [AssociationEvent; 20] = [
    E::TransportUp,
    E::TransportDown,
    E::Timeout,
    E::TimeoutRetry,
    E::AskAssociate,
    E::AskRelease,
    E::AskAbort,
    E::SendConfig,
    E::AarqKnown,
    E::AareKnown,
    E::AareUnknown,
    E::AareRejected,
    E::Rlrq,
    E::Rlre,
    E::Abrt,
    E::Get,
    E::Invoke,
    E::ConfigAccepted,
    E::ConfigRefused,
    E::Response,
];

const AARQ: &[AssociationEvent] = &[E::AarqKnown, E::AarqUnknown, E::AarqRefused];
const AARE: &[AssociationEvent] = &[E::AareKnown, E::AareUnknown, E::AareRejected];
const VERDICT: &[AssociationEvent] = &[E::ConfigTaken, E::ConfigUnusable];
/// Events of presentation APDUs at a manager.
const PRST: &[AssociationEvent] = &[E::ConfigReport, E::Report, E::Invoke, E::Response];
/// Events of presentation APDUs at an agent.
const PRST_TO_AGENT: &[AssociationEvent] =
    &[E::Get, E::Invoke, E::ConfigAccepted, E::ConfigRefused, E::Response];
/// Responses that an agent does not wait for.
const ANSWERS: &[AssociationEvent] = &[E::ConfigAccepted, E::ConfigRefused, E::Response];
/// Events that do not apply to an agent's state.
const NOT_HERE: &[AssociationEvent] =
    &[E::TransportUp, E::AskAssociate, E::SendConfig, E::TimeoutRetry];

/// Events without meaning while there is no transport.
const DISCONNECTED_MANAGER: &[AssociationEvent] = &[
    E::TransportDown,
    E::Timeout,
    E::AskRelease,
    E::AskAbort,
    E::AarqKnown,
    E::AarqUnknown,
    E::AarqRefused,
    E::AareKnown,
    E::Rlrq,
    E::Rlre,
    E::Abrt,
    E::ConfigReport,
    E::Report,
    E::Invoke,
    E::Response,
    E::ConfigTaken,
    E::ConfigUnusable,
];
const DISCONNECTED_AGENT: &[AssociationEvent] = &[
    E::TransportDown,
    E::Timeout,
    E::TimeoutRetry,
    E::AskAssociate,
    E::AskRelease,
    E::AskAbort,
    E::SendConfig,
    E::AarqKnown,
    E::AareKnown,
    E::AareUnknown,
    E::AareRejected,
    E::Rlrq,
    E::Rlre,
    E::Abrt,
    E::Get,
    E::Invoke,
    E::ConfigAccepted,
    E::ConfigRefused,
    E::Response,
];

/// The manager's table.
pub const MANAGER: &[Rule] = &[
    rule(Disconnected, 1, &[E::TransportUp], Unassociated, Action::None),
    rule(Disconnected, 0, DISCONNECTED_MANAGER, Disconnected, Action::None),
    rule(Unassociated, 2, &[E::TransportDown], Disconnected, Action::None),
    rule(Unassociated, 6, &[E::AskRelease], Unassociated, Action::None),
    rule(Unassociated, 7, &[E::AskAbort], Unassociated, Action::None),
    rule(Unassociated, 9, &[E::AarqKnown], Operating, Action::Accept),
    rule(Unassociated, 10, &[E::AarqUnknown], WaitingForConfig, Action::AcceptUnknown),
    rule(Unassociated, 11, &[E::AarqRefused], Unassociated, Action::Reject),
    rule(Unassociated, 12, &[E::AareKnown], Unassociated, Action::Abort),
    rule(Unassociated, 16, &[E::Rlrq], Unassociated, Action::Abort),
    rule(Unassociated, 17, &[E::Rlre], Unassociated, Action::None),
    rule(Unassociated, 18, &[E::Abrt], Unassociated, Action::None),
    rule(Unassociated, 19, PRST, Unassociated, Action::Abort),
    rule(Unassociated, 0, &[E::TransportUp, E::Timeout], Unassociated, Action::None),
    rule(Unassociated, 0, VERDICT, Unassociated, Action::None),
    rule(WaitingForConfig, 2, &[E::TransportDown], Disconnected, Action::None),
    rule(WaitingForConfig, 4, &[E::Timeout], Unassociated, Action::AbortConfig),
    rule(WaitingForConfig, 6, &[E::AskRelease], Disassociating, Action::SendRlrq),
    rule(WaitingForConfig, 7, &[E::AskAbort], Unassociated, Action::Abort),
    rule(WaitingForConfig, 8, AARQ, Unassociated, Action::Abort),
    rule(WaitingForConfig, 12, &[E::AareKnown], Unassociated, Action::Abort),
    rule(WaitingForConfig, 16, &[E::Rlrq], Unassociated, Action::SendRlre),
    rule(WaitingForConfig, 17, &[E::Rlre], Unassociated, Action::Abort),
    rule(WaitingForConfig, 18, &[E::Abrt], Unassociated, Action::None),
    rule(WaitingForConfig, 24, &[E::ConfigReport], CheckingConfig, Action::CheckConfig),
    rule(WaitingForConfig, 25, &[E::Report, E::Invoke], WaitingForConfig, Action::Refuse),
    rule(WaitingForConfig, 26, &[E::Response], WaitingForConfig, Action::Match),
    rule(WaitingForConfig, 0, &[E::TransportUp], WaitingForConfig, Action::None),
    rule(WaitingForConfig, 0, VERDICT, WaitingForConfig, Action::None),
    rule(CheckingConfig, 2, &[E::TransportDown], Disconnected, Action::None),
    rule(CheckingConfig, 4, &[E::Timeout], Unassociated, Action::AbortConfig),
    rule(CheckingConfig, 6, &[E::AskRelease], Disassociating, Action::SendRlrq),
    rule(CheckingConfig, 7, &[E::AskAbort], Unassociated, Action::Abort),
    rule(CheckingConfig, 8, AARQ, Unassociated, Action::Abort),
    rule(CheckingConfig, 12, &[E::AareKnown], Unassociated, Action::Abort),
    rule(CheckingConfig, 16, &[E::Rlrq], Unassociated, Action::SendRlre),
    rule(CheckingConfig, 17, &[E::Rlre], Unassociated, Action::Abort),
    rule(CheckingConfig, 18, &[E::Abrt], Unassociated, Action::None),
    rule(CheckingConfig, 24, &[E::ConfigReport, E::Report], CheckingConfig, Action::Refuse),
    rule(CheckingConfig, 25, &[E::Invoke], Unassociated, Action::Abort),
    rule(CheckingConfig, 26, &[E::Response], CheckingConfig, Action::Match),
    rule(CheckingConfig, 31, &[E::ConfigUnusable], WaitingForConfig, Action::RefuseConfig),
    rule(CheckingConfig, 32, &[E::ConfigTaken], Operating, Action::ApproveConfig),
    rule(CheckingConfig, 0, &[E::TransportUp], CheckingConfig, Action::None),
    rule(Operating, 2, &[E::TransportDown], Disconnected, Action::None),
    rule(Operating, 4, &[E::Timeout], Unassociated, Action::AbortResponse),
    rule(Operating, 6, &[E::AskRelease], Disassociating, Action::SendRlrq),
    rule(Operating, 7, &[E::AskAbort], Unassociated, Action::Abort),
    rule(Operating, 8, AARQ, Unassociated, Action::Abort),
    rule(Operating, 12, &[E::AareKnown], Unassociated, Action::Abort),
    rule(Operating, 16, &[E::Rlrq], Unassociated, Action::SendRlre),
    rule(Operating, 17, &[E::Rlre], Unassociated, Action::Abort),
    rule(Operating, 18, &[E::Abrt], Unassociated, Action::None),
    rule(Operating, 21, &[E::Report], Operating, Action::TakeReport),
    // A published model of the 2008 machine dead-locks where a configuration report meets a
    // manager that is operating already: it is taken.
    rule(Operating, 21, &[E::ConfigReport], Operating, Action::LateConfig),
    rule(Operating, 21, &[E::Invoke], Operating, Action::Refuse),
    rule(Operating, 26, &[E::Response], Operating, Action::Match),
    rule(Operating, 0, &[E::TransportUp], Operating, Action::None),
    rule(Operating, 0, VERDICT, Operating, Action::None),
    rule(Disassociating, 2, &[E::TransportDown], Disconnected, Action::None),
    rule(Disassociating, 4, &[E::Timeout], Unassociated, Action::Abort),
    rule(Disassociating, 6, &[E::AskRelease], Disassociating, Action::None),
    rule(Disassociating, 7, &[E::AskAbort], Unassociated, Action::Abort),
    rule(Disassociating, 8, AARQ, Unassociated, Action::Abort),
    rule(Disassociating, 12, &[E::AareKnown], Unassociated, Action::Abort),
    rule(Disassociating, 16, &[E::Rlrq], Disassociating, Action::SendRlre),
    rule(Disassociating, 17, &[E::Rlre], Unassociated, Action::None),
    rule(Disassociating, 18, &[E::Abrt], Unassociated, Action::None),
    rule(
        Disassociating,
        21,
        &[E::ConfigReport, E::Report, E::Invoke],
        Disassociating,
        Action::None,
    ),
    // A public table aborts here; but an answer that crossed the release request does no harm.
    rule(Disassociating, 26, &[E::Response], Disassociating, Action::None),
    rule(Disassociating, 0, &[E::TransportUp], Disassociating, Action::None),
    rule(Disassociating, 0, VERDICT, Disassociating, Action::None),
];

/// The agent's table.
pub const AGENT: &[Rule] = &[
    rule(Disconnected, 1, &[E::TransportUp], Unassociated, Action::None),
    rule(Disconnected, 0, DISCONNECTED_AGENT, Disconnected, Action::None),
    rule(Unassociated, 2, &[E::TransportDown], Disconnected, Action::None),
    rule(Unassociated, 5, &[E::AskAssociate], Associating, Action::SendAarq),
    rule(Unassociated, 6, &[E::AskRelease], Unassociated, Action::None),
    rule(Unassociated, 7, &[E::AskAbort], Unassociated, Action::Abort),
    rule(Unassociated, 8, &[E::AarqKnown], Unassociated, Action::Reject),
    rule(Unassociated, 12, AARE, Unassociated, Action::Abort),
    rule(Unassociated, 16, &[E::Rlrq], Unassociated, Action::Abort),
    rule(Unassociated, 17, &[E::Rlre], Unassociated, Action::None),
    rule(Unassociated, 18, &[E::Abrt], Unassociated, Action::None),
    rule(Unassociated, 19, PRST_TO_AGENT, Unassociated, Action::Abort),
    rule(Unassociated, 0, &[E::TransportUp, E::SendConfig], Unassociated, Action::None),
    rule(Unassociated, 0, &[E::Timeout, E::TimeoutRetry], Unassociated, Action::None),
    rule(Associating, 2, &[E::TransportDown], Disconnected, Action::None),
    rule(Associating, 3, &[E::TimeoutRetry], Associating, Action::SendAarq),
    rule(Associating, 4, &[E::Timeout], Unassociated, Action::AbortResponse),
    rule(Associating, 6, &[E::AskRelease], Unassociated, Action::Abort),
    rule(Associating, 7, &[E::AskAbort], Unassociated, Action::Abort),
    rule(Associating, 8, &[E::AarqKnown], Unassociated, Action::Reject),
    rule(Associating, 13, &[E::AareKnown], Operating, Action::None),
    rule(Associating, 14, &[E::AareUnknown], ConfigSending, Action::None),
    rule(Associating, 15, &[E::AareRejected], Unassociated, Action::None),
    rule(Associating, 16, &[E::Rlrq], Unassociated, Action::Abort),
    rule(Associating, 17, &[E::Rlre], Unassociated, Action::Abort),
    rule(Associating, 18, &[E::Abrt], Unassociated, Action::None),
    rule(Associating, 19, PRST_TO_AGENT, Unassociated, Action::Abort),
    rule(
        Associating,
        0,
        &[E::TransportUp, E::AskAssociate, E::SendConfig],
        Associating,
        Action::None,
    ),
    rule(ConfigSending, 2, &[E::TransportDown], Disconnected, Action::None),
    rule(ConfigSending, 4, &[E::Timeout], Unassociated, Action::AbortConfig),
    rule(ConfigSending, 6, &[E::AskRelease], Disassociating, Action::SendRlrq),
    rule(ConfigSending, 7, &[E::AskAbort], Unassociated, Action::Abort),
    rule(ConfigSending, 8, &[E::AarqKnown], Unassociated, Action::Abort),
    rule(ConfigSending, 12, AARE, Unassociated, Action::Abort),
    rule(ConfigSending, 16, &[E::Rlrq], Unassociated, Action::SendRlre),
    rule(ConfigSending, 17, &[E::Rlre], Unassociated, Action::Abort),
    rule(ConfigSending, 18, &[E::Abrt], Unassociated, Action::None),
    rule(ConfigSending, 22, &[E::Get], ConfigSending, Action::Serve),
    rule(ConfigSending, 23, &[E::Invoke], ConfigSending, Action::Refuse),
    rule(ConfigSending, 26, ANSWERS, Unassociated, Action::Abort),
    rule(ConfigSending, 32, &[E::SendConfig], WaitingApproval, Action::SendConfig),
    rule(
        ConfigSending,
        0,
        &[E::TransportUp, E::AskAssociate, E::TimeoutRetry],
        ConfigSending,
        Action::None,
    ),
    rule(WaitingApproval, 2, &[E::TransportDown], Disconnected, Action::None),
    rule(WaitingApproval, 4, &[E::Timeout], Unassociated, Action::AbortConfig),
    rule(WaitingApproval, 6, &[E::AskRelease], Disassociating, Action::SendRlrq),
    rule(WaitingApproval, 7, &[E::AskAbort], Unassociated, Action::Abort),
    rule(WaitingApproval, 8, &[E::AarqKnown], Unassociated, Action::Abort),
    rule(WaitingApproval, 12, AARE, Unassociated, Action::Abort),
    rule(WaitingApproval, 16, &[E::Rlrq], Unassociated, Action::SendRlre),
    rule(WaitingApproval, 17, &[E::Rlre], Unassociated, Action::Abort),
    rule(WaitingApproval, 18, &[E::Abrt], Unassociated, Action::None),
    // Managers in the field GET before they answer the configuration.
    rule(WaitingApproval, 22, &[E::Get], WaitingApproval, Action::Serve),
    rule(WaitingApproval, 23, &[E::Invoke], WaitingApproval, Action::Refuse),
    rule(WaitingApproval, 27, &[E::ConfigRefused], ConfigSending, Action::OfferNext),
    rule(WaitingApproval, 29, &[E::ConfigAccepted], Operating, Action::None),
    rule(WaitingApproval, 30, &[E::Response], Unassociated, Action::Abort),
    rule(WaitingApproval, 0, NOT_HERE, WaitingApproval, Action::None),
    rule(Operating, 2, &[E::TransportDown], Disconnected, Action::None),
    rule(Operating, 4, &[E::Timeout], Unassociated, Action::AbortResponse),
    rule(Operating, 6, &[E::AskRelease], Disassociating, Action::SendRlrq),
    rule(Operating, 7, &[E::AskAbort], Unassociated, Action::Abort),
    rule(Operating, 8, &[E::AarqKnown], Unassociated, Action::Abort),
    rule(Operating, 12, AARE, Unassociated, Action::Abort),
    rule(Operating, 16, &[E::Rlrq], Unassociated, Action::SendRlre),
    rule(Operating, 17, &[E::Rlre], Unassociated, Action::Abort),
    rule(Operating, 18, &[E::Abrt], Unassociated, Action::None),
    rule(Operating, 21, &[E::Get, E::Invoke], Operating, Action::Serve),
    rule(Operating, 26, ANSWERS, Operating, Action::Match),
    rule(Operating, 0, NOT_HERE, Operating, Action::None),
    rule(Disassociating, 2, &[E::TransportDown], Disconnected, Action::None),
    rule(Disassociating, 4, &[E::Timeout], Unassociated, Action::Abort),
    rule(Disassociating, 6, &[E::AskRelease], Disassociating, Action::None),
    rule(Disassociating, 7, &[E::AskAbort], Unassociated, Action::Abort),
    rule(Disassociating, 8, &[E::AarqKnown], Unassociated, Action::Abort),
    rule(Disassociating, 12, AARE, Unassociated, Action::Abort),
    rule(Disassociating, 16, &[E::Rlrq], Disassociating, Action::SendRlre),
    rule(Disassociating, 17, &[E::Rlre], Unassociated, Action::None),
    rule(Disassociating, 18, &[E::Abrt], Unassociated, Action::None),
    rule(Disassociating, 21, &[E::Get, E::Invoke], Disassociating, Action::None),
    // As for the manager: an answer that crossed the release request does no harm. It is one: the
    // report has arrived.
    rule(Disassociating, 26, ANSWERS, Disassociating, Action::Match),
    rule(Disassociating, 0, NOT_HERE, Disassociating, Action::None),
];

/// The rule of `table` for `event` in `state`; `None` only for events the role does not have.
pub fn step(
    table: &'static [Rule],
    state: AssociationState,
    event: AssociationEvent,
) -> Option<&'static Rule> {
    table.iter().find(|rule| rule.from == state && rule.on.contains(&event))
}

/// Time limit of a role in `state`; `None` without one.
///
/// In [`AssociationState::Operating`] each response has its own time limit, which manager and agent keep.
pub const fn patience(state: AssociationState) -> Option<Duration> {
    match state {
        Associating => Some(TO_ASSOCIATE),
        ConfigSending | WaitingApproval | WaitingForConfig | CheckingConfig => Some(TO_CONFIG),
        Disassociating => Some(TO_RELEASE),
        Disconnected | Unassociated | Operating => None,
    }
}
