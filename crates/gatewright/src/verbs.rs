//! The verbs: those of every gateway, and those of this program alone, which are a file each here.

mod cse;
mod demo;
mod device;
mod gw;
mod header;
mod lab;
mod store;
pub(crate) mod web;

gatewright_command::verbs! {
    Demo = "demo" in demo,
    Run = "run" in gatewright_command::verbs::run,
    Check = "check" in gatewright_command::verbs::check,
    Doctor = "doctor" in gatewright_command::verbs::doctor,
    Diag = "diag" in gatewright_command::verbs::diag,
    Init = "init" in gatewright_command::verbs::init,
    Status = "status" in gatewright_command::verbs::status,
    Events = "events" in gatewright_command::verbs::events,
    Log = "log" in gatewright_command::verbs::log,
    Top = "top" in gatewright_command::verbs::top,
    Reload = "reload" in gatewright_command::verbs::reload,
    Config = "config" in gatewright_command::verbs::config,
    Upgrade = "upgrade" in gatewright_command::verbs::upgrade,
    Link = "link" in gatewright_command::verbs::link,
    Route = "route" in gatewright_command::verbs::route,
    Neigh = "neigh" in gatewright_command::verbs::neigh,
    Mesh = "mesh" in gatewright_command::verbs::mesh,
    Olsr = "olsr" in gatewright_command::verbs::olsr,
    Capture = "capture" in gatewright_command::verbs::capture,
    Trace = "trace" in gatewright_command::verbs::trace,
    Attach = "attach" in gatewright_command::verbs::attach,
    Detach = "detach" in gatewright_command::verbs::detach,
    Device = "device" in device,
    Cse = "cse" in cse,
    Store = "store" in store,
    Lab = "lab" in lab,
    Explain = "explain" in gatewright_command::verbs::explain,
    Gw = "gw" in gw,
    Header = "header" in header,
    Schema = "schema" in gatewright_command::verbs::schema,
    Completion = "completion" in gatewright_command::verbs::completion,
    Man = "man" in gatewright_command::verbs::man,
    Version = "version" in gatewright_command::verbs::version,
    Web = "web" in web,
}
