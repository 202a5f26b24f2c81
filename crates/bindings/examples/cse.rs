//! A CSE in one command: `cse ADDRESS [DATABASE]`, an infrastructure node `/id-in` with the
//! administrator `CAdmin`, until interrupted.

use gatewright_bindings::cse::{CseServerConfig, serve};
use gatewright_onem2m::CseType;
use std::error::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let mut cse = gatewright_onem2m::CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
    cse.admin = Some("CAdmin".to_owned());
    let mut config = CseServerConfig::new(cse);
    config.listen = vec![address.parse()?];
    config.store = arguments.next().map(Into::into);
    serve(config, async {
        let _ = tokio::signal::ctrl_c().await;
    })
    .await?;
    Ok(())
}
