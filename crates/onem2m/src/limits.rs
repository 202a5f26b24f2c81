//! Limits of a CSE, and counters of reaching them.

use core::time::Duration;

/// Limits of one CSE. [`Limits::default`] suits a small gateway.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// Resources in the tree; one of more than 2 KiB counts once more for each 2 KiB that it has in
    /// memory. When the tree is full, an instance takes the place of its container's oldest, and
    /// anything else is refused. One contentInstance of 300 octets costs about 1.2 KiB of memory.
    pub resources: usize,
    /// Resources of one branch, counted alike: an AE, a remoteCSE or another child of the CSEBase,
    /// with everything below it. A full branch is as a full tree.
    pub branch_resources: usize,
    /// Resources that one address has made, counted alike, or all peers without an address, with
    /// everything below them. A peer that has reached it is as a full tree.
    pub peer_resources: usize,
    /// Resources, counted alike, that peers leave to what this process makes itself, such as its
    /// devices' readings.
    pub reserved_resources: usize,
    /// Octets of the store that all rows take up, as estimated from the sizes of resources; a tree of
    /// more is full.
    pub stored_octets: usize,
    /// Octets of the store that one branch takes up, counted alike.
    pub branch_stored_octets: usize,
    /// Octets of the store that one address takes up, or all peers without an address.
    pub peer_stored_octets: usize,
    /// Octets of the store that peers leave to this process.
    pub reserved_stored_octets: usize,
    /// Resources that keep the answers to non-blocking requests, counted alike with those answers; a
    /// quarter of it those of one originator, and all at most a quarter of `resources`.
    pub answers_kept: usize,
    /// How long such an answer is kept at most, whatever the request's result persistence says.
    pub answers_kept_within: Duration,
    /// Levels below the CSEBase.
    pub depth: usize,
    /// Octets of one request's content.
    pub content_octets: usize,
    /// Octets of one resource name.
    pub name_octets: usize,
    /// Entries of any list attribute (labels, members, notification targets, access rules).
    pub list_entries: usize,
    /// Subscriptions below one resource.
    pub subscriptions: usize,
    /// Members of one group, whatever its mnm says.
    pub group_members: usize,
    /// Outbox messages of one device for the CSE above.
    pub messages_waiting: usize,
    /// Outbox messages of all devices: notifications do not use their share. One with more than
    /// 2 KiB of content counts once more for each 2 KiB.
    pub messages_waiting_total: usize,
    /// Octets of the rows of those, as estimated from their contents.
    pub messages_octets: usize,
    /// Outbox messages of one queue in progress.
    pub queue_window: usize,
    /// Outbox messages for one target in progress.
    pub target_window: usize,
    /// Outbox messages for one subscription's target.
    pub notifications_waiting: usize,
    /// Notifications, answers and announcements that wait, all together, counted alike; a quarter of
    /// it those that one originator's subscriptions make.
    pub notifications_waiting_total: usize,
    /// Octets of the rows of those, as estimated from their contents, and shared alike.
    pub notifications_octets: usize,
    /// Notifications in one batch, whatever bn/num says.
    pub batch: usize,
    /// Resources that one discovery or one retrieval with children returns, whatever lim says.
    pub results: usize,
    /// Steps, each some ten nanoseconds, that one request may take to walk over the tree and to judge
    /// what is there; one that would take more is refused.
    pub filter_steps: u64,
    /// Steps of a walk, or octets for the members of a group, per slice, during which other requests
    /// wait.
    pub slice_steps: u64,
    /// Walks that are not over; a quarter of it those of one originator.
    pub searches: usize,
    /// Requests and walks that wait for instances to be read from the store; a quarter of it those
    /// of one originator.
    pub reads: usize,
    /// Octets of memory for whole instances; those that came into memory before are read from the
    /// store when they are needed. `None` keeps all in memory.
    pub resident_octets: Option<usize>,
    /// Octets of one answer with children, or with the answers of a group's members.
    pub answer_octets: usize,
    /// Octets of all answers that are not read yet, a quarter of it for answers of at most
    /// [`SMALL_OCTETS`](crate::SMALL_OCTETS).
    pub unread_octets: usize,
    /// Octets of those of one peer, divided alike.
    pub unread_octets_per_peer: usize,
    /// Requests remembered to recognise a repetition.
    pub repeats: usize,
    /// How long a request is remembered.
    pub repeats_age: Duration,
    /// Unanswered requests to others; at most a quarter are those of one originator, and a quarter
    /// is kept for requests of the CSE itself.
    pub outstanding: usize,
    /// Time in which another entity must answer, unless the request sets one.
    pub answer_within: Duration,
    /// Maximum of that time, whatever the request sets.
    pub answer_within_max: Duration,
    /// The same time if no requester waits for the answer.
    pub unattended_within: Duration,
    /// Default and maximum lifetime of a resource.
    pub lifetime: Duration,
    /// Instances of a container that sets no mni.
    pub instances: u64,
    /// Octets of content in a container that sets no mbs.
    pub instance_octets: u64,
    /// Requests that wait in one polling channel.
    pub polled: usize,
    /// Retrievals that are answered again when something changes.
    pub observers: usize,
    /// Those of one resource.
    pub observers_per_resource: usize,
    /// Changes of one resource that wait behind an update which waits for consent.
    pub blocked: usize,
    /// Requests that wait inside the CSE: for their time, for consent, or behind one that does.
    pub deferred: usize,
    /// Octets that those hold.
    pub deferred_octets: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            resources: 1_000_000,
            branch_resources: 250_000,
            peer_resources: 500_000,
            reserved_resources: 0,
            stored_octets: usize::MAX,
            branch_stored_octets: usize::MAX,
            peer_stored_octets: usize::MAX,
            reserved_stored_octets: 0,
            answers_kept: 65_536,
            answers_kept_within: Duration::from_hours(24),
            depth: 32,
            content_octets: 1024 * 1024,
            name_octets: 255,
            list_entries: 1_024,
            subscriptions: 256,
            group_members: 4_096,
            messages_waiting: 10_000,
            messages_waiting_total: 100_000,
            messages_octets: 128 * 1024 * 1024,
            queue_window: 128,
            target_window: 768,
            notifications_waiting: 1_024,
            notifications_waiting_total: 65_536,
            notifications_octets: 128 * 1024 * 1024,
            batch: 1_024,
            results: 10_000,
            filter_steps: 400_000_000,
            slice_steps: 100_000,
            searches: 64,
            reads: 256,
            resident_octets: None,
            answer_octets: 64 * 1024 * 1024,
            unread_octets: 256 * 1024 * 1024,
            unread_octets_per_peer: 64 * 1024 * 1024,
            repeats: 65_536,
            repeats_age: Duration::from_mins(5),
            outstanding: 4_096,
            answer_within: Duration::from_secs(10),
            answer_within_max: Duration::from_hours(24),
            unattended_within: Duration::from_mins(10),
            lifetime: Duration::from_hours(5 * 365 * 24),
            instances: 100_000,
            instance_octets: 256 * 1024 * 1024,
            polled: 256,
            observers: 4_096,
            observers_per_resource: 512,
            blocked: 64,
            deferred: 4_096,
            deferred_octets: 64 * 1024 * 1024,
        }
    }
}

/// The share of `all` that one user may take: a quarter.
pub(crate) fn share(all: usize) -> usize {
    (all / 4).max(1)
}

crate::counters! {
    /// Counters of a CSE since its creation.
    #[non_exhaustive]
    pub struct Counters, "";

    /// Requests that came in.
    requests,
    /// Requests answered with success.
    succeeded,
    /// Requests answered with a refusal.
    refused,
    /// Refusals by access control.
    denied,
    /// Refusals because the peer's certificate does not authorise the originator.
    unauthenticated,
    /// Refusals because an outside request had this CSE as originator.
    posed_as_us,
    /// Requests recognised as repetitions and answered as before.
    repeated,
    /// Repetitions refused, as enough of them wait for the first one's answer.
    repeated_too_often,
    /// Batches of records passed to the store.
    batches,
    /// Batches that could not be stored and were taken back.
    rolled_back,
    /// Creations refused because the tree is full, or what peers may use of it.
    tree_full,
    /// Creations refused because their peer's part (of an address, or of all without one) is full.
    peer_full,
    /// Creations refused because their branch (a child of the CSEBase) is full.
    branch_full,
    /// Non-blocking requests refused, and answers not kept, because as many are kept as may be, of all
    /// or of one originator.
    answers_kept_full,
    /// Creations refused because the disk has room for deletions only.
    disk_full,
    /// Creations refused because they would lie too deep.
    too_deep,
    /// Requests refused because their content is too large.
    content_too_large,
    /// Subscriptions refused because the resource has too many.
    subscriptions_full,
    /// Instances that left memory; their text is in the store.
    instances_paged_out,
    /// Instances that were read back into memory.
    instances_paged_in,
    /// Requests and walks that waited for instances to be read.
    requests_paged,
    /// Requests and walks refused because as many wait for instances to be read as may.
    reads_full,
    /// Reads of instances that failed.
    reads_failed,
    /// Rows of instances asked for.
    rows_read,
    /// Rows found unreadable since the start; they stay in the store.
    rows_found_unreadable,
    /// Walks over the tree that took more than one slice.
    searches_sliced,
    /// Requests refused because as many walks are not over as may be.
    searches_full,
    /// Answers of a group's members left out because all together were too large.
    fan_octets_full,
    /// Answers not given because the octets of all that are not read yet are too many.
    answers_full,
    /// Answers not given because those of their peer are.
    answers_of_one_full,
    /// Results left out because a discovery found more than it may return.
    results_cut,
    /// Resources that a discovery did not find because a criterion costs too much on them.
    filters_cut,
    /// Instances removed because their container was full, or the tree was.
    trimmed,
    /// Registrations of CSEs refused.
    registrations_refused,
    /// Expired resources removed.
    expired,
    /// Steps of the wall clock against the monotonic one, in either direction.
    clock_leaps,
    /// Resources that were given more time, as the wall clock was behind when they were made.
    expiries_postponed,
    /// Observers answered again because the answer has become another.
    observed,
    /// Retrievals answered once only because there were too many observers.
    observers_full,
    /// Notifications made.
    notifications,
    /// Notifications delivered.
    delivered,
    /// Deliveries tried again because the target was away.
    delivery_retries,
    /// Times that devices' messages waited for a second, as answers were late.
    overloads,
    /// Notifications withheld because the subscriber lacks the right to see their subject.
    notifications_withheld,
    /// Notifications dropped because too many waited.
    notifications_dropped,
    /// Times that a subscription began to lag behind: its notifications are made from the tree when
    /// there is room for them.
    subscriptions_behind,
    /// Outbox messages dropped because they had expired.
    messages_aged,
    /// Outbox messages that the receiver refused for good.
    messages_refused,
    /// Of those, devices' readings: they are stored here, but not at the CSE above.
    readings_refused_above,
    /// Devices' readings that were stored while the outbox was full: their messages are made later.
    readings_backlogged,
    /// Of those, readings for whose messages there was a place, but not the octets.
    outbox_octets_full,
    /// Messages about devices' resources left out because the outbox was full.
    messages_left_out,
    /// Times that an outbox message was held because the receiver does not yet know or authorise
    /// its originator.
    messages_unauthorised,
    /// Announcements made, changed and taken back at other CSEs.
    announcements,
    /// Updates that waited for the consent of a subscription's target.
    blocked,
    /// Requests that waited for their time.
    postponed,
    /// Requests refused because as many wait inside as may.
    deferred_full,
    /// Requests refused because as many of one originator wait inside as may.
    deferred_of_one_full,
    /// Requests sent on to another CSE.
    forwarded,
    /// Requests refused because too many sent to others were unanswered.
    outstanding_full,
    /// Requests refused because too many of their originator's were.
    outstanding_of_one_full,
    /// Requests to others that were not answered in time.
    unanswered,
    /// Responses without an outstanding request.
    stray_answers,
    /// Requests refused because a polling channel was full.
    polling_full,
    /// Points in time that a time series has no instance for.
    points_missing,
}
