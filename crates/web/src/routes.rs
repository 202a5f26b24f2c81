//! Every path of the server, with its methods: the dispatcher and the description of the API read
//! this table.

use crate::tokens::AccessRole;

/// What answers at a path.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Endpoint {
    /// The process runs.
    Live,
    /// The gateway is ready, or why not.
    Ready,
    /// OpenMetrics text.
    Metrics,
    /// The caller's role.
    Session,
    /// Begins a session with a token.
    BeginSession,
    /// Ends the session.
    EndSession,
    /// Status and counters.
    Status,
    /// Status and events as they change.
    Stream,
    /// Kept events.
    Events,
    /// The description of the API.
    OpenApi,
    /// Layers and edges.
    Graph,
    /// The mesh's node.
    Mesh,
    /// Devices.
    Devices,
    /// A resource with its children.
    Resources,
    /// Traces packets or a message.
    Trace,
    /// Shows packets at a position while they pass.
    Tap,
    /// The description's file.
    Config,
    /// Takes the description's file.
    Reload,
    /// The descriptions that were taken.
    History,
    /// One of them against what runs.
    Differences,
    /// Takes one of them again.
    RollBack,
    /// The delay lab's reports.
    LabReports,
    /// One of them.
    LabReport,
    /// The labels of a path of the mesh.
    MeshTrace,
    /// The routes in force.
    Routes,
    /// The known neighbours.
    Neighbours,
    /// Attaches a handler.
    Attach,
    /// Detaches one.
    Detach,
    /// Takes a link down, or up.
    SetLink,
    /// Adds a route.
    AddRoute,
    /// Removes routes.
    RemoveRoute,
    /// Sets a neighbour.
    AddNeighbour,
    /// Forgets one.
    RemoveNeighbour,
    /// Forgets all learnt ones.
    FlushNeighbours,
    /// Writes other events.
    SetLogLevel,
}

impl Endpoint {
    /// Whether a request takes a turn of those that ask the gateway. The status is mostly known.
    pub(crate) const fn asks(self) -> bool {
        !matches!(
            self,
            Self::Live
                | Self::Session
                | Self::BeginSession
                | Self::EndSession
                | Self::Status
                | Self::Stream
                | Self::Events
                | Self::OpenApi
        )
    }

    /// Whether it has done nothing when its answer is a refusal.
    pub(crate) const fn is_begun_by_answer(self) -> bool {
        matches!(self, Self::Trace | Self::Tap)
    }

    /// Whether it changes the description that the gateway runs.
    pub(crate) const fn changes_description(self) -> bool {
        matches!(self, Self::Reload | Self::RollBack)
    }
}

/// A path with a method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WebRoute {
    /// The method; GET stands for HEAD, too.
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) endpoint: Endpoint,
    /// The least role that may ask; `None` if everybody may.
    pub(crate) role: Option<AccessRole>,
}

impl WebRoute {
    /// Whether it changes something (RFC 9110 §9.2.1).
    pub(crate) fn is_change(&self) -> bool {
        self.method != "GET"
    }
}

const fn route(
    method: &'static str,
    path: &'static str,
    endpoint: Endpoint,
    role: Option<AccessRole>,
) -> WebRoute {
    WebRoute { method, path, endpoint, role }
}

const VIEWER: Option<AccessRole> = Some(AccessRole::Viewer);
const OPERATOR: Option<AccessRole> = Some(AccessRole::Operator);

/// All routes beside the page's own files.
pub(crate) static ROUTES: &[WebRoute] = &[
    route("GET", "/livez", Endpoint::Live, None),
    route("GET", "/readyz", Endpoint::Ready, None),
    route("GET", "/metrics", Endpoint::Metrics, VIEWER),
    route("GET", "/api/v1/session", Endpoint::Session, None),
    route("POST", "/api/v1/session", Endpoint::BeginSession, None),
    route("DELETE", "/api/v1/session", Endpoint::EndSession, None),
    route("GET", "/api/v1/status", Endpoint::Status, VIEWER),
    route("GET", "/api/v1/stream", Endpoint::Stream, VIEWER),
    route("GET", "/api/v1/events", Endpoint::Events, VIEWER),
    route("GET", "/api/v1/openapi.json", Endpoint::OpenApi, None),
    route("GET", "/api/v1/graph", Endpoint::Graph, VIEWER),
    route("GET", "/api/v1/mesh", Endpoint::Mesh, VIEWER),
    route("GET", "/api/v1/devices", Endpoint::Devices, VIEWER),
    route("GET", "/api/v1/resources", Endpoint::Resources, VIEWER),
    route("POST", "/api/v1/trace", Endpoint::Trace, OPERATOR),
    route("POST", "/api/v1/tap", Endpoint::Tap, OPERATOR),
    route("GET", "/api/v1/config", Endpoint::Config, Some(AccessRole::Admin)),
    route("POST", "/api/v1/reload", Endpoint::Reload, OPERATOR),
    route("GET", "/api/v1/config/history", Endpoint::History, OPERATOR),
    route("GET", "/api/v1/config/differences", Endpoint::Differences, OPERATOR),
    route("POST", "/api/v1/config/rollback", Endpoint::RollBack, OPERATOR),
    route("GET", "/api/v1/lab/reports", Endpoint::LabReports, VIEWER),
    route("GET", "/api/v1/lab/report", Endpoint::LabReport, VIEWER),
    route("POST", "/api/v1/mesh/trace", Endpoint::MeshTrace, OPERATOR),
    route("GET", "/api/v1/routes", Endpoint::Routes, VIEWER),
    route("GET", "/api/v1/neighbours", Endpoint::Neighbours, VIEWER),
    route("POST", "/api/v1/handlers/attach", Endpoint::Attach, OPERATOR),
    route("POST", "/api/v1/handlers/detach", Endpoint::Detach, OPERATOR),
    route("POST", "/api/v1/link", Endpoint::SetLink, OPERATOR),
    route("POST", "/api/v1/routes/add", Endpoint::AddRoute, OPERATOR),
    route("POST", "/api/v1/routes/remove", Endpoint::RemoveRoute, OPERATOR),
    route("POST", "/api/v1/neighbours/add", Endpoint::AddNeighbour, OPERATOR),
    route("POST", "/api/v1/neighbours/remove", Endpoint::RemoveNeighbour, OPERATOR),
    route("POST", "/api/v1/neighbours/flush", Endpoint::FlushNeighbours, OPERATOR),
    route("POST", "/api/v1/log/level", Endpoint::SetLogLevel, OPERATOR),
];

/// The route of a request, if its path has one.
pub(crate) enum Found {
    Route(&'static WebRoute),
    /// The path has other methods: these.
    OtherMethod(String),
    Nothing,
}

/// Finds the route of a request.
pub(crate) fn find(method: &str, path: &str) -> Found {
    let method = if method == "HEAD" { "GET" } else { method };
    let of_path = || ROUTES.iter().filter(|route| route.path == path);
    if let Some(route) = of_path().find(|route| route.method == method) {
        return Found::Route(route);
    }
    let methods =
        of_path().map(|route| if route.method == "GET" { "GET, HEAD" } else { route.method });
    let methods = methods.collect::<Vec<_>>().join(", ");
    if methods.is_empty() { Found::Nothing } else { Found::OtherMethod(methods) }
}
