//! Resource types (TS-0001 §9.6.1.1): numbers, names, and allowed children.

macro_rules! resource_types {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $tag:literal, $prefix:literal;)+) => {
        /// A resource type that this CSE hosts.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum ResourceType {
            $($(#[$doc])* $name,)+
        }

        impl ResourceType {
            /// Every hosted type, by ascending number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The resourceType number (TS-0004, m2m:resourceType).
            pub const fn number(self) -> u16 {
                match self {
                    $(Self::$name => $number,)+
                }
            }

            /// The type with this number, if it is hosted here.
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// The short name with its namespace (TS-0004 §8.2.4); empty where each resource
            /// brings its own (flexContainer, its instances, management objects).
            pub const fn tag(self) -> &'static str {
                match self {
                    $(Self::$name => $tag,)+
                }
            }

            /// Prefix of the resource identifiers and names that the CSE generates.
            pub const fn prefix(self) -> &'static str {
                match self {
                    $(Self::$name => $prefix,)+
                }
            }
        }
    };
}

resource_types! {
    /// accessControlPolicy: the rights of originators.
    AccessControlPolicy = 1, "m2m:acp", "acp";
    /// AE: a registered application.
    ApplicationEntity = 2, "m2m:ae", "ae";
    /// container: holds instances and containers.
    Container = 3, "m2m:cnt", "cnt";
    /// contentInstance: one immutable datum.
    ContentInstance = 4, "m2m:cin", "cin";
    /// CSEBase: the root.
    CseBase = 5, "m2m:cb", "cb";
    /// group: members that one request reaches.
    Group = 9, "m2m:grp", "grp";
    /// mgmtObj: one management object of a node.
    ManagementObject = 13, "", "mgo";
    /// node: the device behind an entity.
    Node = 14, "m2m:nod", "nod";
    /// pollingChannel: where an unreachable entity fetches its requests.
    PollingChannel = 15, "m2m:pch", "pch";
    /// remoteCSE: a registered CSE, or the registrar.
    RemoteCse = 16, "m2m:csr", "csr";
    /// request: a non-blocking request and its result.
    Request = 17, "m2m:req", "req";
    /// schedule: times at which its parent is notified, or can be reached.
    Schedule = 18, "m2m:sch", "sch";
    /// subscription: events and notification targets.
    Subscription = 23, "m2m:sub", "sub";
    /// flexContainer: attributes named by their definition.
    FlexContainer = 28, "", "fcnt";
    /// timeSeries: instances at a period.
    TimeSeries = 29, "m2m:ts", "ts";
    /// timeSeriesInstance: one of them.
    TimeSeriesInstance = 30, "m2m:tsi", "tsi";
    /// flexContainerInstance: an earlier state of a flexContainer.
    FlexContainerInstance = 58, "", "fci";
    /// accessControlPolicyAnnc.
    AccessControlPolicyAnnc = 10_001, "m2m:acpA", "acpA";
    /// AEAnnc.
    ApplicationEntityAnnc = 10_002, "m2m:aeA", "aeA";
    /// containerAnnc.
    ContainerAnnc = 10_003, "m2m:cntA", "cntA";
    /// contentInstanceAnnc.
    ContentInstanceAnnc = 10_004, "m2m:cinA", "cinA";
    /// CSEBaseAnnc: another CSE, and below it what it announces.
    CseBaseAnnc = 10_005, "m2m:cbA", "cbA";
    /// groupAnnc.
    GroupAnnc = 10_009, "m2m:grpA", "grpA";
    /// mgmtObjAnnc.
    ManagementObjectAnnc = 10_013, "", "mgoA";
    /// nodeAnnc.
    NodeAnnc = 10_014, "m2m:nodA", "nodA";
    /// flexContainerAnnc.
    FlexContainerAnnc = 10_028, "", "fcntA";
    /// timeSeriesAnnc.
    TimeSeriesAnnc = 10_029, "m2m:tsA", "tsA";
    /// timeSeriesInstanceAnnc.
    TimeSeriesInstanceAnnc = 10_030, "m2m:tsiA", "tsiA";
}

impl ResourceType {
    /// Whether a child of type `child` may be created below (TS-0001 §9.6, child tables).
    pub const fn takes(self, child: Self) -> bool {
        match self {
            Self::CseBase => matches!(
                child,
                Self::AccessControlPolicy
                    | Self::ApplicationEntity
                    | Self::Container
                    | Self::Group
                    | Self::Node
                    | Self::RemoteCse
                    | Self::Subscription
                    | Self::FlexContainer
                    | Self::TimeSeries
                    | Self::CseBaseAnnc
                    | Self::ApplicationEntityAnnc
            ),
            Self::RemoteCse if child.original().is_some() => {
                !matches!(child, Self::CseBaseAnnc | Self::TimeSeriesInstanceAnnc)
            }
            Self::ApplicationEntity | Self::RemoteCse => matches!(
                child,
                Self::AccessControlPolicy
                    | Self::Container
                    | Self::Group
                    | Self::PollingChannel
                    | Self::Schedule
                    | Self::Subscription
                    | Self::FlexContainer
                    | Self::TimeSeries
            ),
            Self::Container => matches!(
                child,
                Self::Container
                    | Self::ContentInstance
                    | Self::Subscription
                    | Self::FlexContainer
                    | Self::TimeSeries
            ),
            Self::FlexContainer => matches!(
                child,
                Self::Container | Self::Subscription | Self::FlexContainer | Self::TimeSeries
            ),
            Self::Subscription => matches!(child, Self::Schedule),
            Self::TimeSeries => matches!(child, Self::TimeSeriesInstance | Self::Subscription),
            Self::Node => matches!(child, Self::ManagementObject | Self::Subscription),
            Self::AccessControlPolicy
            | Self::Group
            | Self::ManagementObject
            | Self::Request
            | Self::Schedule => matches!(child, Self::Subscription),
            _ => self.announced_takes(child),
        }
    }

    /// Whether a child of type `child` may be there: what may be created, and requests that are not
    /// waited for, which only the CSE itself creates (TS-0004 §7.4.12.2.1).
    pub const fn has(self, child: Self) -> bool {
        self.takes(child) || matches!((self, child), (Self::CseBase, Self::Request))
    }

    /// Whether an announced resource takes a child: what its original takes, announced, and what
    /// may be made at the place where it is announced.
    const fn announced_takes(self, child: Self) -> bool {
        if matches!(self, Self::ContentInstanceAnnc | Self::TimeSeriesInstanceAnnc) {
            return false;
        }
        if matches!(child, Self::Subscription) {
            return self.original().is_some();
        }
        match self {
            Self::CseBaseAnnc => matches!(
                child,
                Self::AccessControlPolicyAnnc
                    | Self::ApplicationEntityAnnc
                    | Self::ContainerAnnc
                    | Self::FlexContainerAnnc
                    | Self::GroupAnnc
                    | Self::NodeAnnc
                    | Self::TimeSeriesAnnc
            ),
            Self::ApplicationEntityAnnc | Self::ContainerAnnc | Self::FlexContainerAnnc => {
                match child.original() {
                    Some(Self::ContentInstance) => matches!(self, Self::ContainerAnnc),
                    Some(Self::AccessControlPolicy | Self::Group) => {
                        matches!(self, Self::ApplicationEntityAnnc)
                    }
                    Some(child) => {
                        matches!(child, Self::Container | Self::FlexContainer | Self::TimeSeries)
                    }
                    None => {
                        matches!(child, Self::Container | Self::FlexContainer | Self::TimeSeries)
                    }
                }
            }
            Self::TimeSeriesAnnc => matches!(child, Self::TimeSeriesInstanceAnnc),
            Self::NodeAnnc => matches!(child, Self::ManagementObjectAnnc),
            _ => false,
        }
    }

    /// The announced variant of a type that has one here (TS-0001 §9.6.26).
    pub const fn announced(self) -> Option<Self> {
        Some(match self {
            Self::AccessControlPolicy => Self::AccessControlPolicyAnnc,
            Self::ApplicationEntity => Self::ApplicationEntityAnnc,
            Self::Container => Self::ContainerAnnc,
            Self::ContentInstance => Self::ContentInstanceAnnc,
            Self::CseBase => Self::CseBaseAnnc,
            Self::Group => Self::GroupAnnc,
            Self::ManagementObject => Self::ManagementObjectAnnc,
            Self::Node => Self::NodeAnnc,
            Self::FlexContainer => Self::FlexContainerAnnc,
            Self::TimeSeries => Self::TimeSeriesAnnc,
            Self::TimeSeriesInstance => Self::TimeSeriesInstanceAnnc,
            _ => return None,
        })
    }

    /// The type that this one is the announced variant of.
    pub const fn original(self) -> Option<Self> {
        match self.number() {
            number @ 10_001.. => Self::from_number(number - 10_000),
            _ => None,
        }
    }

    /// Whether resources of this type are instances: immutable, oldest first, counted against
    /// their parent's mni and mbs, and reachable by `la` and `ol`.
    pub const fn is_instance(self) -> bool {
        matches!(
            self,
            Self::ContentInstance | Self::TimeSeriesInstance | Self::FlexContainerInstance
        )
    }

    /// Whether the type counts its changes in a stateTag.
    pub const fn has_state_tag(self) -> bool {
        matches!(
            self,
            Self::Container
                | Self::ContentInstance
                | Self::FlexContainer
                | Self::FlexContainerInstance
                | Self::Request
        )
    }

    /// Whether the type has an expirationTime (all but the CSEBase).
    pub const fn expires(self) -> bool {
        !matches!(self, Self::CseBase)
    }
}

#[cfg(test)]
mod tests {
    use super::ResourceType;

    #[test]
    fn every_number_leads_back_to_its_kind() {
        for &resource_type in ResourceType::ALL {
            assert_eq!(ResourceType::from_number(resource_type.number()), Some(resource_type));
        }
    }

    #[test]
    fn every_announced_variant_has_its_original() {
        for &resource_type in ResourceType::ALL {
            assert_eq!(
                resource_type.announced().and_then(ResourceType::original),
                resource_type.announced().map(|_| resource_type)
            );
            assert_eq!(
                resource_type.original().and_then(ResourceType::announced),
                resource_type.original().map(|_| resource_type)
            );
        }
    }

    #[test]
    fn instances_have_no_children() {
        for &child in ResourceType::ALL {
            assert!(!ResourceType::ContentInstance.takes(child));
        }
    }
}
