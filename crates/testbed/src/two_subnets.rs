use crate::{Namespace, TestbedError, Veth};

/// Two hosts on two subnets, with a host for a gateway between them.
///
/// `north` is 10.10.1.2 behind interface `g0` of `middle`, `south` is 10.10.2.2 behind `g1`. Their
/// default routes go to 10.10.1.1 and 10.10.2.1, which a gateway on `g0` and `g1` has.
#[derive(Clone, Debug)]
pub struct TwoSubnets {
    /// The host of the first subnet; its interface is `n0`.
    pub north: Namespace,
    /// The host between them, with `g0` and `g1`.
    pub middle: Namespace,
    /// The host of the second subnet; its interface is `s0`.
    pub south: Namespace,
}

impl TwoSubnets {
    /// Makes them with cables of a number of queues each way.
    ///
    /// # Errors
    ///
    /// [`TestbedError`] if the system refuses, or if there is no `ethtool`.
    pub fn with_queues(queues: usize) -> Result<Self, TestbedError> {
        let (north, middle, south) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        let lan = Veth::with_queues(&north, "n0", &middle, "g0", queues)?;
        let wan = Veth::with_queues(&middle, "g1", &south, "s0", queues)?;
        for end in [&lan.a, &lan.b, &wan.a, &wan.b] {
            // One queue of what arrives, whichever processor it was sent on: without this the
            // kernel has one for each processor, and a thread that moves overtakes itself.
            end.namespace().command("ethtool").args(["-K", end.name(), "gro", "on"]).run()?;
        }
        lan.a.add_address("10.10.1.2/24")?;
        wan.b.add_address("10.10.2.2/24")?;
        lan.up()?;
        wan.up()?;
        north.add_route("default", "10.10.1.1")?;
        south.add_route("default", "10.10.2.1")?;
        Ok(Self { north, middle, south })
    }

    /// Whether a ping of the north is answered by the south within a second.
    ///
    /// # Errors
    ///
    /// [`TestbedError::Start`] if there is no `ping`.
    pub fn are_connected(&self) -> Result<bool, TestbedError> {
        let ping = self.north.command("ping").args(["-n", "-q", "-c1", "-W1", "10.10.2.2"]);
        Ok(ping.output()?.status.success())
    }
}
