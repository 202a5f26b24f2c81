//! Deletion (TS-0001 §10.1.5) of a resource with everything below it.

use super::access::{Originator, Right};
use super::create::no_such_result;
use super::{Cse, Done, Refusal, Target, not_allowed};
use crate::primitive::Request;
use crate::resource_type::ResourceType;
use crate::status::Status;

impl Cse {
    pub(super) fn delete(
        &mut self,
        request: &Request,
        from: &Originator<'_>,
        target: Target<'_>,
    ) -> Result<Done, Refusal> {
        let slot = self.settle_target(target)?;
        self.demand(from, Right::Delete, slot, None)?;
        // TS-0004 §7.4.7.2.4: nor are instances deleted that are not shown.
        self.check_shown(slot)?;
        if self.resource(slot)?.resource_type == ResourceType::CseBase {
            return Err(not_allowed("the CSEBase is not deleted"));
        }
        let done = match request.result_content.unwrap_or(0) {
            0 => Done::new(Status::Deleted),
            1 => Done::with(Status::Deleted, self.resource(slot)?.to_text()),
            rcn @ (4 | 5 | 6 | 8) => {
                let filter = request.filter.as_deref().cloned().unwrap_or_default();
                let chosen = self.choose(&filter, from, slot, Right::Retrieve, rcn)?;
                let mut done = self.result_of(request, from, (slot, rcn), &chosen, None)?;
                done.status = Status::Deleted;
                done
            }
            other => return Err(no_such_result(other)),
        };
        self.take_out(slot);
        Ok(done)
    }
}
