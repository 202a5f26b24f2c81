//! Every path of the server, with its methods: the dispatcher and the description of the API read
//! this table.

/// What answers at a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Endpoint {
    /// The process runs.
    Live,
    /// The gateway is ready, or why not.
    Ready,
    /// OpenMetrics text.
    Metrics,
    /// Status and counters.
    Status,
    /// Status and events as they change.
    Stream,
    /// Kept events.
    Events,
}

/// A path with a method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WebRoute {
    /// The method; GET stands for HEAD, too.
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) endpoint: Endpoint,
}

const fn get(path: &'static str, endpoint: Endpoint) -> WebRoute {
    WebRoute { method: "GET", path, endpoint }
}

/// All routes beside the page's own files.
pub(crate) static ROUTES: &[WebRoute] = &[
    get("/livez", Endpoint::Live),
    get("/readyz", Endpoint::Ready),
    get("/metrics", Endpoint::Metrics),
    get("/api/v1/status", Endpoint::Status),
    get("/api/v1/stream", Endpoint::Stream),
    get("/api/v1/events", Endpoint::Events),
];

/// The route of a request, if its path has one.
pub(crate) enum Found {
    Route(&'static WebRoute),
    /// The path has other methods: these.
    OtherMethod(&'static str),
    Nothing,
}

/// Finds the route of a request.
pub(crate) fn find(method: &str, path: &str) -> Found {
    let method = if method == "HEAD" { "GET" } else { method };
    let mut other = None;
    for route in ROUTES.iter().filter(|route| route.path == path) {
        if route.method == method {
            return Found::Route(route);
        }
        other = Some(if route.method == "GET" { "GET, HEAD" } else { route.method });
    }
    other.map_or(Found::Nothing, Found::OtherMethod)
}
